/* cuda_abi.h: the CUDA driver's binary interface, as we declare it.
 *
 * The product builds without the CUDA toolkit. So the types, layouts and numbers of the driver API
 * that we and the simulator use are declared here, under the driver's names. Types that we only
 * pass on stay incomplete structs. Nothing here may differ from the toolkit's cuda.h: where one is
 * installed, a test compares sizes, offsets and values, and the compiler compares every prototype
 * of cuda_api.def (tests/unit/cuda). 64-bit only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_enums.h"

#define CUDA_VERSION 13000

/* The flags column of cuda_api.def. PTSZ: the variant for per-thread default streams, where a NULL
 * stream means the thread's own stream. BLOCKS: no thread may make the call with core_lock held. */
#define CU_API_PTSZ        1
#define CU_API_BLOCKS      2
#define CU_API_PTSZ_BLOCKS (CU_API_PTSZ | CU_API_BLOCKS)

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef cuuint64_t CUgraphConditionalHandle;
typedef uint32_t CUlogicalEndpointId;

typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUevent_st *CUevent;
typedef struct CUstream_st *CUstream;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUgraphDeviceUpdatableNode_st *CUgraphDeviceNode;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct CUasyncCallbackEntry_st *CUasyncCallbackHandle;
typedef struct CUlogsCallbackEntry_st *CUlogsCallbackHandle;
typedef unsigned int CUlogIterator;

/* Locations of managed memory that are not a device's ordinal. */
#define CU_DEVICE_CPU     ((CUdevice)-1)
#define CU_DEVICE_INVALID ((CUdevice)-2)

#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

#define CU_MEMHOSTALLOC_PORTABLE      1
#define CU_MEMHOSTALLOC_DEVICEMAP     2
#define CU_MEMHOSTALLOC_WRITECOMBINED 4
#define CU_MEMHOSTREGISTER_PORTABLE   1
#define CU_MEMHOSTREGISTER_DEVICEMAP  2
#define CU_MEMHOSTREGISTER_IOMEMORY   4
#define CU_MEMHOSTREGISTER_READ_ONLY  8

/* The end mark of cuLaunchKernel's "extra" list, and the two keys of that list. */
#define CU_LAUNCH_PARAM_END            ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE    ((void *)2)

typedef struct CUuuid_st {
        char bytes[16];
} CUuuid;

#define CU_IPC_HANDLE_SIZE 64

typedef struct CUipcEventHandle_st {
        char reserved[CU_IPC_HANDLE_SIZE];
} CUipcEventHandle;

typedef struct CUipcMemHandle_st {
        char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;

typedef struct CUdevprop_st {
        int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
        int sharedMemPerBlock, totalConstantMemory, SIMDWidth, memPitch, regsPerBlock, clockRate;
        int textureAlign;
} CUdevprop;

typedef void (*CUhostFn)(void *userData);
typedef void *CUgraphRecaptureCallback; /* a function that we only pass on */
typedef void (*CUstreamCallback)(CUstream hStream, CUresult status, void *userData);
typedef size_t (*CUoccupancyB2DSize)(int blockSize);
typedef struct CUasyncNotificationInfo_st CUasyncNotificationInfo;
typedef void (*CUasyncCallback)(CUasyncNotificationInfo *info, void *userData,
                                CUasyncCallbackHandle callback);
typedef void (*CUlogsCallback)(void *data, CUlogLevel logLevel, char *message, size_t length);

/* ---- contexts ---- */

typedef struct CUexecAffinitySmCount_st {
        unsigned int val;
} CUexecAffinitySmCount;

typedef struct CUexecAffinityParam_st {
        CUexecAffinityType type;
        union {
                CUexecAffinitySmCount smCount;
        } param;
} CUexecAffinityParam;

/* A part of a GPU that a green context may use. */
typedef struct CUdevResource_st {
        CUdevResourceType type;
        unsigned char _internal_padding[92];
        union {
                struct CUdevSmResource_st {
                        unsigned int smCount, minSmPartitionSize, smCoscheduledAlignment;
                } sm;
                unsigned char _oversize[48];
        };
} CUdevResource;

#define CU_GREEN_CTX_DEFAULT_STREAM 0x1

typedef struct CUctxCigParam_st CUctxCigParam;

typedef struct CUctxCreateParams_st {
        CUexecAffinityParam *execAffinityParams;
        int numExecAffinityParams;
        CUctxCigParam *cigParams;
} CUctxCreateParams;

/* ---- memory: virtual memory management, pools ---- */

typedef struct CUmemLocation_st {
        CUmemLocationType type;
        int id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
        CUmemAllocationType type;
        CUmemAllocationHandleType requestedHandleTypes;
        CUmemLocation location;
        void *win32HandleMetaData;
        struct {
                unsigned char compressionType;
                unsigned char gpuDirectRDMACapable;
                unsigned short usage;
                unsigned char reserved[4];
        } allocFlags;
} CUmemAllocationProp;

#define CU_MEM_CREATE_USAGE_TILE_POOL     0x1
#define CU_MEM_CREATE_USAGE_HW_DECOMPRESS 0x2

typedef struct CUmemAccessDesc_st {
        CUmemLocation location;
        CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct CUmulticastObjectProp_st {
        unsigned int numDevices;
        size_t size;
        unsigned long long handleTypes;
        unsigned long long flags;
} CUmulticastObjectProp;

typedef struct CUmemPoolProps_st {
        CUmemAllocationType allocType;
        CUmemAllocationHandleType handleTypes;
        CUmemLocation location;
        void *win32SecurityAttributes;
        size_t maxSize;
        unsigned short usage;
        unsigned char reserved[54];
} CUmemPoolProps;

typedef struct CUmemPoolPtrExportData_st {
        unsigned char reserved[64];
} CUmemPoolPtrExportData;

/* ---- copies ---- */

typedef struct CUDA_MEMCPY2D_st {
        size_t srcXInBytes, srcY;
        CUmemorytype srcMemoryType;
        const void *srcHost;
        CUdeviceptr srcDevice;
        CUarray srcArray;
        size_t srcPitch;

        size_t dstXInBytes, dstY;
        CUmemorytype dstMemoryType;
        void *dstHost;
        CUdeviceptr dstDevice;
        CUarray dstArray;
        size_t dstPitch;

        size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct CUDA_MEMCPY3D_st {
        size_t srcXInBytes, srcY, srcZ, srcLOD;
        CUmemorytype srcMemoryType;
        const void *srcHost;
        CUdeviceptr srcDevice;
        CUarray srcArray;
        void *reserved0;
        size_t srcPitch, srcHeight;

        size_t dstXInBytes, dstY, dstZ, dstLOD;
        CUmemorytype dstMemoryType;
        void *dstHost;
        CUdeviceptr dstDevice;
        CUarray dstArray;
        void *reserved1;
        size_t dstPitch, dstHeight;

        size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

/* Has the layout of CUDA_MEMCPY3D, with contexts in place of its two reserved words. */
typedef struct CUDA_MEMCPY3D_PEER_st {
        size_t srcXInBytes, srcY, srcZ, srcLOD;
        CUmemorytype srcMemoryType;
        const void *srcHost;
        CUdeviceptr srcDevice;
        CUarray srcArray;
        CUcontext srcContext;
        size_t srcPitch, srcHeight;

        size_t dstXInBytes, dstY, dstZ, dstLOD;
        CUmemorytype dstMemoryType;
        void *dstHost;
        CUdeviceptr dstDevice;
        CUarray dstArray;
        CUcontext dstContext;
        size_t dstPitch, dstHeight;

        size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;

typedef struct CUmemcpyAttributes_st {
        CUmemcpySrcAccessOrder srcAccessOrder;
        CUmemLocation srcLocHint, dstLocHint;
        unsigned int flags;
} CUmemcpyAttributes;

typedef struct CUmemDecompressParams_st CUmemDecompressParams;

#include "cuda/cuda_arrays.h"

/* ---- launches ---- */

typedef struct CUaccessPolicyWindow_st {
        void *base_ptr;
        size_t num_bytes;
        float hitRatio;
        CUaccessProperty hitProp, missProp;
} CUaccessPolicyWindow;

typedef struct CUlaunchMemSyncDomainMap_st {
        unsigned char default_;
        unsigned char remote;
} CUlaunchMemSyncDomainMap;

typedef union CUlaunchAttributeValue_union {
        char pad[64];
        CUaccessPolicyWindow accessPolicyWindow;
        int cooperative;
        CUsynchronizationPolicy syncPolicy;
        struct {
                unsigned int x, y, z;
        } clusterDim;
        CUclusterSchedulingPolicy clusterSchedulingPolicyPreference;
        int programmaticStreamSerializationAllowed;
        struct {
                CUevent event;
                int flags;
                int triggerAtBlockStart;
        } programmaticEvent;
        struct {
                CUevent event;
                int flags;
        } launchCompletionEvent;
        int priority;
        CUlaunchMemSyncDomainMap memSyncDomainMap;
        CUlaunchMemSyncDomain memSyncDomain;
        struct {
                unsigned int x, y, z;
        } preferredClusterDim;
        struct {
                int deviceUpdatable;
                CUgraphDeviceNode devNode;
        } deviceUpdatableKernelNode;
        unsigned int sharedMemCarveout;
        unsigned int nvlinkUtilCentricScheduling;
} CUlaunchAttributeValue;

typedef struct CUlaunchAttribute_st {
        CUlaunchAttributeID id;
        char pad[8 - sizeof(CUlaunchAttributeID)];
        CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
        unsigned int gridDimX, gridDimY, gridDimZ;
        unsigned int blockDimX, blockDimY, blockDimZ;
        unsigned int sharedMemBytes;
        CUstream hStream;
        CUlaunchAttribute *attrs;
        unsigned int numAttrs;
} CUlaunchConfig;

typedef CUlaunchAttributeID CUkernelNodeAttrID;
typedef CUlaunchAttributeID CUstreamAttrID;
typedef CUlaunchAttributeValue CUkernelNodeAttrValue;
typedef CUlaunchAttributeValue CUstreamAttrValue;

typedef struct CUDA_LAUNCH_PARAMS_st {
        CUfunction function;
        unsigned int gridDimX, gridDimY, gridDimZ;
        unsigned int blockDimX, blockDimY, blockDimZ;
        unsigned int sharedMemBytes;
        CUstream hStream;
        void **kernelParams;
} CUDA_LAUNCH_PARAMS;

typedef union CUstreamBatchMemOpParams_union {
        CUstreamBatchMemOpType operation;
        struct CUstreamMemOpWaitValueParams_st {
                CUstreamBatchMemOpType operation;
                CUdeviceptr address;
                union {
                        cuuint32_t value;
                        cuuint64_t value64;
                };
                unsigned int flags;
                CUdeviceptr alias;
        } waitValue;
        struct CUstreamMemOpWriteValueParams_st {
                CUstreamBatchMemOpType operation;
                CUdeviceptr address;
                union {
                        cuuint32_t value;
                        cuuint64_t value64;
                };
                unsigned int flags;
                CUdeviceptr alias;
        } writeValue;
        struct CUstreamMemOpFlushRemoteWritesParams_st {
                CUstreamBatchMemOpType operation;
                unsigned int flags;
        } flushRemoteWrites;
        struct CUstreamMemOpMemoryBarrierParams_st {
                CUstreamBatchMemOpType operation;
                unsigned int flags;
        } memoryBarrier;
        cuuint64_t pad[6];
} CUstreamBatchMemOpParams;

/* ---- graphs ---- */

typedef struct CUDA_KERNEL_NODE_PARAMS_st {
        CUfunction func;
        unsigned int gridDimX, gridDimY, gridDimZ;
        unsigned int blockDimX, blockDimY, blockDimZ;
        unsigned int sharedMemBytes;
        void **kernelParams;
        void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;

typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
        CUfunction func;
        unsigned int gridDimX, gridDimY, gridDimZ;
        unsigned int blockDimX, blockDimY, blockDimZ;
        unsigned int sharedMemBytes;
        void **kernelParams;
        void **extra;
        CUkernel kern;
        CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS_v2;
typedef CUDA_KERNEL_NODE_PARAMS_v2 CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_MEMSET_NODE_PARAMS_st {
        CUdeviceptr dst;
        size_t pitch;
        unsigned int value;
        unsigned int elementSize;
        size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUDA_HOST_NODE_PARAMS_st {
        CUhostFn fn;
        void *userData;
} CUDA_HOST_NODE_PARAMS;

typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1_st {
        CUcontext ctx;
        unsigned int count;
        CUstreamBatchMemOpParams *paramArray;
        unsigned int flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

typedef struct CUDA_MEM_ALLOC_NODE_PARAMS_v1_st {
        CUmemPoolProps poolProps;
        const CUmemAccessDesc *accessDescs;
        size_t accessDescCount;
        size_t bytesize;
        CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

#define CU_GRAPH_COND_ASSIGN_DEFAULT 0x1

typedef struct CUDA_CONDITIONAL_NODE_PARAMS {
        CUgraphConditionalHandle handle;
        CUgraphConditionalNodeType type;
        unsigned int size;
        CUgraph *phGraph_out;
        CUcontext ctx;
} CUDA_CONDITIONAL_NODE_PARAMS;

/* A node of any type. */
typedef struct CUgraphNodeParams_st {
        CUgraphNodeType type;
        int reserved0[3];
        union {
                long long reserved1[29];
                CUDA_KERNEL_NODE_PARAMS_v2 kernel;
                struct CUDA_MEMCPY_NODE_PARAMS_st {
                        int flags, reserved;
                        CUcontext copyCtx;
                        CUDA_MEMCPY3D copyParams;
                } memcpy;
                struct CUDA_MEMSET_NODE_PARAMS_v2_st {
                        CUdeviceptr dst;
                        size_t pitch;
                        unsigned int value, elementSize;
                        size_t width, height;
                        CUcontext ctx;
                } memset;
                CUDA_HOST_NODE_PARAMS host;
                struct CUDA_CHILD_GRAPH_NODE_PARAMS_st {
                        CUgraph graph;
                        CUgraphChildGraphNodeOwnership ownership;
                } graph;
                struct CUDA_EVENT_NODE_PARAMS_st {
                        CUevent event;
                } eventWait, eventRecord;
                CUDA_MEM_ALLOC_NODE_PARAMS alloc;
                struct CUDA_MEM_FREE_NODE_PARAMS_st {
                        CUdeviceptr dptr;
                } free;
                CUDA_BATCH_MEM_OP_NODE_PARAMS memOp;
                CUDA_CONDITIONAL_NODE_PARAMS conditional;
        };
        long long reserved2;
} CUgraphNodeParams;

typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
        cuuint64_t flags;
        CUstream hUploadStream;
        CUgraphNode hErrNode_out;
        CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct CUgraphEdgeData_st {
        unsigned char from_port, to_port, type;
        unsigned char reserved[5];
} CUgraphEdgeData;

typedef struct CUgraphExecUpdateResultInfo_st {
        CUgraphExecUpdateResult result;
        CUgraphNode errorNode;
        CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;

/* ---- checkpoints of a process ---- */

typedef struct CUcheckpointLockArgs_st {
        unsigned int timeoutMs; /* 0: none */
        unsigned int reserved0;
        cuuint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct CUcheckpointCheckpointArgs_st {
        cuuint64_t reserved[8];
} CUcheckpointCheckpointArgs;

typedef struct CUcheckpointGpuPair_st {
        CUuuid oldUuid, newUuid;
} CUcheckpointGpuPair;

/* Before CUDA 13.0, all 64 bytes were reserved. */
typedef struct CUcheckpointRestoreArgs_st {
        CUcheckpointGpuPair *gpuPairs;
        unsigned int gpuPairsCount;
        char reserved[52 - sizeof(CUcheckpointGpuPair *)];
        cuuint64_t reserved1;
} CUcheckpointRestoreArgs;

typedef struct CUcheckpointUnlockArgs_st {
        cuuint64_t reserved[8];
} CUcheckpointUnlockArgs;

/* ---- only passed through ---- */

typedef struct CUDA_ARRAY_SPARSE_PROPERTIES_st CUDA_ARRAY_SPARSE_PROPERTIES;
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_st
        CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
typedef struct CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_st CUDA_EXT_SEM_SIGNAL_NODE_PARAMS;
typedef struct CUDA_EXT_SEM_WAIT_NODE_PARAMS_st CUDA_EXT_SEM_WAIT_NODE_PARAMS;
typedef struct CUarrayMapInfo_st CUarrayMapInfo;
typedef struct CUtensorMap_st CUtensorMap;
