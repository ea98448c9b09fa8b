/* abi_dump.c: prints sizes, offsets and values of the driver's ABI, one on each line. Built twice,
 * with src/cuda/cuda_abi.h and with the toolkit's cuda.h; the outputs must be equal. */
#include <stddef.h>
#include <stdio.h>

#ifdef AGAINST_TOOLKIT
#include <cuda.h>
#else
#include "cuda/cuda_abi.h"
#endif

#define VALUE(name)      printf("%s = %lld\n", #name, (long long)(name))
#define ENUMERATOR(name) VALUE(name);
#define SIZE(type)       printf("sizeof %s = %zu\n", #type, sizeof(type))
#define OFFSET(type, field)                                                      \
        printf("%s.%s = %zu, %zu bytes\n", #type, #field, offsetof(type, field), \
               sizeof(((type *)0)->field))

int main(void)
{
        VALUE(CUDA_VERSION);
        VALUE((size_t)CU_STREAM_LEGACY);
        VALUE((size_t)CU_STREAM_PER_THREAD);
        VALUE((size_t)CU_LAUNCH_PARAM_END);
        VALUE((size_t)CU_LAUNCH_PARAM_BUFFER_POINTER);
        VALUE((size_t)CU_LAUNCH_PARAM_BUFFER_SIZE);
        VALUE(CU_GRAPH_COND_ASSIGN_DEFAULT);
        VALUE(CU_MEMHOSTALLOC_PORTABLE);
        VALUE(CU_MEMHOSTALLOC_DEVICEMAP);
        VALUE(CU_MEMHOSTALLOC_WRITECOMBINED);
        VALUE(CU_MEMHOSTREGISTER_PORTABLE);
        VALUE(CU_MEMHOSTREGISTER_DEVICEMAP);
        VALUE(CU_MEMHOSTREGISTER_IOMEMORY);
        VALUE(CU_MEMHOSTREGISTER_READ_ONLY);
        /* CMakeLists.txt extracts every enumerator of cuda_enums.h into this file. */
#include "abi_enumerators.h"

        SIZE(CUdevice);
        SIZE(CUdeviceptr);
        SIZE(CUmemGenericAllocationHandle);
        SIZE(CUtexObject);
        SIZE(CUsurfObject);
        SIZE(CUgraphConditionalHandle);
        SIZE(CUlogIterator);
        SIZE(CUresult);
        SIZE(CUdevice_attribute);
        SIZE(CUpointer_attribute);
        SIZE(CUmemAllocationHandleType);

        SIZE(CUuuid);
        OFFSET(CUuuid, bytes);

        SIZE(CUipcEventHandle);
        OFFSET(CUipcEventHandle, reserved);

        SIZE(CUipcMemHandle);
        OFFSET(CUipcMemHandle, reserved);

        SIZE(CUdevprop);
        OFFSET(CUdevprop, maxThreadsPerBlock);
        OFFSET(CUdevprop, maxThreadsDim);
        OFFSET(CUdevprop, maxGridSize);
        OFFSET(CUdevprop, sharedMemPerBlock);
        OFFSET(CUdevprop, totalConstantMemory);
        OFFSET(CUdevprop, SIMDWidth);
        OFFSET(CUdevprop, memPitch);
        OFFSET(CUdevprop, regsPerBlock);
        OFFSET(CUdevprop, clockRate);
        OFFSET(CUdevprop, textureAlign);

        SIZE(CUexecAffinitySmCount);
        OFFSET(CUexecAffinitySmCount, val);

        SIZE(CUexecAffinityParam);
        OFFSET(CUexecAffinityParam, type);
        OFFSET(CUexecAffinityParam, param);
        OFFSET(CUexecAffinityParam, param.smCount);

        SIZE(CUctxCreateParams);
        OFFSET(CUctxCreateParams, execAffinityParams);
        OFFSET(CUctxCreateParams, numExecAffinityParams);
        OFFSET(CUctxCreateParams, cigParams);

        SIZE(CUmemLocation);
        OFFSET(CUmemLocation, type);
        OFFSET(CUmemLocation, id);

        SIZE(CUmemAllocationProp);
        OFFSET(CUmemAllocationProp, type);
        OFFSET(CUmemAllocationProp, requestedHandleTypes);
        OFFSET(CUmemAllocationProp, location);
        OFFSET(CUmemAllocationProp, win32HandleMetaData);
        OFFSET(CUmemAllocationProp, allocFlags);
        OFFSET(CUmemAllocationProp, allocFlags.compressionType);
        OFFSET(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
        OFFSET(CUmemAllocationProp, allocFlags.usage);
        OFFSET(CUmemAllocationProp, allocFlags.reserved);

        SIZE(CUmemAccessDesc);
        OFFSET(CUmemAccessDesc, location);
        OFFSET(CUmemAccessDesc, flags);

        SIZE(CUmulticastObjectProp);
        OFFSET(CUmulticastObjectProp, numDevices);
        OFFSET(CUmulticastObjectProp, size);
        OFFSET(CUmulticastObjectProp, handleTypes);
        OFFSET(CUmulticastObjectProp, flags);

        SIZE(CUmemPoolProps);
        OFFSET(CUmemPoolProps, allocType);
        OFFSET(CUmemPoolProps, handleTypes);
        OFFSET(CUmemPoolProps, location);
        OFFSET(CUmemPoolProps, win32SecurityAttributes);
        OFFSET(CUmemPoolProps, maxSize);
        OFFSET(CUmemPoolProps, usage);
        OFFSET(CUmemPoolProps, reserved);

        SIZE(CUmemPoolPtrExportData);
        OFFSET(CUmemPoolPtrExportData, reserved);

        SIZE(CUDA_MEMCPY2D);
        OFFSET(CUDA_MEMCPY2D, srcXInBytes);
        OFFSET(CUDA_MEMCPY2D, srcY);
        OFFSET(CUDA_MEMCPY2D, srcMemoryType);
        OFFSET(CUDA_MEMCPY2D, srcHost);
        OFFSET(CUDA_MEMCPY2D, srcDevice);
        OFFSET(CUDA_MEMCPY2D, srcArray);
        OFFSET(CUDA_MEMCPY2D, srcPitch);
        OFFSET(CUDA_MEMCPY2D, dstXInBytes);
        OFFSET(CUDA_MEMCPY2D, dstY);
        OFFSET(CUDA_MEMCPY2D, dstMemoryType);
        OFFSET(CUDA_MEMCPY2D, dstHost);
        OFFSET(CUDA_MEMCPY2D, dstDevice);
        OFFSET(CUDA_MEMCPY2D, dstArray);
        OFFSET(CUDA_MEMCPY2D, dstPitch);
        OFFSET(CUDA_MEMCPY2D, WidthInBytes);
        OFFSET(CUDA_MEMCPY2D, Height);

        SIZE(CUDA_MEMCPY3D);
        OFFSET(CUDA_MEMCPY3D, srcXInBytes);
        OFFSET(CUDA_MEMCPY3D, srcY);
        OFFSET(CUDA_MEMCPY3D, srcZ);
        OFFSET(CUDA_MEMCPY3D, srcLOD);
        OFFSET(CUDA_MEMCPY3D, srcMemoryType);
        OFFSET(CUDA_MEMCPY3D, srcHost);
        OFFSET(CUDA_MEMCPY3D, srcDevice);
        OFFSET(CUDA_MEMCPY3D, srcArray);
        OFFSET(CUDA_MEMCPY3D, reserved0);
        OFFSET(CUDA_MEMCPY3D, srcPitch);
        OFFSET(CUDA_MEMCPY3D, srcHeight);
        OFFSET(CUDA_MEMCPY3D, dstXInBytes);
        OFFSET(CUDA_MEMCPY3D, dstY);
        OFFSET(CUDA_MEMCPY3D, dstZ);
        OFFSET(CUDA_MEMCPY3D, dstLOD);
        OFFSET(CUDA_MEMCPY3D, dstMemoryType);
        OFFSET(CUDA_MEMCPY3D, dstHost);
        OFFSET(CUDA_MEMCPY3D, dstDevice);
        OFFSET(CUDA_MEMCPY3D, dstArray);
        OFFSET(CUDA_MEMCPY3D, reserved1);
        OFFSET(CUDA_MEMCPY3D, dstPitch);
        OFFSET(CUDA_MEMCPY3D, dstHeight);
        OFFSET(CUDA_MEMCPY3D, WidthInBytes);
        OFFSET(CUDA_MEMCPY3D, Height);
        OFFSET(CUDA_MEMCPY3D, Depth);

        SIZE(CUDA_MEMCPY3D_PEER);
        OFFSET(CUDA_MEMCPY3D_PEER, srcXInBytes);
        OFFSET(CUDA_MEMCPY3D_PEER, srcY);
        OFFSET(CUDA_MEMCPY3D_PEER, srcZ);
        OFFSET(CUDA_MEMCPY3D_PEER, srcLOD);
        OFFSET(CUDA_MEMCPY3D_PEER, srcMemoryType);
        OFFSET(CUDA_MEMCPY3D_PEER, srcHost);
        OFFSET(CUDA_MEMCPY3D_PEER, srcDevice);
        OFFSET(CUDA_MEMCPY3D_PEER, srcArray);
        OFFSET(CUDA_MEMCPY3D_PEER, srcContext);
        OFFSET(CUDA_MEMCPY3D_PEER, srcPitch);
        OFFSET(CUDA_MEMCPY3D_PEER, srcHeight);
        OFFSET(CUDA_MEMCPY3D_PEER, dstXInBytes);
        OFFSET(CUDA_MEMCPY3D_PEER, dstY);
        OFFSET(CUDA_MEMCPY3D_PEER, dstZ);
        OFFSET(CUDA_MEMCPY3D_PEER, dstLOD);
        OFFSET(CUDA_MEMCPY3D_PEER, dstMemoryType);
        OFFSET(CUDA_MEMCPY3D_PEER, dstHost);
        OFFSET(CUDA_MEMCPY3D_PEER, dstDevice);
        OFFSET(CUDA_MEMCPY3D_PEER, dstArray);
        OFFSET(CUDA_MEMCPY3D_PEER, dstContext);
        OFFSET(CUDA_MEMCPY3D_PEER, dstPitch);
        OFFSET(CUDA_MEMCPY3D_PEER, dstHeight);
        OFFSET(CUDA_MEMCPY3D_PEER, WidthInBytes);
        OFFSET(CUDA_MEMCPY3D_PEER, Height);
        OFFSET(CUDA_MEMCPY3D_PEER, Depth);

        SIZE(CUmemcpyAttributes);
        OFFSET(CUmemcpyAttributes, srcAccessOrder);
        OFFSET(CUmemcpyAttributes, srcLocHint);
        OFFSET(CUmemcpyAttributes, dstLocHint);
        OFFSET(CUmemcpyAttributes, flags);

        SIZE(CUDA_ARRAY_DESCRIPTOR);
        OFFSET(CUDA_ARRAY_DESCRIPTOR, Width);
        OFFSET(CUDA_ARRAY_DESCRIPTOR, Height);
        OFFSET(CUDA_ARRAY_DESCRIPTOR, Format);
        OFFSET(CUDA_ARRAY_DESCRIPTOR, NumChannels);

        SIZE(CUDA_ARRAY3D_DESCRIPTOR);
        OFFSET(CUDA_ARRAY3D_DESCRIPTOR, Width);
        OFFSET(CUDA_ARRAY3D_DESCRIPTOR, Height);
        OFFSET(CUDA_ARRAY3D_DESCRIPTOR, Depth);
        OFFSET(CUDA_ARRAY3D_DESCRIPTOR, Format);
        OFFSET(CUDA_ARRAY3D_DESCRIPTOR, NumChannels);
        OFFSET(CUDA_ARRAY3D_DESCRIPTOR, Flags);

        SIZE(CUaccessPolicyWindow);
        OFFSET(CUaccessPolicyWindow, base_ptr);
        OFFSET(CUaccessPolicyWindow, num_bytes);
        OFFSET(CUaccessPolicyWindow, hitRatio);
        OFFSET(CUaccessPolicyWindow, hitProp);
        OFFSET(CUaccessPolicyWindow, missProp);

        SIZE(CUlaunchMemSyncDomainMap);
        OFFSET(CUlaunchMemSyncDomainMap, default_);
        OFFSET(CUlaunchMemSyncDomainMap, remote);

        SIZE(CUlaunchAttributeValue);
        OFFSET(CUlaunchAttributeValue, pad);
        OFFSET(CUlaunchAttributeValue, accessPolicyWindow);
        OFFSET(CUlaunchAttributeValue, cooperative);
        OFFSET(CUlaunchAttributeValue, syncPolicy);
        OFFSET(CUlaunchAttributeValue, clusterDim);
        OFFSET(CUlaunchAttributeValue, clusterDim.x);
        OFFSET(CUlaunchAttributeValue, clusterDim.y);
        OFFSET(CUlaunchAttributeValue, clusterDim.z);
        OFFSET(CUlaunchAttributeValue, clusterSchedulingPolicyPreference);
        OFFSET(CUlaunchAttributeValue, programmaticStreamSerializationAllowed);
        OFFSET(CUlaunchAttributeValue, programmaticEvent);
        OFFSET(CUlaunchAttributeValue, programmaticEvent.event);
        OFFSET(CUlaunchAttributeValue, programmaticEvent.flags);
        OFFSET(CUlaunchAttributeValue, programmaticEvent.triggerAtBlockStart);
        OFFSET(CUlaunchAttributeValue, launchCompletionEvent);
        OFFSET(CUlaunchAttributeValue, launchCompletionEvent.event);
        OFFSET(CUlaunchAttributeValue, launchCompletionEvent.flags);
        OFFSET(CUlaunchAttributeValue, priority);
        OFFSET(CUlaunchAttributeValue, memSyncDomainMap);
        OFFSET(CUlaunchAttributeValue, memSyncDomain);
        OFFSET(CUlaunchAttributeValue, preferredClusterDim);
        OFFSET(CUlaunchAttributeValue, preferredClusterDim.x);
        OFFSET(CUlaunchAttributeValue, preferredClusterDim.y);
        OFFSET(CUlaunchAttributeValue, preferredClusterDim.z);
        OFFSET(CUlaunchAttributeValue, deviceUpdatableKernelNode);
        OFFSET(CUlaunchAttributeValue, deviceUpdatableKernelNode.deviceUpdatable);
        OFFSET(CUlaunchAttributeValue, deviceUpdatableKernelNode.devNode);
        OFFSET(CUlaunchAttributeValue, sharedMemCarveout);
        OFFSET(CUlaunchAttributeValue, nvlinkUtilCentricScheduling);

        SIZE(CUlaunchAttribute);
        OFFSET(CUlaunchAttribute, id);
        OFFSET(CUlaunchAttribute, pad);
        OFFSET(CUlaunchAttribute, value);

        SIZE(CUlaunchConfig);
        OFFSET(CUlaunchConfig, gridDimX);
        OFFSET(CUlaunchConfig, gridDimY);
        OFFSET(CUlaunchConfig, gridDimZ);
        OFFSET(CUlaunchConfig, blockDimX);
        OFFSET(CUlaunchConfig, blockDimY);
        OFFSET(CUlaunchConfig, blockDimZ);
        OFFSET(CUlaunchConfig, sharedMemBytes);
        OFFSET(CUlaunchConfig, hStream);
        OFFSET(CUlaunchConfig, attrs);
        OFFSET(CUlaunchConfig, numAttrs);

        SIZE(CUDA_LAUNCH_PARAMS);
        OFFSET(CUDA_LAUNCH_PARAMS, function);
        OFFSET(CUDA_LAUNCH_PARAMS, gridDimX);
        OFFSET(CUDA_LAUNCH_PARAMS, gridDimY);
        OFFSET(CUDA_LAUNCH_PARAMS, gridDimZ);
        OFFSET(CUDA_LAUNCH_PARAMS, blockDimX);
        OFFSET(CUDA_LAUNCH_PARAMS, blockDimY);
        OFFSET(CUDA_LAUNCH_PARAMS, blockDimZ);
        OFFSET(CUDA_LAUNCH_PARAMS, sharedMemBytes);
        OFFSET(CUDA_LAUNCH_PARAMS, hStream);
        OFFSET(CUDA_LAUNCH_PARAMS, kernelParams);

        SIZE(CUstreamBatchMemOpParams);
        OFFSET(CUstreamBatchMemOpParams, operation);
        OFFSET(CUstreamBatchMemOpParams, waitValue);
        OFFSET(CUstreamBatchMemOpParams, waitValue.operation);
        OFFSET(CUstreamBatchMemOpParams, waitValue.address);
        OFFSET(CUstreamBatchMemOpParams, waitValue.value);
        OFFSET(CUstreamBatchMemOpParams, waitValue.value64);
        OFFSET(CUstreamBatchMemOpParams, waitValue.flags);
        OFFSET(CUstreamBatchMemOpParams, waitValue.alias);
        OFFSET(CUstreamBatchMemOpParams, writeValue);
        OFFSET(CUstreamBatchMemOpParams, writeValue.operation);
        OFFSET(CUstreamBatchMemOpParams, writeValue.address);
        OFFSET(CUstreamBatchMemOpParams, writeValue.value);
        OFFSET(CUstreamBatchMemOpParams, writeValue.value64);
        OFFSET(CUstreamBatchMemOpParams, writeValue.flags);
        OFFSET(CUstreamBatchMemOpParams, writeValue.alias);
        OFFSET(CUstreamBatchMemOpParams, flushRemoteWrites);
        OFFSET(CUstreamBatchMemOpParams, flushRemoteWrites.operation);
        OFFSET(CUstreamBatchMemOpParams, flushRemoteWrites.flags);
        OFFSET(CUstreamBatchMemOpParams, memoryBarrier);
        OFFSET(CUstreamBatchMemOpParams, memoryBarrier.operation);
        OFFSET(CUstreamBatchMemOpParams, memoryBarrier.flags);
        OFFSET(CUstreamBatchMemOpParams, pad);

        SIZE(CUDA_KERNEL_NODE_PARAMS_v1);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, func);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, gridDimX);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, gridDimY);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, gridDimZ);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, blockDimX);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, blockDimY);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, blockDimZ);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, sharedMemBytes);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, kernelParams);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v1, extra);

        SIZE(CUDA_KERNEL_NODE_PARAMS_v2);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, func);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, gridDimY);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, gridDimZ);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, blockDimY);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, blockDimZ);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, extra);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, kern);
        OFFSET(CUDA_KERNEL_NODE_PARAMS_v2, ctx);

        SIZE(CUDA_MEMSET_NODE_PARAMS);
        OFFSET(CUDA_MEMSET_NODE_PARAMS, dst);
        OFFSET(CUDA_MEMSET_NODE_PARAMS, pitch);
        OFFSET(CUDA_MEMSET_NODE_PARAMS, value);
        OFFSET(CUDA_MEMSET_NODE_PARAMS, elementSize);
        OFFSET(CUDA_MEMSET_NODE_PARAMS, width);
        OFFSET(CUDA_MEMSET_NODE_PARAMS, height);

        SIZE(CUDA_HOST_NODE_PARAMS);
        OFFSET(CUDA_HOST_NODE_PARAMS, fn);
        OFFSET(CUDA_HOST_NODE_PARAMS, userData);

        SIZE(CUDA_BATCH_MEM_OP_NODE_PARAMS);
        OFFSET(CUDA_BATCH_MEM_OP_NODE_PARAMS, ctx);
        OFFSET(CUDA_BATCH_MEM_OP_NODE_PARAMS, count);
        OFFSET(CUDA_BATCH_MEM_OP_NODE_PARAMS, paramArray);
        OFFSET(CUDA_BATCH_MEM_OP_NODE_PARAMS, flags);

        SIZE(CUDA_MEM_ALLOC_NODE_PARAMS);
        OFFSET(CUDA_MEM_ALLOC_NODE_PARAMS, poolProps);
        OFFSET(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs);
        OFFSET(CUDA_MEM_ALLOC_NODE_PARAMS, accessDescCount);
        OFFSET(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
        OFFSET(CUDA_MEM_ALLOC_NODE_PARAMS, dptr);

        SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS);
        OFFSET(CUDA_GRAPH_INSTANTIATE_PARAMS, flags);
        OFFSET(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream);
        OFFSET(CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out);
        OFFSET(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out);

        SIZE(CUgraphEdgeData);
        OFFSET(CUgraphEdgeData, from_port);
        OFFSET(CUgraphEdgeData, to_port);
        OFFSET(CUgraphEdgeData, type);
        OFFSET(CUgraphEdgeData, reserved);

        SIZE(CUgraphExecUpdateResultInfo);
        OFFSET(CUgraphExecUpdateResultInfo, result);
        OFFSET(CUgraphExecUpdateResultInfo, errorNode);
        OFFSET(CUgraphExecUpdateResultInfo, errorFromNode);
        VALUE(CU_GREEN_CTX_DEFAULT_STREAM);
        SIZE(CUdevResource);
        OFFSET(CUdevResource, type);
        OFFSET(CUdevResource, sm.smCount);
        OFFSET(CUdevResource, sm.minSmPartitionSize);
        OFFSET(CUdevResource, sm.smCoscheduledAlignment);

        VALUE(CUDA_ARRAY3D_LAYERED);
        VALUE(CUDA_ARRAY3D_SURFACE_LDST);
        VALUE(CUDA_ARRAY3D_CUBEMAP);
        VALUE(CUDA_ARRAY3D_TEXTURE_GATHER);
        VALUE(CUDA_ARRAY3D_SPARSE);
        VALUE(CUDA_ARRAY3D_DEFERRED_MAPPING);

        SIZE(CUDA_ARRAY_MEMORY_REQUIREMENTS);
        OFFSET(CUDA_ARRAY_MEMORY_REQUIREMENTS, size);
        OFFSET(CUDA_ARRAY_MEMORY_REQUIREMENTS, alignment);
        OFFSET(CUDA_ARRAY_MEMORY_REQUIREMENTS, reserved);

        SIZE(CUDA_RESOURCE_DESC);
        OFFSET(CUDA_RESOURCE_DESC, resType);
        OFFSET(CUDA_RESOURCE_DESC, res);
        OFFSET(CUDA_RESOURCE_DESC, res.array.hArray);
        OFFSET(CUDA_RESOURCE_DESC, res.mipmap.hMipmappedArray);
        OFFSET(CUDA_RESOURCE_DESC, res.linear.devPtr);
        OFFSET(CUDA_RESOURCE_DESC, res.linear.format);
        OFFSET(CUDA_RESOURCE_DESC, res.linear.numChannels);
        OFFSET(CUDA_RESOURCE_DESC, res.linear.sizeInBytes);
        OFFSET(CUDA_RESOURCE_DESC, res.pitch2D.devPtr);
        OFFSET(CUDA_RESOURCE_DESC, res.pitch2D.format);
        OFFSET(CUDA_RESOURCE_DESC, res.pitch2D.numChannels);
        OFFSET(CUDA_RESOURCE_DESC, res.pitch2D.width);
        OFFSET(CUDA_RESOURCE_DESC, res.pitch2D.height);
        OFFSET(CUDA_RESOURCE_DESC, res.pitch2D.pitchInBytes);
        OFFSET(CUDA_RESOURCE_DESC, flags);

        SIZE(CUDA_TEXTURE_DESC);
        OFFSET(CUDA_TEXTURE_DESC, addressMode);
        OFFSET(CUDA_TEXTURE_DESC, filterMode);
        OFFSET(CUDA_TEXTURE_DESC, flags);
        OFFSET(CUDA_TEXTURE_DESC, maxAnisotropy);
        OFFSET(CUDA_TEXTURE_DESC, mipmapFilterMode);
        OFFSET(CUDA_TEXTURE_DESC, mipmapLevelBias);
        OFFSET(CUDA_TEXTURE_DESC, minMipmapLevelClamp);
        OFFSET(CUDA_TEXTURE_DESC, maxMipmapLevelClamp);
        OFFSET(CUDA_TEXTURE_DESC, borderColor);
        OFFSET(CUDA_TEXTURE_DESC, reserved);

        SIZE(CUDA_RESOURCE_VIEW_DESC);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, format);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, width);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, height);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, depth);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, firstMipmapLevel);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, lastMipmapLevel);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, firstLayer);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, lastLayer);
        OFFSET(CUDA_RESOURCE_VIEW_DESC, reserved);

        SIZE(CUmemcpy3DOperand);
        OFFSET(CUmemcpy3DOperand, type);
        OFFSET(CUmemcpy3DOperand, op);
        OFFSET(CUmemcpy3DOperand, op.ptr.ptr);
        OFFSET(CUmemcpy3DOperand, op.ptr.rowLength);
        OFFSET(CUmemcpy3DOperand, op.ptr.layerHeight);
        OFFSET(CUmemcpy3DOperand, op.ptr.locHint);
        OFFSET(CUmemcpy3DOperand, op.array.array);
        OFFSET(CUmemcpy3DOperand, op.array.offset);
        OFFSET(CUmemcpy3DOperand, op.array.offset.x);
        OFFSET(CUmemcpy3DOperand, op.array.offset.y);
        OFFSET(CUmemcpy3DOperand, op.array.offset.z);

        SIZE(CUDA_MEMCPY3D_BATCH_OP);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, src);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, dst);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, extent);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, extent.width);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, extent.height);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, extent.depth);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, srcAccessOrder);
        OFFSET(CUDA_MEMCPY3D_BATCH_OP, flags);

        SIZE(CUgraphNodeParams);
        OFFSET(CUgraphNodeParams, type);
        OFFSET(CUgraphNodeParams, reserved0);
        OFFSET(CUgraphNodeParams, reserved1);
        OFFSET(CUgraphNodeParams, kernel);
        OFFSET(CUgraphNodeParams, kernel.ctx);
        OFFSET(CUgraphNodeParams, memcpy);
        OFFSET(CUgraphNodeParams, memcpy.flags);
        OFFSET(CUgraphNodeParams, memcpy.copyCtx);
        OFFSET(CUgraphNodeParams, memcpy.copyParams);
        OFFSET(CUgraphNodeParams, memset);
        OFFSET(CUgraphNodeParams, memset.dst);
        OFFSET(CUgraphNodeParams, memset.pitch);
        OFFSET(CUgraphNodeParams, memset.value);
        OFFSET(CUgraphNodeParams, memset.elementSize);
        OFFSET(CUgraphNodeParams, memset.width);
        OFFSET(CUgraphNodeParams, memset.height);
        OFFSET(CUgraphNodeParams, memset.ctx);
        OFFSET(CUgraphNodeParams, host);
        OFFSET(CUgraphNodeParams, host.fn);
        OFFSET(CUgraphNodeParams, graph.graph);
        OFFSET(CUgraphNodeParams, graph.ownership);
        OFFSET(CUgraphNodeParams, eventWait.event);
        OFFSET(CUgraphNodeParams, eventRecord.event);
        OFFSET(CUgraphNodeParams, alloc);
        OFFSET(CUgraphNodeParams, free.dptr);
        OFFSET(CUgraphNodeParams, memOp);
        OFFSET(CUgraphNodeParams, memOp.paramArray);
        OFFSET(CUgraphNodeParams, conditional);
        OFFSET(CUgraphNodeParams, conditional.type);
        OFFSET(CUgraphNodeParams, conditional.size);
        OFFSET(CUgraphNodeParams, conditional.phGraph_out);
        OFFSET(CUgraphNodeParams, conditional.ctx);
        OFFSET(CUgraphNodeParams, reserved2);
        return 0;
}
