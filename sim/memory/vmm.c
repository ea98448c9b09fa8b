/* vmm.c: virtual memory management: reservations, handles, mappings, access. Needs only cuInit, no
 * context. Must never wait for running work, because the driver's cuMemUnmap does not. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/session/fault.h"
#include "sim/space/mapped.h"
#include "sim/call/objects.h"
#include "sim/space/space.h"
#include "sim/space/trace.h"

/* List of all handles, which detects stale ones. A released handle stays valid while it is mapped.
 * The list needs the space lock. */
static struct physical *handles;

/* Begins a VMM call. As in the driver, it works even if the current context has failed. */
static CUresult vmm_enter(const char *function)
{
        return api_enter(function, API_ANY, NULL);
}

static bool aligned(uint64_t v)
{
        return v % SPACE_GRANULARITY == 0;
}

struct physical *handle_find(CUmemGenericAllocationHandle handle)
{
        struct physical *p = handles;

        while (p && (CUmemGenericAllocationHandle)(uintptr_t)p != handle)
                p = p->next;
        return p;
}

CUmemGenericAllocationHandle handle_add(struct physical *p)
{
        space_lock();
        p->next = handles;
        handles = p;
        space_unlock();
        return (CUmemGenericAllocationHandle)(uintptr_t)p;
}

/* Removes p from the list if `last` is set: the caller is dropping the last handle or mapping. */
static void handle_drop(struct physical *p, bool last)
{
        struct physical **q = &handles;

        if (!last)
                return;
        while (*q && *q != p)
                q = &(*q)->next;
        if (*q)
                *q = p->next;
}

static bool prop_is_host(const CUmemAllocationProp *prop)
{
        return prop->location.type == CU_MEM_LOCATION_TYPE_HOST ||
               prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* Checks the properties of host memory. Only memory on a NUMA node can be shared with other
 * processes. */
static CUresult host_check(const CUmemAllocationProp *prop)
{
        unsigned shared = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA
                                  ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                  : CU_MEM_HANDLE_TYPE_NONE;

        if ((prop->requestedHandleTypes & ~shared) || prop->allocFlags.gpuDirectRDMACapable ||
            prop->allocFlags.compressionType)
                return CUDA_ERROR_INVALID_VALUE;
        return mapped_check(&prop->location);
}

static CUresult prop_check(const CUmemAllocationProp *prop)
{
        if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
                return CUDA_ERROR_INVALID_VALUE;
        if (prop->requestedHandleTypes & (CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT))
                return CUDA_ERROR_INVALID_VALUE;
        if (prop_is_host(prop))
                return host_check(prop);
        if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
                return CUDA_ERROR_INVALID_VALUE;
        return device_check(prop->location.id);
}

/* As in the driver, the properties are not checked. */
EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                              CUmemAllocationGranularity_flags option)
{
        CUresult r = vmm_enter(__func__);

        if (r != CUDA_SUCCESS)
                return r;
        if (!granularity || !prop)
                return CUDA_ERROR_INVALID_VALUE;
        *granularity = SPACE_GRANULARITY;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *ret_ptr, size_t size, size_t alignment,
                                    CUdeviceptr addr, unsigned long long flags)
{
        CUresult r = vmm_enter(__func__);
        uint64_t at;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ptr || size == 0 || !aligned(size) || flags || (alignment & (alignment - 1)))
                return CUDA_ERROR_INVALID_VALUE;
        space_lock();
        at = space_reserve(size, alignment, addr);
        space_unlock();
        if (!at)
                return CUDA_ERROR_OUT_OF_MEMORY;
        *ret_ptr = at;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
        CUresult r = vmm_enter(__func__);
        struct range *range;
        struct span s;

        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        range = space_range_at(space_range_lower(ptr));
        if (!space_reserved(ptr, size, &s) || s.start != ptr || s.bytes != size ||
            (range && range->span.start < ptr + size))
                r = CUDA_ERROR_INVALID_VALUE;
        else
                space_release(ptr);
        space_unlock();
        return r;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
        FAULT_AFTER(__func__);
        CUresult r = vmm_enter(__func__);
        struct physical *p;

        if (r == CUDA_SUCCESS)
                r = prop_check(prop);
        if (r == CUDA_SUCCESS &&
            (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
                r = CUDA_ERROR_NOT_PERMITTED; /* the simulator has no fabric */
        if (r != CUDA_SUCCESS)
                return r;
        if (!handle || size == 0 || !aligned(size) || flags)
                return CUDA_ERROR_INVALID_VALUE;
        r = prop_is_host(prop) ? physical_new_host(size, &p)
                               : physical_new((unsigned)prop->location.id, size, &p);
        if (r != CUDA_SUCCESS)
                return r;
        p->prop = *prop;
        if (p->host) /* host memory is always on the only node */
                p->prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
        if (!p->host) {
                p->origin = PHYSICAL_CREATED;
                trace_came(p);
                session_count(&session_own(sim.session, p->device)->counters.creates, 1);
        }
        *handle = handle_add(p);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
        FAULT_AFTER(__func__);
        CUresult r = vmm_enter(__func__);
        struct physical *p;

        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        p = handle_find(handle);
        if (p && p->handles > 0) {
                handle_drop(p, p->handles == 1 && p->maps == 0);
                physical_drop(p);
        } else {
                r = CUDA_ERROR_INVALID_VALUE;
        }
        space_unlock();
        return r;
}

EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
        FAULT_AFTER(__func__);
        CUresult r = vmm_enter(__func__);
        struct physical *p;
        struct span s;

        if (r != CUDA_SUCCESS)
                return r;
        if (size == 0 || !aligned(ptr) || flags)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock();
        p = handle_find(handle);
        if (!p)
                r = CUDA_ERROR_INVALID_VALUE;
        else if (offset || size != p->bytes)
                r = CUDA_ERROR_NOT_SUPPORTED; /* only a whole handle can be mapped */
        else if (!space_reserved(ptr, size, &s))
                r = CUDA_ERROR_INVALID_VALUE;
        else if (!space_map(RANGE_VMM, ptr, size, p, offset, p->at + offset))
                r = CUDA_ERROR_INVALID_VALUE; /* a part of the addresses is already mapped */
        else
                session_count(&session_own(sim.session, p->device)->counters.maps, 1);
        space_unlock();
        return r;
}

/* Finds the mappings in [ptr, ptr + size): index of the first, and count. Fails if one of them
 * crosses a border. Needs the space lock. */
static CUresult mappings_of(CUdeviceptr ptr, size_t size, bool gaps, size_t *ret_first,
                            size_t *ret_count)
{
        size_t first = space_range_lower(ptr), n = 0;
        uint64_t at = ptr, end = ptr + size;
        struct range *range;

        for (; (range = space_range_at(first + n)) && range->span.start < end; n++) {
                if (range->kind != RANGE_VMM || range->span.start < ptr ||
                    range->span.bytes > end - range->span.start ||
                    (!gaps && range->span.start != at))
                        return CUDA_ERROR_INVALID_VALUE;
                at = range->span.start + range->span.bytes;
        }
        if (!gaps && at != end)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_first = first;
        *ret_count = n;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
        FAULT_AFTER(__func__);
        CUresult r = vmm_enter(__func__);
        size_t first = 0, n = 0;
        struct span s;

        if (r != CUDA_SUCCESS)
                return r;
        if (size == 0)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock();
        r = space_reserved(ptr, size, &s) ? mappings_of(ptr, size, true, &first, &n)
                                          : CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < n; i++) {
                struct range *range = space_range_at(first);
                struct physical *p = range->physical;

                session_count(&session_own(sim.session, p->device)->counters.unmaps, 1);
                handle_drop(p, p->handles == 0 && p->maps == 1);
                space_unmap(range);
        }
        space_unlock();
        return r;
}

static bool is_processor(const CUmemLocation *l)
{
        return l->type == CU_MEM_LOCATION_TYPE_HOST || l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static CUresult access_check(const CUmemAccessDesc *desc)
{
        if (!is_processor(&desc->location) && (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
                                               device_check(desc->location.id) != CUDA_SUCCESS))
                return CUDA_ERROR_INVALID_VALUE;
        if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                return CUDA_ERROR_INVALID_VALUE;
        return CUDA_SUCCESS;
}

/* Sets the access of one location. The processor can never access a card's memory, so only the
 * request for no access succeeds. Needs the space lock. */
static CUresult access_set(struct range *range, const CUmemAccessDesc *desc)
{
        if (!is_processor(&desc->location)) {
                range->access[desc->location.id] = (uint8_t)desc->flags;
                return CUDA_SUCCESS;
        }
        if (!range_is_mapped(range))
                return desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_NOT_SUPPORTED;
        return mapped_show(range, desc->flags) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                               size_t count)
{
        FAULT_AFTER(__func__);
        CUresult r = vmm_enter(__func__);
        size_t first = 0, n = 0;

        if (r != CUDA_SUCCESS)
                return r;
        if (size == 0 || !aligned(ptr) || !aligned(size) || !desc || count == 0)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
                r = access_check(&desc[i]);
        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        r = mappings_of(ptr, size, false, &first, &n);
        for (size_t k = 0; k < n; k++)
                for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
                        r = access_set(space_range_at(first + k), &desc[i]);
        space_unlock();
        return r;
}

/* Returns the access to host memory without a node as the driver does: the access of the processor;
 * if the processor has none, the access of the first card. */
static unsigned access_of_host(const struct range *range)
{
        return range->host_access ? range->host_access : range->access[0];
}

EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                               CUdeviceptr ptr)
{
        CUresult r = vmm_enter(__func__);
        struct range *range;

        if (r != CUDA_SUCCESS)
                return r;
        if (!flags || !location || location->type == CU_MEM_LOCATION_TYPE_INVALID)
                return CUDA_ERROR_INVALID_VALUE;
        if (!is_processor(location))
                r = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? device_check(location->id)
                                                                  : CUDA_ERROR_INVALID_DEVICE;
        if (r != CUDA_SUCCESS)
                return r;
        space_lock_shared();
        range = space_range(ptr);
        if (!range || range->kind != RANGE_VMM)
                r = CUDA_ERROR_INVALID_VALUE;
        else if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
                *flags = range->access[location->id];
        else
                *flags = location->type == CU_MEM_LOCATION_TYPE_HOST ? access_of_host(range)
                                                                     : range->host_access;
        space_unlock();
        return r;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
        CUresult r = vmm_enter(__func__);
        struct range *range;

        if (r != CUDA_SUCCESS)
                return r;
        if (!handle)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock();
        range = space_range((uintptr_t)addr);
        if (range && range->kind == RANGE_VMM) {
                range->physical->handles++;
                *handle = (CUmemGenericAllocationHandle)(uintptr_t)range->physical;
        } else {
                r = CUDA_ERROR_INVALID_VALUE;
        }
        space_unlock();
        return r;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                       CUmemGenericAllocationHandle handle)
{
        CUresult r = vmm_enter(__func__);
        struct physical *p;

        if (r != CUDA_SUCCESS)
                return r;
        if (!prop)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        p = handle_find(handle);
        if (p) {
                *prop = p->prop;
                /* The driver (580.159.04) does not return this flag. */
                prop->allocFlags.usage &= (unsigned short)~CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
        } else {
                r = CUDA_ERROR_INVALID_VALUE;
        }
        space_unlock();
        return r;
}
