/* ptsz.c: the entry points for per-thread default streams. Each sets sim_per_thread, so that a NULL
 * stream means the thread's own stream, and calls the ordinary entry point. */
#include "sim/call/call.h"

/* Each line maps a per-thread variant to its ordinary entry point. */
/* clang-format off */
#define P_cuLaunchKernel_ptsz ~, cuLaunchKernel
#define P_cuLaunchKernelEx_ptsz ~, cuLaunchKernelEx
#define P_cuLaunchCooperativeKernel_ptsz ~, cuLaunchCooperativeKernel
#define P_cuLaunchHostFunc_ptsz ~, cuLaunchHostFunc
#define P_cuLaunchHostFunc_v2_ptsz ~, cuLaunchHostFunc_v2
#define P_cuMemcpyWithAttributesAsync_ptsz ~, cuMemcpyWithAttributesAsync
#define P_cuMemcpy3DWithAttributesAsync_ptsz ~, cuMemcpy3DWithAttributesAsync
#define P_cuMemcpy_ptds ~, cuMemcpy
#define P_cuMemcpyPeer_ptds ~, cuMemcpyPeer
#define P_cuMemcpyHtoD_v2_ptds ~, cuMemcpyHtoD_v2
#define P_cuMemcpyDtoH_v2_ptds ~, cuMemcpyDtoH_v2
#define P_cuMemcpyDtoD_v2_ptds ~, cuMemcpyDtoD_v2
#define P_cuMemcpyDtoA_v2_ptds ~, cuMemcpyDtoA_v2
#define P_cuMemcpyAtoD_v2_ptds ~, cuMemcpyAtoD_v2
#define P_cuMemcpyHtoA_v2_ptds ~, cuMemcpyHtoA_v2
#define P_cuMemcpyAtoH_v2_ptds ~, cuMemcpyAtoH_v2
#define P_cuMemcpyAtoA_v2_ptds ~, cuMemcpyAtoA_v2
#define P_cuMemcpy2D_v2_ptds ~, cuMemcpy2D_v2
#define P_cuMemcpy2DUnaligned_v2_ptds ~, cuMemcpy2DUnaligned_v2
#define P_cuMemcpy3D_v2_ptds ~, cuMemcpy3D_v2
#define P_cuMemcpy3DPeer_ptds ~, cuMemcpy3DPeer
#define P_cuMemcpy3DPeerAsync_ptsz ~, cuMemcpy3DPeerAsync
#define P_cuMemcpyHtoAAsync_v2_ptsz ~, cuMemcpyHtoAAsync_v2
#define P_cuMemcpyAtoHAsync_v2_ptsz ~, cuMemcpyAtoHAsync_v2
#define P_cuMemcpyBatchAsync_ptsz ~, cuMemcpyBatchAsync
#define P_cuMemcpyBatchAsync_v2_ptsz ~, cuMemcpyBatchAsync_v2
#define P_cuMemcpy3DBatchAsync_ptsz ~, cuMemcpy3DBatchAsync
#define P_cuMemcpy3DBatchAsync_v2_ptsz ~, cuMemcpy3DBatchAsync_v2
#define P_cuMemPrefetchBatchAsync_ptsz ~, cuMemPrefetchBatchAsync
#define P_cuMemDiscardBatchAsync_ptsz ~, cuMemDiscardBatchAsync
#define P_cuMemDiscardAndPrefetchBatchAsync_ptsz ~, cuMemDiscardAndPrefetchBatchAsync
#define P_cuMemcpyAsync_ptsz ~, cuMemcpyAsync
#define P_cuMemcpyPeerAsync_ptsz ~, cuMemcpyPeerAsync
#define P_cuMemcpyHtoDAsync_v2_ptsz ~, cuMemcpyHtoDAsync_v2
#define P_cuMemcpyDtoHAsync_v2_ptsz ~, cuMemcpyDtoHAsync_v2
#define P_cuMemcpyDtoDAsync_v2_ptsz ~, cuMemcpyDtoDAsync_v2
#define P_cuMemcpy2DAsync_v2_ptsz ~, cuMemcpy2DAsync_v2
#define P_cuMemcpy3DAsync_v2_ptsz ~, cuMemcpy3DAsync_v2
#define P_cuMemsetD8_v2_ptds ~, cuMemsetD8_v2
#define P_cuMemsetD16_v2_ptds ~, cuMemsetD16_v2
#define P_cuMemsetD32_v2_ptds ~, cuMemsetD32_v2
#define P_cuMemsetD2D8_v2_ptds ~, cuMemsetD2D8_v2
#define P_cuMemsetD2D16_v2_ptds ~, cuMemsetD2D16_v2
#define P_cuMemsetD2D32_v2_ptds ~, cuMemsetD2D32_v2
#define P_cuMemsetD8Async_ptsz ~, cuMemsetD8Async
#define P_cuMemsetD16Async_ptsz ~, cuMemsetD16Async
#define P_cuMemsetD32Async_ptsz ~, cuMemsetD32Async
#define P_cuMemsetD2D8Async_ptsz ~, cuMemsetD2D8Async
#define P_cuMemsetD2D16Async_ptsz ~, cuMemsetD2D16Async
#define P_cuMemsetD2D32Async_ptsz ~, cuMemsetD2D32Async
#define P_cuStreamGetPriority_ptsz ~, cuStreamGetPriority
#define P_cuStreamGetDevice_ptsz ~, cuStreamGetDevice
#define P_cuStreamGetFlags_ptsz ~, cuStreamGetFlags
#define P_cuStreamGetId_ptsz ~, cuStreamGetId
#define P_cuStreamGetCtx_ptsz ~, cuStreamGetCtx
#define P_cuStreamGetCtx_v2_ptsz ~, cuStreamGetCtx_v2
#define P_cuStreamWaitEvent_ptsz ~, cuStreamWaitEvent
#define P_cuStreamAddCallback_ptsz ~, cuStreamAddCallback
#define P_cuStreamBeginCapture_ptsz ~, cuStreamBeginCapture
#define P_cuStreamBeginCapture_v2_ptsz ~, cuStreamBeginCapture_v2
#define P_cuStreamBeginCaptureToGraph_ptsz ~, cuStreamBeginCaptureToGraph
#define P_cuStreamEndCapture_ptsz ~, cuStreamEndCapture
#define P_cuStreamIsCapturing_ptsz ~, cuStreamIsCapturing
#define P_cuStreamGetCaptureInfo_ptsz ~, cuStreamGetCaptureInfo
#define P_cuStreamGetCaptureInfo_v2_ptsz ~, cuStreamGetCaptureInfo_v2
#define P_cuStreamGetCaptureInfo_v3_ptsz ~, cuStreamGetCaptureInfo_v3
#define P_cuStreamUpdateCaptureDependencies_ptsz ~, cuStreamUpdateCaptureDependencies
#define P_cuStreamUpdateCaptureDependencies_v2_ptsz ~, cuStreamUpdateCaptureDependencies_v2
#define P_cuStreamAttachMemAsync_ptsz ~, cuStreamAttachMemAsync
#define P_cuMemAllocAsync_ptsz ~, cuMemAllocAsync
#define P_cuMemAllocFromPoolAsync_ptsz ~, cuMemAllocFromPoolAsync
#define P_cuMemFreeAsync_ptsz ~, cuMemFreeAsync
#define P_cuMemPrefetchAsync_ptsz ~, cuMemPrefetchAsync
#define P_cuMemPrefetchAsync_v2_ptsz ~, cuMemPrefetchAsync_v2
#define P_cuStreamQuery_ptsz ~, cuStreamQuery
#define P_cuStreamSynchronize_ptsz ~, cuStreamSynchronize
#define P_cuStreamWaitValue32_ptsz ~, cuStreamWaitValue32
#define P_cuStreamWaitValue32_v2_ptsz ~, cuStreamWaitValue32_v2
#define P_cuStreamWaitValue64_ptsz ~, cuStreamWaitValue64
#define P_cuStreamWaitValue64_v2_ptsz ~, cuStreamWaitValue64_v2
#define P_cuStreamWriteValue32_ptsz ~, cuStreamWriteValue32
#define P_cuStreamWriteValue32_v2_ptsz ~, cuStreamWriteValue32_v2
#define P_cuStreamWriteValue64_ptsz ~, cuStreamWriteValue64
#define P_cuStreamWriteValue64_v2_ptsz ~, cuStreamWriteValue64_v2
#define P_cuStreamBatchMemOp_ptsz ~, cuStreamBatchMemOp
#define P_cuStreamBatchMemOp_v2_ptsz ~, cuStreamBatchMemOp_v2
#define P_cuEventRecord_ptsz ~, cuEventRecord
#define P_cuEventRecordWithFlags_ptsz ~, cuEventRecordWithFlags
#define P_cuGraphInstantiateWithParams_ptsz ~, cuGraphInstantiateWithParams
#define P_cuGraphUpload_ptsz ~, cuGraphUpload
#define P_cuGraphLaunch_ptsz ~, cuGraphLaunch
/* clang-format on */

/* PICK selects WRAP for a symbol that a line above defines as two arguments, and SKIP for all other
 * symbols. */
#define PICK(a, b, c, d, e, f, ...) f
#define EMIT(...)                   PICK(__VA_ARGS__, WRAP, SKIP, ~)(__VA_ARGS__)
#define SKIP(...)
#define WRAP(mark, target, symbol, params, args) \
        EXPORT CUresult symbol params            \
        {                                        \
                CUresult r;                      \
                                                 \
                sim_per_thread++;                \
                r = target args;                 \
                sim_per_thread--;                \
                return r;                        \
        }

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        EMIT(P_##symbol, symbol, params, args)
#include "cuda/cuda_api.def"
