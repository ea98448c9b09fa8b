/* translated.h: the functions of the driver that take or return a device, and how each is
 * translated. Their prototypes are in cuda/cuda_api.def.
 *
 *   IN        the parameter `device`
 *   CREATE    as IN; moreover the context or green context that it returns belongs to the device
 *   FORGET    ends what `ctx` or `handle` names
 *   VALUE     the parameter `location`, a structure
 *   LOCATION  the parameter `location`, a pointer
 *   LIST      `locations`, of which there are `location_count`
 *   PROP      `prop`, whose location names a device
 *   HINTS     `attrs`, of which there are `attr_count`
 *   BATCH     `op_list`, of which there are `op_count`
 *   NODE      `node_params`
 *   HAND      written out in by_hand.c */
#pragma once

#include "ranks/real/real.h"

/* Selects the word of the table, or else NONE. */
#define TRANSLATED(symbol)         TRANSLATED_2(TRANSLATED_##symbol, NONE, )
#define TRANSLATED_2(...)          TRANSLATED_3(__VA_ARGS__)
#define TRANSLATED_3(a, word, ...) word

/* clang-format off */
#define TRANSLATED_cuDeviceGetName ~, IN
#define TRANSLATED_cuDeviceGetLuid ~, IN
#define TRANSLATED_cuDeviceTotalMem_v2 ~, IN
#define TRANSLATED_cuDeviceGetTexture1DLinearMaxWidth ~, IN
#define TRANSLATED_cuDeviceGetHostAtomicCapabilities ~, IN
#define TRANSLATED_cuDeviceSetMemPool ~, IN
#define TRANSLATED_cuDeviceGetMemPool ~, IN
#define TRANSLATED_cuDeviceGetDefaultMemPool ~, IN
#define TRANSLATED_cuDeviceGetExecAffinitySupport ~, IN
#define TRANSLATED_cuDeviceGetProperties ~, IN
#define TRANSLATED_cuDeviceComputeCapability ~, IN
#define TRANSLATED_cuDeviceRegisterAsyncNotification ~, IN
#define TRANSLATED_cuDeviceUnregisterAsyncNotification ~, IN
#define TRANSLATED_cuDeviceGraphMemTrim ~, IN
#define TRANSLATED_cuDeviceGetGraphMemAttribute ~, IN
#define TRANSLATED_cuDeviceSetGraphMemAttribute ~, IN
#define TRANSLATED_cuDeviceGetDevResource ~, IN
#define TRANSLATED_cuKernelGetAttribute ~, IN
#define TRANSLATED_cuKernelSetAttribute ~, IN
#define TRANSLATED_cuKernelSetCacheConfig ~, IN
#define TRANSLATED_cuMemAdvise ~, IN
#define TRANSLATED_cuMemPrefetchAsync ~, IN
#define TRANSLATED_cuMemPrefetchAsync_ptsz ~, IN
#define TRANSLATED_cuMulticastAddDevice ~, IN
#define TRANSLATED_cuMulticastBindMem_v2 ~, IN
#define TRANSLATED_cuMulticastBindAddr_v2 ~, IN
#define TRANSLATED_cuMulticastUnbind ~, IN
#define TRANSLATED_cuLogicalEndpointBindMem ~, IN
#define TRANSLATED_cuLogicalEndpointBindAddr ~, IN
#define TRANSLATED_cuArrayGetMemoryRequirements ~, IN
#define TRANSLATED_cuMipmappedArrayGetMemoryRequirements ~, IN

#define TRANSLATED_cuCtxCreate ~, CREATE
#define TRANSLATED_cuCtxCreate_v2 ~, CREATE
#define TRANSLATED_cuCtxCreate_v3 ~, CREATE
#define TRANSLATED_cuCtxCreate_v4 ~, CREATE
#define TRANSLATED_cuGLCtxCreate ~, CREATE
#define TRANSLATED_cuGLCtxCreate_v2 ~, CREATE
#define TRANSLATED_cuVDPAUCtxCreate ~, CREATE
#define TRANSLATED_cuVDPAUCtxCreate_v2 ~, CREATE
#define TRANSLATED_cuGreenCtxCreate ~, CREATE
#define TRANSLATED_cuCtxDestroy ~, FORGET
#define TRANSLATED_cuCtxDestroy_v2 ~, FORGET

#define TRANSLATED_cuMemAdvise_v2 ~, VALUE
#define TRANSLATED_cuMemPrefetchAsync_v2 ~, VALUE
#define TRANSLATED_cuMemPrefetchAsync_v2_ptsz ~, VALUE
#define TRANSLATED_cuMemGetAccess ~, LOCATION
#define TRANSLATED_cuMemGetDefaultMemPool ~, LOCATION
#define TRANSLATED_cuMemGetMemPool ~, LOCATION
#define TRANSLATED_cuMemSetMemPool ~, LOCATION
#define TRANSLATED_cuMemPoolGetAccess ~, LOCATION
#define TRANSLATED_cuMemPrefetchBatchAsync ~, LIST
#define TRANSLATED_cuMemPrefetchBatchAsync_ptsz ~, LIST
#define TRANSLATED_cuMemDiscardAndPrefetchBatchAsync ~, LIST
#define TRANSLATED_cuMemDiscardAndPrefetchBatchAsync_ptsz ~, LIST
#define TRANSLATED_cuMemGetAllocationGranularity ~, PROP
#define TRANSLATED_cuMemcpyBatchAsync ~, HINTS
#define TRANSLATED_cuMemcpyBatchAsync_ptsz ~, HINTS
#define TRANSLATED_cuMemcpyBatchAsync_v2 ~, HINTS
#define TRANSLATED_cuMemcpyBatchAsync_v2_ptsz ~, HINTS
#define TRANSLATED_cuMemcpy3DBatchAsync ~, BATCH
#define TRANSLATED_cuMemcpy3DBatchAsync_ptsz ~, BATCH
#define TRANSLATED_cuMemcpy3DBatchAsync_v2 ~, BATCH
#define TRANSLATED_cuMemcpy3DBatchAsync_v2_ptsz ~, BATCH
#define TRANSLATED_cuGraphAddNode ~, NODE
#define TRANSLATED_cuGraphAddNode_v2 ~, NODE
#define TRANSLATED_cuGraphAddNode_v3 ~, NODE
#define TRANSLATED_cuGraphNodeSetParams ~, NODE
#define TRANSLATED_cuGraphNodeSetParams_v2 ~, NODE
#define TRANSLATED_cuGraphExecNodeSetParams ~, NODE

#define TRANSLATED_cuInit ~, HAND
#define TRANSLATED_cuDeviceGet ~, HAND
#define TRANSLATED_cuDeviceGetCount ~, HAND
#define TRANSLATED_cuDeviceGetUuid ~, HAND
#define TRANSLATED_cuDeviceGetUuid_v2 ~, HAND
#define TRANSLATED_cuDeviceGetAttribute ~, HAND
#define TRANSLATED_cuDeviceGetByPCIBusId ~, HAND
#define TRANSLATED_cuDeviceGetPCIBusId ~, HAND
#define TRANSLATED_cuDeviceCanAccessPeer ~, HAND
#define TRANSLATED_cuDeviceGetP2PAttribute ~, HAND
#define TRANSLATED_cuDeviceGetP2PAtomicCapabilities ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxRetain ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxRelease ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxRelease_v2 ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxSetFlags ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxSetFlags_v2 ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxGetState ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxReset ~, HAND
#define TRANSLATED_cuDevicePrimaryCtxReset_v2 ~, HAND
#define TRANSLATED_cuCtxGetDevice ~, HAND
#define TRANSLATED_cuCtxGetDevice_v2 ~, HAND
#define TRANSLATED_cuCtxFromGreenCtx ~, HAND
#define TRANSLATED_cuGreenCtxDestroy ~, HAND
#define TRANSLATED_cuStreamGetDevice ~, HAND
#define TRANSLATED_cuStreamGetDevice_ptsz ~, HAND
#define TRANSLATED_cuMemCreate ~, HAND
#define TRANSLATED_cuMemRelease ~, HAND
#define TRANSLATED_cuMemMap ~, HAND
#define TRANSLATED_cuMemUnmap ~, HAND
#define TRANSLATED_cuMemSetAccess ~, HAND
#define TRANSLATED_cuMemGetAllocationPropertiesFromHandle ~, HAND
#define TRANSLATED_cuMemPoolCreate ~, HAND
#define TRANSLATED_cuMemPoolSetAccess ~, HAND
#define TRANSLATED_cuMemcpyWithAttributesAsync ~, HAND
#define TRANSLATED_cuMemcpyWithAttributesAsync_ptsz ~, HAND
#define TRANSLATED_cuMemcpy3DWithAttributesAsync ~, HAND
#define TRANSLATED_cuMemcpy3DWithAttributesAsync_ptsz ~, HAND
#define TRANSLATED_cuMemRangeGetAttribute ~, HAND
#define TRANSLATED_cuMemRangeGetAttributes ~, HAND
#define TRANSLATED_cuPointerGetAttribute ~, HAND
#define TRANSLATED_cuPointerGetAttributes ~, HAND
#define TRANSLATED_cuGraphAddMemAllocNode ~, HAND
#define TRANSLATED_cuGraphMemAllocNodeGetParams ~, HAND
/* clang-format on */

/* The functions that are written out. */
#define HAND_NONE(symbol, params)
#define HAND_IN(symbol, params)
#define HAND_CREATE(symbol, params)
#define HAND_FORGET(symbol, params)
#define HAND_VALUE(symbol, params)
#define HAND_LOCATION(symbol, params)
#define HAND_LIST(symbol, params)
#define HAND_PROP(symbol, params)
#define HAND_HINTS(symbol, params)
#define HAND_BATCH(symbol, params)
#define HAND_NODE(symbol, params)
#define HAND_HAND(symbol, params)         HAND_DECLARE(symbol, params)
#define HAND_DECLARE(symbol, params)      CUresult hand_##symbol params;
#define HAND_WORD(word, symbol, params)   HAND_WORD_2(word, symbol, params)
#define HAND_WORD_2(word, symbol, params) HAND_##word(symbol, params)
#define CU(base, symbol, since, flags, behaviour, detail, params, args) \
        HAND_WORD(TRANSLATED(symbol), symbol, params)
#include "cuda/cuda_api.def"
#undef CU
