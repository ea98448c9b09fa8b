/* copy_array.c: the copies to and from an offset in a one-dimensional array. Must never touch the
 * bytes itself (transfer.c does). */
#include "sim/memory/array.h"
#include "sim/stream/copy.h"

/* One side of a copy. */
struct place {
        CUarray array;       /* NULL: the side is memory at an address */
        CUdeviceptr address; /* address, or offset in the array */
        bool host;
};

/* Finds the address of a side. These calls reach only the first row of an array. */
static CUresult place_find(const struct place *p, size_t bytes, CUdeviceptr *ret_address)
{
        CUresult r = CUDA_SUCCESS;
        CUarray a;

        if (!p->array) {
                *ret_address = p->address;
                return CUDA_SUCCESS;
        }
        pthread_mutex_lock(&sim.lock);
        a = array_find(p->array);
        if (!a)
                r = CUDA_ERROR_INVALID_HANDLE;
        else if (p->address + bytes > a->pitch || p->address % a->element || bytes % a->element)
                r = CUDA_ERROR_INVALID_VALUE;
        else
                *ret_address = a->at + p->address;
        pthread_mutex_unlock(&sim.lock);
        return r;
}

static CUresult place_copy(const char *function, struct place to, struct place from, size_t bytes,
                           CUstream stream, enum copy_wait wait)
{
        struct work_copy w = {.width = bytes,
                              .height = 1,
                              .depth = 1,
                              .to_host = to.host,
                              .from_host = from.host};
        CUresult r = place_find(&to, bytes, &w.to);

        if (r == CUDA_SUCCESS)
                r = place_find(&from, bytes, &w.from);
        return r != CUDA_SUCCESS ? r : copy_submit(function, &w, stream, wait);
}

static struct place in_array(CUarray a, size_t at)
{
        return (struct place){.array = a, .address = at};
}

static struct place on_device(CUdeviceptr at)
{
        return (struct place){.address = at};
}

static struct place on_host(const void *at)
{
        return (struct place){.address = (uintptr_t)at, .host = true};
}

EXPORT CUresult cuMemcpyHtoA_v2(CUarray dst, size_t offset, const void *src, size_t bytes)
{
        return place_copy(__func__, in_array(dst, offset), on_host(src), bytes, NULL, COPY_SYNC);
}

EXPORT CUresult cuMemcpyAtoH_v2(void *dst, CUarray src, size_t offset, size_t bytes)
{
        return place_copy(__func__, on_host(dst), in_array(src, offset), bytes, NULL, COPY_SYNC);
}

EXPORT CUresult cuMemcpyDtoA_v2(CUarray dst, size_t offset, CUdeviceptr src, size_t bytes)
{
        return place_copy(__func__, in_array(dst, offset), on_device(src), bytes, NULL,
                          COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpyAtoD_v2(CUdeviceptr dst, CUarray src, size_t offset, size_t bytes)
{
        return place_copy(__func__, on_device(dst), in_array(src, offset), bytes, NULL,
                          COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpyAtoA_v2(CUarray dst, size_t dst_offset, CUarray src, size_t src_offset,
                                size_t bytes)
{
        return place_copy(__func__, in_array(dst, dst_offset), in_array(src, src_offset), bytes,
                          NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpyHtoAAsync_v2(CUarray dst, size_t offset, const void *src, size_t bytes,
                                     CUstream stream)
{
        return place_copy(__func__, in_array(dst, offset), on_host(src), bytes, stream, COPY_ASYNC);
}

EXPORT CUresult cuMemcpyAtoHAsync_v2(void *dst, CUarray src, size_t offset, size_t bytes,
                                     CUstream stream)
{
        return place_copy(__func__, on_host(dst), in_array(src, offset), bytes, stream, COPY_ASYNC);
}
