/* pointer.c: the attributes of an address. */
#include <string.h>

#include "base/macros.h"
#include "cuda/cuda_pointer.h"
#include "sim/space/mapped.h"
#include "sim/memory/memory.h"
#include "sim/memory/pool.h"

/* The memory at an address, from which the attributes are taken. */
struct subject {
        struct block *block;       /* the allocation; NULL: a VMM mapping */
        const struct range *range; /* the mapped range; NULL: the address is only reserved */
        struct span span, reservation;
        CUdeviceptr ptr;
        unsigned device; /* the device of the current context */
};

static bool is_host(const struct subject *s)
{
        return s->range->kind == RANGE_HOST || range_is_mapped(s->range);
}

/* Finds the memory or reservation at an address. Returns false if there is neither. Needs the space
 * lock. */
static bool subject_find(CUdeviceptr ptr, struct subject *ret)
{
        CUcontext c = context_current();

        *ret = (struct subject){.ptr = ptr, .device = c ? c->device : 0};
        ret->block = memory_block(ptr);
        ret->range = ret->block ? ret->block->range : space_range(ptr);
        if (ret->block) {
                ret->span = ret->reservation = ret->block->span;
                if (ret->block->kind == BLOCK_POOL) /* the block may lie in several ranges */
                        ret->range = space_range(ptr);
                return true;
        }
        if (ret->range && ret->range->kind != RANGE_VMM)
                return false; /* memory of a pool that is not allocated */
        if (ret->range)
                ret->span = ret->range->span;
        /* The attributes describe the reservation; cuMemGetAddressRange describes the mapping. */
        return space_reserved(ptr, 1, &ret->reservation);
}

static uint64_t value_of(const struct subject *s, CUpointer_attribute which)
{
        static const CUmemAllocationProp none;
        const struct block *b = s->block;
        const struct range *m = s->range;
        const CUmemAllocationProp *prop = m->physical ? &m->physical->prop : &none;
        const uint64_t owner = b && b->context ? b->context->device : 0, number = b ? b->id : 0;
        const bool allocated = b && b->kind == BLOCK_DEVICE;
        const uint64_t values[POINTER_ATTRIBUTES] = {
                [CU_POINTER_ATTRIBUTE_CONTEXT] = b ? (uintptr_t)b->context : 0,
                [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] =
                        is_host(s) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = s->ptr,
                [CU_POINTER_ATTRIBUTE_HOST_POINTER] = s->ptr,
                [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = b && atomic_load(&s->block->sync_memops),
                [CU_POINTER_ATTRIBUTE_BUFFER_ID] = b ? number : m->span.start >> 21,
                [CU_POINTER_ATTRIBUTE_IS_MANAGED] = m->managed != NULL,
                [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = m->physical ? m->physical->device : owner,
                [CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE] = allocated,
                [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = s->reservation.start,
                [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = s->reservation.bytes,
                [CU_POINTER_ATTRIBUTE_MAPPED] = true,
                [CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES] = (unsigned)prop->requestedHandleTypes,
                [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] =
                        allocated || prop->allocFlags.gpuDirectRDMACapable,
                [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = m->access[s->device],
                [CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] =
                        b && b->piece ? (uintptr_t)b->piece->memory->pool : 0,
                [CU_POINTER_ATTRIBUTE_MAPPING_SIZE] = m->span.bytes,
                [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = m->span.start,
                [CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] =
                        m->physical ? (uintptr_t)m->physical : number,
                [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] =
                        allocated || (prop->allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS),
        };

        return values[which];
}

/* True if an attribute applies to the memory. Otherwise the answer is 0 and an error. */
static bool applies(const struct subject *s, CUpointer_attribute which)
{
        const struct range *m = s->range;

        switch (which) {
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
                return m->access[s->device]; /* mapped memory may have no access rights yet */
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
                return m->kind == RANGE_HOST || m->managed || m->host_access;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
                return !is_host(s);
        default:
                return true;
        }
}

static CUresult attribute(const struct subject *s, CUpointer_attribute which, void *data)
{
        bool good;

        if (!s->range || !pointer_attribute_exists(which)) /* no range: only reserved addresses */
                return CUDA_ERROR_INVALID_VALUE;
        good = applies(s, which);
        if (which != CU_POINTER_ATTRIBUTE_P2P_TOKENS)
                pointer_attribute_write(data, which, good ? value_of(s, which) : 0);
        else
                memset(data, 0, 2 * sizeof(uint64_t));
        /* As in the driver, reading the tokens sets this attribute. */
        if (good && which == CU_POINTER_ATTRIBUTE_P2P_TOKENS && s->block)
                atomic_store(&s->block->sync_memops, true);
        return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
        struct subject s;
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!data)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        r = subject_find(ptr, &s) ? attribute(&s, which, data) : CUDA_ERROR_INVALID_VALUE;
        space_unlock();
        return r;
}

/* Writes the attribute of an address without memory: a zero of the attribute's size, except for the
 * attributes below. */
static void attribute_none(const struct subject *s, CUpointer_attribute which, void *data)
{
        const uint64_t values[POINTER_ATTRIBUTES] = {
                [CU_POINTER_ATTRIBUTE_HOST_POINTER] = s->ptr,
                [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = (uint64_t)-2, /* the driver's value */
                [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = s->reservation.start,
                [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = s->reservation.bytes,
        };
        bool of_range = which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
                        which == CU_POINTER_ATTRIBUTE_RANGE_SIZE;

        if (!of_range || s->reservation.bytes)
                pointer_attribute_write(data, which, values[which]);
}

static bool are_attributes(unsigned count, const CUpointer_attribute *which, void *const *data)
{
        for (unsigned i = 0; i < count; i++)
                if (!data[i] || !pointer_attribute_exists(which[i]))
                        return false;
        return count > 0;
}

EXPORT CUresult cuPointerGetAttributes(unsigned int attribute_count,
                                       CUpointer_attribute *attributes, void **data,
                                       CUdeviceptr ptr)
{
        struct subject s;
        bool found;
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!attributes || !data || !are_attributes(attribute_count, attributes, data))
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        found = subject_find(ptr, &s);
        for (unsigned i = 0; i < attribute_count; i++) {
                if (!found || !s.range)
                        attribute_none(&s, attributes[i], data[i]);
                else /* the written value alone shows that an attribute does not apply */
                        (void)attribute(&s, attributes[i], data[i]);
        }
        space_unlock();
        return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which, CUdeviceptr ptr)
{
        struct subject s;
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!value || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        if (!subject_find(ptr, &s) || !s.range)
                r = CUDA_ERROR_INVALID_VALUE;
        else if (!s.block)
                r = CUDA_ERROR_NOT_SUPPORTED;
        else
                atomic_store(&s.block->sync_memops, *(const unsigned *)value != 0);
        space_unlock();
        return r;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr ptr)
{
        struct subject s;
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        space_lock_shared();
        if (!subject_find(ptr, &s) || !s.range) {
                r = CUDA_ERROR_NOT_FOUND;
        } else {
                if (ret_base) /* for mapped host memory the driver returns only the size */
                        *ret_base = range_is_mapped(s.range) ? 0 : s.span.start;
                if (ret_bytes)
                        *ret_bytes = s.span.bytes;
        }
        space_unlock();
        return r;
}
