/* noop_answers.c: the calls of the no-op driver that return something: one GPU of 64 GiB, one
 * context, and addresses of allocations without memory behind them. */
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        __attribute__((visibility("default"))) CUresult symbol params;
#include "cuda/cuda_api.def"

#define NOOP_TOTAL (64 * GIB)

static char handle[16]; /* all handles point to this */
static _Thread_local CUcontext current;
static CUdeviceptr next_address = UINT64_C(1) << 44;

#define HANDLE(type) ((type)(void *)handle)

/* The look-up of both versions of cuGetProcAddress. */
static void *find(const char *base, int version, cuuint64_t flags)
{
        static const struct {
                const char *base, *symbol;
                int since;
                unsigned flags;
        } table[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        {#base, #symbol, since, flags},
#include "cuda/cuda_api.def"
        };
        const char *best = NULL;
        int since = -1;
        bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

        for (unsigned pass = 0; pass < 2 && !best; pass++)
                for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                        if (!strcmp(table[i].base, base) && table[i].since <= version &&
                            table[i].since > since &&
                            (table[i].flags != 0) == (per_thread && pass == 0)) {
                                best = table[i].symbol;
                                since = table[i].since;
                        }
        return best ? dlsym(RTLD_DEFAULT, best) : NULL;
}

CUresult cuGetProcAddress(const char *name, void **ret_fn, int version, cuuint64_t flags)
{
        *ret_fn = find(name, version, flags);
        return *ret_fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret_fn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *ret_status)
{
        *ret_fn = find(name, version, flags);
        if (ret_status)
                *ret_status = *ret_fn ? CU_GET_PROC_ADDRESS_SUCCESS
                                      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return *ret_fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuDriverGetVersion(int *ret_version)
{
        *ret_version = CUDA_VERSION;
        return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
        *count = 1;
        return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
        *device = 0;
        return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
        *bytes = NOOP_TOTAL;
        return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
        *ret_free = *ret_total = NOOP_TOTAL;
        return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device)
{
        memset(ret_uuid, 0x77, sizeof(*ret_uuid));
        return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
        *ret_value = 1;
        return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
        *ctx = HANDLE(CUcontext);
        return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
        current = ctx;
        return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
        current = ctx;
        return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
        *ctx = current;
        return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
        *device = 0;
        return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
        *stream = HANDLE(CUstream);
        return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
        *event = HANDLE(CUevent);
        return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
        *ret_status = CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *ret_granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
        *ret_granularity = 2 * MIB;
        return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret_ptr, size_t bytes)
{
        *ret_ptr = __atomic_fetch_add(&next_address, align_up(bytes, 2 * MIB), __ATOMIC_RELAXED);
        return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
        return cuMemAlloc_v2(ptr, size);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
        *ret_handle = 1;
        return CUDA_SUCCESS;
}
