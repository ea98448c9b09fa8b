/* translated.h: the functions of the driver whose parameter `device` may name one of the program's
 * devices. Their prototypes are in cuda/cuda_api.def. */
#pragma once

/* Becomes IN if the table below has the symbol, else NONE. */
#define TRANSLATED(symbol)         TRANSLATED_2(TRANSLATED_##symbol, NONE, )
#define TRANSLATED_2(...)          TRANSLATED_3(__VA_ARGS__)
#define TRANSLATED_3(a, word, ...) word

/* clang-format off */
#define TRANSLATED_cuDeviceGetName ~, IN
#define TRANSLATED_cuDeviceGetUuid ~, IN
#define TRANSLATED_cuDeviceGetUuid_v2 ~, IN
#define TRANSLATED_cuDeviceGetLuid ~, IN
#define TRANSLATED_cuDeviceTotalMem_v2 ~, IN
#define TRANSLATED_cuDeviceGetAttribute ~, IN
#define TRANSLATED_cuDeviceGetProperties ~, IN
#define TRANSLATED_cuDeviceComputeCapability ~, IN
#define TRANSLATED_cuDeviceGetPCIBusId ~, IN
#define TRANSLATED_cuDeviceGetTexture1DLinearMaxWidth ~, IN
#define TRANSLATED_cuDeviceSetMemPool ~, IN
#define TRANSLATED_cuDeviceGetMemPool ~, IN
#define TRANSLATED_cuDeviceGetDefaultMemPool ~, IN
#define TRANSLATED_cuDeviceGetExecAffinitySupport ~, IN
#define TRANSLATED_cuDeviceGraphMemTrim ~, IN
#define TRANSLATED_cuDeviceGetGraphMemAttribute ~, IN
#define TRANSLATED_cuDeviceSetGraphMemAttribute ~, IN
#define TRANSLATED_cuDevicePrimaryCtxRetain ~, IN
#define TRANSLATED_cuDevicePrimaryCtxRelease ~, IN
#define TRANSLATED_cuDevicePrimaryCtxRelease_v2 ~, IN
#define TRANSLATED_cuDevicePrimaryCtxReset ~, IN
#define TRANSLATED_cuDevicePrimaryCtxReset_v2 ~, IN
#define TRANSLATED_cuDevicePrimaryCtxGetState ~, IN
#define TRANSLATED_cuDevicePrimaryCtxSetFlags ~, IN
#define TRANSLATED_cuDevicePrimaryCtxSetFlags_v2 ~, IN
#define TRANSLATED_cuCtxCreate ~, IN
#define TRANSLATED_cuCtxCreate_v2 ~, IN
#define TRANSLATED_cuCtxCreate_v3 ~, IN
#define TRANSLATED_cuCtxCreate_v4 ~, IN
#define TRANSLATED_cuDeviceGetDevResource ~, IN
#define TRANSLATED_cuGreenCtxCreate ~, IN
#define TRANSLATED_cuKernelGetAttribute ~, IN
#define TRANSLATED_cuKernelSetAttribute ~, IN
#define TRANSLATED_cuKernelSetCacheConfig ~, IN
#define TRANSLATED_cuMemAdvise ~, IN
#define TRANSLATED_cuMemPrefetchAsync ~, IN
#define TRANSLATED_cuMemPrefetchAsync_ptsz ~, IN
