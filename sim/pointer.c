/* pointer.c: what is known of an address. */
#include <string.h>

#include "base/macros.h"
#include "memory.h"

/* What the attributes are taken from. */
struct subject {
        const struct block *block; /* cuMemAlloc, pinned and registered host memory */
        const struct range *range; /* all of them, and VMM mappings */
        struct span span, reservation;
        CUdeviceptr ptr;
        unsigned device; /* of the current context */
};

static bool is_host(const struct subject *s)
{
        return s->range->kind == RANGE_HOST;
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
                return true;
        }
        if (ret->range && ret->range->kind != RANGE_VMM)
                return false; /* a pool's memory that nobody has allocated */
        if (ret->range)
                ret->span = ret->range->span;
        /* The attributes speak of the reservation, cuMemGetAddressRange of the mapping. */
        return space_reserved(ptr, 1, &ret->reservation);
}

static CUresult attribute(const struct subject *s, CUpointer_attribute which, void *data)
{
        if (!s->range)
                return CUDA_ERROR_INVALID_VALUE;
        switch (which) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                *(CUdeviceptr *)data = s->reservation.start;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                *(size_t *)data = s->reservation.bytes;
                break;
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
                *(CUdeviceptr *)data = s->span.start;
                break;
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
                *(size_t *)data = s->span.bytes;
                break;
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
                *(unsigned long long *)data =
                        s->range->physical ? (uintptr_t)s->range->physical : s->block->id;
                break;
        case CU_POINTER_ATTRIBUTE_CONTEXT:
                *(CUcontext *)data = s->block ? s->block->context : NULL;
                break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                *(CUmemorytype *)data = is_host(s) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
                if (!s->range->access[s->device]) /* mapped, but nobody may use it yet */
                        return CUDA_ERROR_INVALID_VALUE;
                *(CUdeviceptr *)data = s->ptr;
                break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
                if (!is_host(s) && !s->range->managed)
                        return CUDA_ERROR_INVALID_VALUE;
                *(void **)data = (void *)(uintptr_t)s->ptr;
                break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
                *(bool *)data = s->range->managed != NULL;
                break;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
                *(bool *)data = false;
                break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
                *(bool *)data = s->block && s->block->kind == BLOCK_DEVICE;
                break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
                *(unsigned long long *)data = s->block ? s->block->id : s->range->span.start >> 21;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int *)data = s->range->physical ? (int)s->range->physical->device
                                                  : (int)s->block->context->device;
                break;
        case CU_POINTER_ATTRIBUTE_MAPPED:
                *(bool *)data = true;
                break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
                *(unsigned long long *)data =
                        s->range->physical ? (unsigned)s->range->physical->prop.requestedHandleTypes
                                           : 0;
                break;
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
                *(CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS *)data =
                        s->range->kind == RANGE_VMM ? s->range->access[s->device]
                                                    : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
                break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
                *(CUmemoryPool *)data = NULL;
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

/* What an attribute of an unknown address is: nothing, by its size; of one that is reserved at
 * least that. */
static void attribute_none(const struct subject *s, CUpointer_attribute which, void *data)
{
        switch (which) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
                *(CUdeviceptr *)data = s ? s->reservation.start : 0;
                break;
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
                *(size_t *)data = s ? s->reservation.bytes : 0;
                break;
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
                *(bool *)data = false;
                break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                *(unsigned *)data = 0;
                break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
                *(int *)data = -2; /* as the driver has it */
                break;
        default:
                *(uint64_t *)data = 0;
        }
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
        if (!attributes || !data)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        found = subject_find(ptr, &s);
        for (unsigned i = 0; i < attribute_count; i++)
                if (data[i] && (!found || attribute(&s, attributes[i], data[i]) != CUDA_SUCCESS))
                        attribute_none(found ? &s : NULL, attributes[i], data[i]);
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
        r = !subject_find(ptr, &s)                              ? CUDA_ERROR_INVALID_VALUE
            : s.range && !s.block && s.range->kind == RANGE_VMM ? CUDA_ERROR_NOT_SUPPORTED
                                                                : CUDA_SUCCESS;
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
                if (ret_base)
                        *ret_base = s.span.start;
                if (ret_bytes)
                        *ret_bytes = s.span.bytes;
        }
        space_unlock();
        return r;
}
