/* pointer.c: what is known of an address. */
#include <string.h>

#include "base/macros.h"
#include "sim/space/mapped.h"
#include "sim/memory/memory.h"
#include "sim/memory/pool.h"

/* What the attributes are taken from. */
struct subject {
        struct block *block;       /* cuMemAlloc, pinned and registered host memory */
        const struct range *range; /* all of them, and VMM mappings */
        struct span span, reservation;
        CUdeviceptr ptr;
        unsigned device; /* of the current context */
};

static bool is_host(const struct subject *s)
{
        return s->range->kind == RANGE_HOST || range_is_mapped(s->range);
}

/* Locked. False: neither memory nor an address of the program's; range is NULL where an address is
 * only reserved. */
static bool subject_find(CUdeviceptr ptr, struct subject *ret)
{
        CUcontext c = context_current();

        *ret = (struct subject){.ptr = ptr, .device = c ? c->device : 0};
        ret->block = memory_block(ptr);
        ret->range = ret->block ? ret->block->range : space_range(ptr);
        if (ret->block) {
                ret->span = ret->reservation = ret->block->span;
                if (ret->block->kind == BLOCK_POOL) /* it may lie in several */
                        ret->range = space_range(ptr);
                return true;
        }
        if (ret->range && ret->range->kind != RANGE_VMM)
                return false; /* a pool's memory that nobody has allocated */
        if (ret->range)
                ret->span = ret->range->span;
        /* The attributes speak of the reservation, cuMemGetAddressRange of the mapping. */
        return space_reserved(ptr, 1, &ret->reservation);
}

/* Yes or no, in as many bytes as the driver writes. */
static CUresult say(void *data, bool yes)
{
        *(unsigned *)data = yes;
        return CUDA_SUCCESS;
}

static CUresult attribute(const struct subject *s, CUpointer_attribute which, void *data)
{
        const struct block *b = s->block;
        bool allocated = b && b->kind == BLOCK_DEVICE;

        if (!s->range) /* reserved, with nothing there */
                return CUDA_ERROR_INVALID_VALUE;
        switch (which) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
                *(CUcontext *)data = b ? b->context : NULL;
                break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                *(CUmemorytype *)data = is_host(s) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
                *(CUdeviceptr *)data = 0;
                if (!s->range->access[s->device]) /* mapped, but nobody may use it yet */
                        return CUDA_ERROR_INVALID_VALUE;
                *(CUdeviceptr *)data = s->ptr;
                break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
                *(void **)data = NULL;
                if (s->range->kind != RANGE_HOST && !s->range->managed && !s->range->host_access)
                        return CUDA_ERROR_INVALID_VALUE;
                *(void **)data = (void *)(uintptr_t)s->ptr;
                break;
        case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
                memset(data, 0, 2 * sizeof(uint64_t));
                if (is_host(s))
                        return CUDA_ERROR_INVALID_VALUE;
                if (b) /* whoever asks for them wants that, too */
                        atomic_store(&s->block->sync_memops, true);
                break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
                return say(data, s->range->managed);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
                return say(data, b && atomic_load(&s->block->sync_memops));
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
                return say(data,
                           allocated || (s->range->physical &&
                                         s->range->physical->prop.allocFlags.gpuDirectRDMACapable));
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
                return say(data, allocated || (s->range->physical &&
                                               (s->range->physical->prop.allocFlags.usage &
                                                CU_MEM_CREATE_USAGE_HW_DECOMPRESS)));
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
                return say(data, allocated);
        case CU_POINTER_ATTRIBUTE_MAPPED:
                return say(data, true);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
                *(unsigned long long *)data = b ? b->id : s->range->span.start >> 21;
                break;
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
                *(unsigned long long *)data =
                        s->range->physical ? (uintptr_t)s->range->physical : b->id;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int *)data = s->range->physical ? (int)s->range->physical->device
                                                  : (int)b->context->device;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                *(CUdeviceptr *)data = s->reservation.start;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                *(size_t *)data = s->reservation.bytes;
                break;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
                *(CUdeviceptr *)data = s->range->span.start;
                break;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
                *(size_t *)data = s->range->span.bytes;
                break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
                *(unsigned long long *)data =
                        s->range->physical ? (unsigned)s->range->physical->prop.requestedHandleTypes
                                           : 0;
                break;
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
                *(unsigned *)data = s->range->access[s->device];
                break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
                *(CUmemoryPool *)data =
                        s->block && s->block->piece ? s->block->piece->memory->pool : NULL;
                break;
        default:
                return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
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

/* What an attribute of an unknown address is: nothing, by its size. Where it is reserved, how much
 * is. */
static void attribute_none(const struct subject *s, CUpointer_attribute which, void *data)
{
        switch (which) {
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
                *(unsigned *)data = 0;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int *)data = -2; /* as the driver has it */
                break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
                *(void **)data = (void *)(uintptr_t)s->ptr;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                if (s->reservation.bytes)
                        *(CUdeviceptr *)data = s->reservation.start;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                if (s->reservation.bytes)
                        *(size_t *)data = s->reservation.bytes;
                break;
        default:
                *(uint64_t *)data = 0;
        }
}

static bool are_attributes(unsigned count, const CUpointer_attribute *which, void *const *data)
{
        for (unsigned i = 0; i < count; i++)
                if (!data[i] || which[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
                    which[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
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
                else /* where it does not apply it says so by what it leaves there */
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
                if (ret_base) /* of memory of the host the driver says only how much it is */
                        *ret_base = range_is_mapped(s.range) ? 0 : s.span.start;
                if (ret_bytes)
                        *ret_bytes = s.span.bytes;
        }
        space_unlock();
        return r;
}
