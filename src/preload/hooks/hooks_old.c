/* hooks_old.c: first versions of entry points, answered by the hooks of their successors. Drivers
 * still export them for programs linked long ago; a context or stream made by them must not escape
 * us. */
#include "preload/hooks/hooks.h"

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
        return hook_cuCtxDestroy_v2(ctx);
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
        return hook_cuDevicePrimaryCtxRelease_v2(device);
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice device)
{
        return hook_cuDevicePrimaryCtxReset_v2(device);
}

CUresult hook_cuStreamDestroy(CUstream stream)
{
        return hook_cuStreamDestroy_v2(stream);
}

/* The mode argument came with the second version; before, the mode was what GLOBAL means now. */
CUresult hook_cuStreamBeginCapture(CUstream stream)
{
        return hook_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream stream)
{
        return hook_cuStreamBeginCapture_v2_ptsz(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
