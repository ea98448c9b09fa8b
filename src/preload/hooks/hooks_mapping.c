/* hooks_mapping.c: the addresses at which a program maps memory that it has created, the access to
 * them, and the answers about such addresses. The answers must never depend on whether memory is
 * evicted. */
#include "preload/hooks/hooks_virtual.h"

#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/hooks/hooks.h"
#include "cuda/cuda_pointer.h"
#include "preload/state/virtual.h"

/* ---- mapping ---- */

/* Map the resident memory of a handle where the program now wants it. The caller has taken the
 * handle, and does not hold the lock. */
static CUresult place(const struct handle *h, const struct mapping *m)
{
        CUstreamCaptureMode mode = core_relax();
        CUresult r = CUDA_SUCCESS;

        if (!h->block)
                r = real.cuMemMap(m->at.address, m->at.bytes, 0, h->unevictable, 0);
        for (unsigned i = 0; h->block && i < h->block->extent_count && r == CUDA_SUCCESS; i++) {
                const struct extent *e = &h->block->extents[i];

                if (e->state == EXTENT_RESIDENT)
                        r = real.cuMemMap(m->at.address + e->offset, e->bytes, 0, e->handle, 0);
        }
        if (r != CUDA_SUCCESS && h->block)
                (void)real.cuMemUnmap(m->at.address, m->at.bytes);
        core_unrelax(mode);
        return r;
}

static CUresult map(struct handle *h, CUdeviceptr ptr, size_t size) UNLOCKS(core_lock)
{
        struct mapping *m;
        CUresult r;

        if (!virtual_reserved(ptr, size))
                return CUDA_ERROR_INVALID_VALUE;
        m = virtual_from(ptr);
        if (m && m->at.address < ptr + size)
                return CUDA_ERROR_INVALID_VALUE;
        m = virtual_map(h, ptr, size);
        if (!m)
                return CUDA_ERROR_OUT_OF_MEMORY;
        lock_release(&core_lock);
        r = place(h, m);
        lock_acquire(&core_lock);
        if (r != CUDA_SUCCESS)
                virtual_unmap(m);
        return r;
}

/* Map a handle that the driver itself has made. The address is remembered, so that memory of ours
 * is never put there. */
static CUresult map_drivers(CUdeviceptr ptr, size_t size, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
        struct mapping *m;
        CUresult r;

        lock_acquire(&core_lock);
        m = virtual_from(ptr);
        if ((m && m->handle && m->at.address < ptr + size) || core_holds(ptr, size)) {
                lock_release(&core_lock);
                return CUDA_ERROR_INVALID_VALUE;
        }
        lock_release(&core_lock);
        r = HOOKS_RETRY(real.cuMemMap(ptr, size, offset, handle, flags));
        if (r != CUDA_SUCCESS)
                return r;
        lock_acquire(&core_lock);
        m = virtual_map(NULL, ptr, size);
        lock_release(&core_lock);
        if (m)
                return r;
        (void)real.cuMemUnmap(ptr, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
        struct handle *h;
        struct mapping *m;
        CUresult r;

        (void)core_setup();
        if (core_passive())
                return real.cuMemMap(ptr, size, offset, virtual_drivers(handle), flags);
        lock_acquire(&core_lock);
        h = virtual_find(handle);
        if (!h) {
                lock_release(&core_lock);
                return map_drivers(ptr, size, offset, virtual_drivers(handle), flags);
        }
        if (flags || size == 0 || ptr % HEAP_GRANULARITY) {
                r = CUDA_ERROR_INVALID_VALUE;
        } else if (offset || size != h->bytes) {
                r = CUDA_ERROR_NOT_SUPPORTED; /* only a whole handle can be mapped */
        } else {
                handle_take(h);
                r = map(h, ptr, size);
                handle_put(h);
                m = r == CUDA_SUCCESS ? virtual_at(ptr) : NULL;
                /* If the daemon refuses, the memory moves like other memory. */
                if (m && m->handle && handle_is_everywhere(m->handle))
                        (void)handle_make_unevictable(m->handle);
        }
        lock_release(&core_lock);
        return r;
}

/* True if the driver has memory of the handle mapped. */
static bool any_resident(const struct handle *h)
{
        if (!h->block)
                return true;
        for (unsigned i = 0; i < h->block->extent_count; i++)
                if (h->block->extents[i].state == EXTENT_RESIDENT)
                        return true;
        return false;
}

static CUresult unmap(struct mapping *m) UNLOCKS(core_lock)
{
        struct handle *h = m->handle;
        const struct span at = m->at;
        CUresult r = CUDA_SUCCESS;

        if (h)
                handle_take(h);
        /* Another thread may have unmapped the range before the handle was taken. */
        if (virtual_at(at.address) == m && m->handle == h) {
                virtual_unmap(m);
                if (!h || any_resident(h)) {
                        lock_release(&core_lock);
                        r = real.cuMemUnmap(at.address, at.bytes);
                        lock_acquire(&core_lock);
                }
        }
        if (h)
                handle_put(h);
        return r;
}

CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
        CUresult r = CUDA_SUCCESS;
        struct mapping *m;

        (void)core_setup();
        lock_acquire(&core_lock);
        if (core_passive() || !virtual_reserved(ptr, size)) {
                bool ours = core_holds(ptr, size);

                lock_release(&core_lock);
                return ours ? CUDA_ERROR_INVALID_VALUE : real.cuMemUnmap(ptr, size);
        }
        if (size == 0 || !virtual_whole(ptr, size, true))
                r = CUDA_ERROR_INVALID_VALUE;
        while (r == CUDA_SUCCESS && (m = virtual_from(ptr)) && m->at.address < ptr + size)
                r = unmap(m);
        lock_release(&core_lock);
        return r;
}

/* ---- access ---- */

/* Returns what the driver would answer. The driver may have no mapping there now, so it cannot be
 * asked. */
static CUresult access_check(const struct handle *h, const CUmemAccessDesc *desc, size_t count)
{
        int devices = 0;

        (void)real.cuDeviceGetCount(&devices);
        for (size_t i = 0; i < count; i++) {
                const CUmemLocation *l = &desc[i].location;
                int can = 1;

                if (l->type == CU_MEM_LOCATION_TYPE_HOST ||
                    l->type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
                        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
                                return CUDA_ERROR_NOT_SUPPORTED;
                        continue; /* the processor never has access: nothing to take away */
                }
                if (l->type != CU_MEM_LOCATION_TYPE_DEVICE || l->id < 0 || l->id >= devices ||
                    (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                     desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                     desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
                        return CUDA_ERROR_INVALID_VALUE;
                if (l->id != (int)h->gpu->index)
                        (void)real.cuDeviceCanAccessPeer(&can, l->id, (CUdevice)h->gpu->index);
                if (!can)
                        return CUDA_ERROR_INVALID_DEVICE;
        }
        return CUDA_SUCCESS;
}

/* Set the access to those extents that the driver has mapped. The handle is taken, the lock is not
 * held. */
static CUresult allow_now(const struct handle *h, const struct mapping *m,
                          const CUmemAccessDesc *desc, size_t count)
{
        CUresult r = CUDA_SUCCESS;

        for (unsigned i = 0, n; i < h->block->extent_count && r == CUDA_SUCCESS; i += n + 1) {
                const struct extent *e = &h->block->extents[i];
                uint64_t bytes = 0;

                for (n = 0; i + n < h->block->extent_count && e[n].state == EXTENT_RESIDENT; n++)
                        bytes += e[n].bytes;
                if (n)
                        r = real.cuMemSetAccess(m->at.address + e->offset, bytes, desc, count);
        }
        return r;
}

static CUresult allow(struct mapping *m, const CUmemAccessDesc *desc, size_t count)
        UNLOCKS(core_lock)
{
        struct handle *h = m->handle;
        const struct span at = m->at;
        CUresult r = CUDA_SUCCESS;

        if (h)
                handle_take(h);
        if (virtual_at(at.address) != m || m->handle != h) {
                r = CUDA_ERROR_INVALID_VALUE; /* another thread has unmapped the range */
        } else {
                lock_release(&core_lock);
                if (h && h->block)
                        r = access_check(h, desc, count);
                if (r == CUDA_SUCCESS)
                        r = h && h->block ? allow_now(h, m, desc, count)
                                          : HOOKS_RETRY(real.cuMemSetAccess(at.address, at.bytes,
                                                                            desc, count));
                lock_acquire(&core_lock);
                if (r == CUDA_SUCCESS && h)
                        mapping_allow(m, desc, count);
        }
        if (h)
                handle_put(h);
        return r;
}

CUresult hook_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                             size_t count)
{
        CUresult r = CUDA_SUCCESS;
        CUdeviceptr at = ptr;

        (void)core_setup();
        lock_acquire(&core_lock);
        if (core_passive() || !virtual_reserved(ptr, size)) {
                bool ours = core_holds(ptr, size);

                lock_release(&core_lock);
                return ours ? CUDA_ERROR_INVALID_VALUE
                            : HOOKS_RETRY(real.cuMemSetAccess(ptr, size, desc, count));
        }
        if (size == 0 || !desc || count == 0 || !virtual_whole(ptr, size, false))
                r = CUDA_ERROR_INVALID_VALUE;
        while (r == CUDA_SUCCESS && at < ptr + size) {
                struct mapping *m = virtual_at(at);

                if (!m) {
                        r = CUDA_ERROR_INVALID_VALUE;
                        break;
                }
                at = m->at.address + m->at.bytes;
                r = allow(m, desc, count);
        }
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                             CUdeviceptr ptr)
{
        CUresult r = CUDA_SUCCESS;
        int devices = 0;
        struct mapping *m;

        (void)core_setup();
        (void)real.cuDeviceGetCount(&devices);
        lock_acquire(&core_lock);
        m = core_passive() ? NULL : virtual_at(ptr);
        if (!m || !m->handle || !m->handle->block || !flags || !location) {
                bool ours = core_holds(ptr, 1);

                lock_release(&core_lock);
                return ours ? CUDA_ERROR_INVALID_VALUE : real.cuMemGetAccess(flags, location, ptr);
        }
        if (location->type == CU_MEM_LOCATION_TYPE_INVALID)
                r = CUDA_ERROR_INVALID_VALUE;
        else if (location->type == CU_MEM_LOCATION_TYPE_HOST)
                *flags = m->access[0]; /* the driver answers with the access of the first GPU */
        else if (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
                *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        else if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
                r = CUDA_ERROR_INVALID_DEVICE;
        else if (location->id < 0 || location->id >= MIN(devices, GPUS_MAX))
                r = CUDA_ERROR_INVALID_DEVICE;
        else
                *flags = m->access[location->id];
        lock_release(&core_lock);
        return r;
}

/* ---- questions about addresses ---- */

/* Returns our mapping at an address; the driver may not have it mapped now. */
static const struct mapping *ours_at(CUdeviceptr ptr)
{
        const struct mapping *m = core_passive() ? NULL : virtual_at(ptr);

        return m && m->handle && m->handle->block ? m : NULL;
}

/* Returns what the driver would answer for mapped memory. Attributes that are not listed are 0. */
static uint64_t mapping_attribute(CUpointer_attribute which, const struct mapping *m,
                                  CUdevice device, CUdeviceptr ptr)
{
        const struct span *reservation = virtual_reservation(ptr);
        const CUmemAllocationProp *prop = &m->handle->prop;
        const bool usable = m->access[device] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        const uint64_t values[POINTER_ATTRIBUTES] = {
                [CU_POINTER_ATTRIBUTE_CONTEXT] = 0, /* the mapping belongs to no context */
                [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = CU_MEMORYTYPE_DEVICE,
                [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = usable ? ptr : 0,
                [CU_POINTER_ATTRIBUTE_BUFFER_ID] = m->id,
                [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = m->handle->gpu->index,
                [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = reservation->address,
                [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = reservation->bytes,
                [CU_POINTER_ATTRIBUTE_MAPPED] = true,
                [CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = prop->requestedHandleTypes,
                [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] =
                        prop->allocFlags.gpuDirectRDMACapable != 0,
                [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = m->access[device],
                [CU_POINTER_ATTRIBUTE_MAPPING_SIZE] = m->at.bytes,
                [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = m->at.address,
                [CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] = m->handle->id,
                [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] =
                        (prop->allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0,
        };

        return values[which];
}

CUresult virtual_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
        const bool pointer = attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                             attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;
        const struct mapping *m = ours_at(ptr);
        CUdevice device;
        uint64_t value;

        if (!m || real.cuCtxGetDevice(&device) != CUDA_SUCCESS || device >= GPUS_MAX ||
            !pointer_attribute_exists(attribute) || attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
                return CUDA_ERROR_NOT_SUPPORTED;
        value = mapping_attribute(attribute, m, device, ptr);
        pointer_attribute_write(data, attribute, value);
        return pointer && value == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

bool virtual_range(CUdeviceptr ptr, CUdeviceptr *ret_base, size_t *ret_bytes)
{
        const struct mapping *m = ours_at(ptr);

        if (!m)
                return false;
        if (ret_base)
                *ret_base = m->at.address;
        if (ret_bytes)
                *ret_bytes = m->at.bytes;
        return true;
}
