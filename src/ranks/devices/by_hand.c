/* by_hand.c: owns the driver's functions whose translation is more than replacing a parameter
 * (translated.h). Must leave the program's structures as they are, unless the driver writes to
 * them. */
#include <stdio.h>
#include <string.h>

#include "ranks/devices/contexts.h"
#include "ranks/devices/places.h"
#include "ranks/devices/translated.h"

/* ---- devices ---- */

CUresult hand_cuInit(unsigned int flags)
{
        return devices_init(flags);
}

CUresult hand_cuDeviceGetCount(int *count)
{
        CUresult r = real_cuda()->cuDeviceGetCount(count);

        if (r == CUDA_SUCCESS && devices_count())
                *count = (int)devices_count();
        return r;
}

CUresult hand_cuDeviceGet(CUdevice *device, int ordinal)
{
        CUresult r = real_cuda()->cuDeviceGet(device, devices_card(ordinal));

        if (r == CUDA_SUCCESS && devices_count())
                *device = ordinal;
        return r;
}

static CUresult name(CUresult r, CUuuid *ret, CUdevice device)
{
        const struct identity *own = devices_identity(device);

        if (r == CUDA_SUCCESS && own)
                memcpy(ret->bytes, own->uuid, sizeof(ret->bytes));
        return r;
}

CUresult hand_cuDeviceGetUuid(CUuuid *ret_uuid, CUdevice device)
{
        return name(real_cuda()->cuDeviceGetUuid(ret_uuid, devices_card(device)), ret_uuid, device);
}

CUresult hand_cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device)
{
        return name(real_cuda()->cuDeviceGetUuid_v2(ret_uuid, devices_card(device)), ret_uuid,
                    device);
}

CUresult hand_cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
        const struct identity *own = devices_identity(device);
        CUresult r = real_cuda()->cuDeviceGetAttribute(ret_value, attribute, devices_card(device));

        if (r != CUDA_SUCCESS || !own)
                return r;
        if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
                *ret_value = (int)own->domain;
        else if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
                *ret_value = (int)own->bus;
        else if (attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
                *ret_value = (int)own->slot;
        return r;
}

CUresult hand_cuDeviceGetPCIBusId(char *pci_bus_id, int len, CUdevice device)
{
        const struct identity *own = devices_identity(device);
        CUresult r = real_cuda()->cuDeviceGetPCIBusId(pci_bus_id, len, devices_card(device));

        if (r == CUDA_SUCCESS && own)
                (void)snprintf(pci_bus_id, (size_t)len, "%04x:%02x:%02x.0", own->domain, own->bus,
                               own->slot);
        return r;
}

CUresult hand_cuDeviceGetByPCIBusId(CUdevice *device, const char *pci_bus_id)
{
        unsigned domain, bus, slot;

        if (!devices_count())
                return real_cuda()->cuDeviceGetByPCIBusId(device, pci_bus_id);
        if (!device || !pci_bus_id || !map_read_bus_id(pci_bus_id, &domain, &bus, &slot))
                return CUDA_ERROR_INVALID_VALUE;
        for (CUdevice d = 0; d < (CUdevice)devices_count(); d++) {
                const struct identity *own = devices_identity(d);

                if (own->domain == domain && own->bus == bus && own->slot == slot) {
                        *device = d;
                        return CUDA_SUCCESS;
                }
        }
        return CUDA_ERROR_INVALID_DEVICE;
}

/* ---- peers: two devices of one card are none ---- */

static bool are_twins(CUdevice a, CUdevice b)
{
        return a != b && devices_share(a, b);
}

CUresult hand_cuDeviceCanAccessPeer(int *can_access_peer, CUdevice device, CUdevice peer_dev)
{
        if (!are_twins(device, peer_dev) || !can_access_peer)
                return real_cuda()->cuDeviceCanAccessPeer(can_access_peer, devices_card(device),
                                                          devices_card(peer_dev));
        *can_access_peer = 0;
        return CUDA_SUCCESS;
}

CUresult hand_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice src,
                                      CUdevice dst)
{
        if (!are_twins(src, dst) || !value)
                return real_cuda()->cuDeviceGetP2PAttribute(value, attribute, devices_card(src),
                                                            devices_card(dst));
        *value = 0;
        return CUDA_SUCCESS;
}

CUresult hand_cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                               const CUatomicOperation *operations,
                                               unsigned int count, CUdevice src, CUdevice dst)
{
        if (!are_twins(src, dst) || !capabilities)
                return real_cuda()->cuDeviceGetP2PAtomicCapabilities(
                        capabilities, operations, count, devices_card(src), devices_card(dst));
        memset(capabilities, 0, count * sizeof(*capabilities));
        return CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUresult hand_cuDevicePrimaryCtxRetain(CUcontext *ret_ctx, CUdevice device)
{
        return primary_retain(ret_ctx, device);
}

CUresult hand_cuDevicePrimaryCtxRelease(CUdevice device)
{
        return primary_release(device);
}

CUresult hand_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
        return primary_release(device);
}

CUresult hand_cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
        return primary_set_flags(device, flags);
}

CUresult hand_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
        return primary_set_flags(device, flags);
}

CUresult hand_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
        return primary_get_state(device, flags, active);
}

CUresult hand_cuDevicePrimaryCtxReset(CUdevice device)
{
        return primary_reset(device);
}

CUresult hand_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
        return primary_reset(device);
}

CUresult hand_cuCtxGetDevice(CUdevice *device)
{
        CUresult r = real_cuda()->cuCtxGetDevice(device);

        if (r == CUDA_SUCCESS)
                *device = contexts_device_of_context(NULL, *device);
        return r;
}

CUresult hand_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
        CUresult r = real_cuda()->cuCtxGetDevice_v2(device, ctx);

        if (r == CUDA_SUCCESS)
                *device = contexts_device_of_context(ctx, *device);
        return r;
}

/* The context of a green context belongs to the same device. */
CUresult hand_cuCtxFromGreenCtx(CUcontext *ret_context, CUgreenCtx ctx)
{
        CUresult r = real_cuda()->cuCtxFromGreenCtx(ret_context, ctx);

        if (r == CUDA_SUCCESS)
                contexts_copy_owner(ctx, *ret_context);
        return r;
}

CUresult hand_cuGreenCtxDestroy(CUgreenCtx ctx)
{
        CUcontext own;

        if (real_cuda()->cuCtxFromGreenCtx(&own, ctx) == CUDA_SUCCESS)
                contexts_disown(own);
        contexts_disown(ctx);
        return real_cuda()->cuGreenCtxDestroy(ctx);
}

static CUresult find_device(CUresult r, CUstream stream, CUdevice *device)
{
        CUcontext ctx = NULL;

        if (r != CUDA_SUCCESS)
                return r;
        if (devices_several(*device) && real_cuda()->cuStreamGetCtx(stream, &ctx) != CUDA_SUCCESS)
                ctx = NULL;
        *device = contexts_device_of_context(ctx, *device);
        return r;
}

CUresult hand_cuStreamGetDevice(CUstream stream, CUdevice *device)
{
        return find_device(real_cuda()->cuStreamGetDevice(stream, device), stream, device);
}

CUresult hand_cuStreamGetDevice_ptsz(CUstream stream, CUdevice *device)
{
        return find_device(real_cuda()->cuStreamGetDevice_ptsz(stream, device), stream, device);
}

/* ---- memory ---- */

/* A handle in the books, where it meets the addresses of contexts, which are even. */
static const void *object_of(CUmemGenericAllocationHandle handle)
{
        return (const void *)(uintptr_t)(handle * 2 + 1);
}

/* Memory of the device belongs to it, if other memory of the card belongs to another one. */
static void own(const void *object, CUmemLocation location)
{
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && devices_identity(location.id) &&
            devices_first(location.id) != location.id && !devices_use(location.id))
                contexts_own(object, location.id);
}

CUresult hand_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                          const CUmemAllocationProp *prop, unsigned long long flags)
{
        CUmemAllocationProp of_card;
        CUresult r;

        if (!prop)
                return real_cuda()->cuMemCreate(handle, size, prop, flags);
        of_card = *prop;
        of_card.location = place_of(prop->location);
        r = real_cuda()->cuMemCreate(handle, size, &of_card, flags);
        if (r == CUDA_SUCCESS)
                own(object_of(*handle), prop->location);
        return r;
}

CUresult hand_cuMemRelease(CUmemGenericAllocationHandle handle)
{
        CUresult r = real_cuda()->cuMemRelease(handle);

        if (r == CUDA_SUCCESS)
                contexts_disown(object_of(handle));
        return r;
}

CUresult hand_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
        CUresult r = real_cuda()->cuMemMap(ptr, size, offset, handle, flags);

        if (r == CUDA_SUCCESS)
                contexts_map(object_of(handle), ptr, size);
        return r;
}

CUresult hand_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
        CUresult r = real_cuda()->cuMemUnmap(ptr, size);

        if (r == CUDA_SUCCESS)
                contexts_unmap(ptr, size);
        return r;
}

CUresult hand_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                             size_t count)
{
        PLACES places;

        return real_cuda()->cuMemSetAccess(ptr, size, places_accesses(&places, desc, count), count);
}

CUresult hand_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                     CUmemGenericAllocationHandle handle)
{
        CUresult r = real_cuda()->cuMemGetAllocationPropertiesFromHandle(prop, handle);

        if (r == CUDA_SUCCESS && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
                prop->location.id = contexts_device_of_object(object_of(handle), prop->location.id);
        return r;
}

CUresult hand_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *pool_props)
{
        CUmemPoolProps own;

        if (!pool_props)
                return real_cuda()->cuMemPoolCreate(pool, pool_props);
        own = *pool_props;
        own.location = place_of(own.location);
        return real_cuda()->cuMemPoolCreate(pool, &own);
}

CUresult hand_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
        PLACES places;

        return real_cuda()->cuMemPoolSetAccess(pool, places_accesses(&places, map, count), count);
}

CUresult hand_cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                          CUmemcpyAttributes *attr, CUstream stream)
{
        PLACES places;

        return real_cuda()->cuMemcpyWithAttributesAsync(dst, src, bytes,
                                                        places_hints(&places, attr, 1), stream);
}

CUresult hand_cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                               CUmemcpyAttributes *attr, CUstream stream)
{
        PLACES places;

        return real_cuda()->cuMemcpyWithAttributesAsync_ptsz(
                dst, src, bytes, places_hints(&places, attr, 1), stream);
}

CUresult hand_cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                            CUstream stream)
{
        PLACES places;

        return real_cuda()->cuMemcpy3DWithAttributesAsync(places_batch(&places, op, 1), flags,
                                                          stream);
}

CUresult hand_cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *op,
                                                 unsigned long long flags, CUstream stream)
{
        PLACES places;

        return real_cuda()->cuMemcpy3DWithAttributesAsync_ptsz(places_batch(&places, op, 1), flags,
                                                               stream);
}

/* ---- answers with a device in them ---- */

static void answer_range(CUmem_range_attribute attribute, void *data, size_t bytes)
{
        int *device = data;

        switch (attribute) {
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
                for (size_t i = 0; i < bytes / sizeof(*device); i++)
                        device[i] = devices_of_card(device[i]);
                break;
        default:
                break;
        }
}

CUresult hand_cuMemRangeGetAttribute(void *data, size_t data_size, CUmem_range_attribute attribute,
                                     CUdeviceptr ptr, size_t count)
{
        CUresult r = real_cuda()->cuMemRangeGetAttribute(data, data_size, attribute, ptr, count);

        if (r == CUDA_SUCCESS)
                answer_range(attribute, data, data_size);
        return r;
}

CUresult hand_cuMemRangeGetAttributes(void **data, size_t *data_sizes,
                                      CUmem_range_attribute *attributes, size_t attribute_count,
                                      CUdeviceptr ptr, size_t count)
{
        CUresult r = real_cuda()->cuMemRangeGetAttributes(data, data_sizes, attributes,
                                                          attribute_count, ptr, count);

        for (size_t i = 0; r == CUDA_SUCCESS && i < attribute_count; i++)
                answer_range(attributes[i], data[i], data_sizes[i]);
        return r;
}

static void answer_pointer(CUpointer_attribute attribute, int *data, CUdeviceptr ptr)
{
        if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL && data && *data >= 0)
                *data = contexts_device_of_address(ptr, *data);
}

CUresult hand_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
        CUresult r = real_cuda()->cuPointerGetAttribute(data, attribute, ptr);

        if (r == CUDA_SUCCESS)
                answer_pointer(attribute, data, ptr);
        return r;
}

CUresult hand_cuPointerGetAttributes(unsigned int attribute_count, CUpointer_attribute *attributes,
                                     void **data, CUdeviceptr ptr)
{
        CUresult r = real_cuda()->cuPointerGetAttributes(attribute_count, attributes, data, ptr);

        for (unsigned i = 0; r == CUDA_SUCCESS && i < attribute_count; i++)
                answer_pointer(attributes[i], data[i], ptr);
        return r;
}

/* ---- graphs ---- */

CUresult hand_cuGraphAddMemAllocNode(CUgraphNode *ret_node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t dependency_count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS *node_params)
{
        CUDA_MEM_ALLOC_NODE_PARAMS own;
        PLACES places = {NULL};
        CUresult r;

        if (!node_params)
                return real_cuda()->cuGraphAddMemAllocNode(ret_node, graph, dependencies,
                                                           dependency_count, node_params);
        own = *node_params;
        own.poolProps.location = place_of(own.poolProps.location);
        own.accessDescs = places_accesses(&places, own.accessDescs, own.accessDescCount);
        r = real_cuda()->cuGraphAddMemAllocNode(ret_node, graph, dependencies, dependency_count,
                                                &own);
        node_params->dptr = own.dptr;
        return r;
}

/* The list of accesses is the driver's own, and names cards. */
CUresult hand_cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *ret_params)
{
        CUresult r = real_cuda()->cuGraphMemAllocNodeGetParams(node, ret_params);

        if (r == CUDA_SUCCESS && ret_params->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
                ret_params->poolProps.location.id =
                        devices_of_card(ret_params->poolProps.location.id);
        return r;
}
