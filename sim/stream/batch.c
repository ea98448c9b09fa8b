/* batch.c: many copies, prefetches or discards in one call. They are checked one after the other
 * and queued in the given order, which is one of the orders that the driver may choose. */
#include <string.h>

#include "sim/memory/array.h"
#include "base/macros.h"
#include "sim/stream/copy.h"

#define NO_INDEX SIZE_MAX

/* True for the legacy stream, on which batches are refused. */
static bool stream_is_legacy(CUstream stream)
{
        return stream == CU_STREAM_LEGACY || (!stream && !sim_per_thread);
}

/* Checks the indices: each is the first element to which an attribute applies. The first index is
 * 0, and each index is greater than the one before. */
static bool indices_fit(const size_t *indices, size_t indices_count, size_t count)
{
        if (!indices || indices_count == 0 || indices_count > count || indices[0] != 0)
                return false;
        for (size_t i = 1; i < indices_count; i++)
                if (indices[i] <= indices[i - 1] || indices[i] >= count)
                        return false;
        return true;
}

static CUresult batch_copy(const char *function, const CUdeviceptr *to, const CUdeviceptr *from,
                           const size_t *bytes, size_t count, const CUmemcpyAttributes *attributes,
                           const size_t *indices, size_t attributes_count, CUstream stream,
                           size_t *ret_failed)
{
        CUresult r = api_enter(function, API_CONTEXT, NULL);

        *ret_failed = NO_INDEX;
        if (r != CUDA_SUCCESS)
                return r;
        if (!to || !from || !bytes || count == 0 || !attributes ||
            !indices_fit(indices, attributes_count, count) || stream_is_legacy(stream))
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
                struct work_copy w = {.to = to[i], .from = from[i], .height = 1, .depth = 1};

                w.width = bytes[i];
                r = copy_check(&w, false);
                if (r != CUDA_SUCCESS)
                        *ret_failed = i;
        }
        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
                struct work_copy w = {.to = to[i], .from = from[i], .height = 1, .depth = 1};

                w.width = bytes[i];
                r = copy_submit(function, &w, stream, COPY_ASYNC);
        }
        return r;
}

EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                   size_t count, CUmemcpyAttributes *attrs, size_t *attr_indices,
                                   size_t attr_count, size_t *fail_idx, CUstream stream)
{
        size_t failed;
        CUresult r = batch_copy(__func__, dsts, srcs, sizes, count, attrs, attr_indices, attr_count,
                                stream, &failed);

        if (r != CUDA_SUCCESS && fail_idx)
                *fail_idx = failed;
        return r;
}

EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                      size_t count, CUmemcpyAttributes *attrs, size_t *attr_indices,
                                      size_t attr_count, CUstream stream)
{
        size_t failed;

        return batch_copy(__func__, dsts, srcs, sizes, count, attrs, attr_indices, attr_count,
                          stream, &failed);
}

EXPORT CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                            CUmemcpyAttributes *attr, CUstream stream)
{
        size_t first = 0, failed;

        return batch_copy(__func__, &dst, &src, &bytes, 1, attr, &first, 1, stream, &failed);
}

/* ---- three dimensions ---- */

/* Returns the unit of lengths: the size of an array's element, or 1 without an array. */
static size_t operand_element(const CUmemcpy3DOperand *o)
{
        size_t bytes = 1;

        if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
                CUarray a;

                pthread_mutex_lock(&sim.lock);
                a = array_find(o->op.array.array);
                if (a)
                        bytes = a->element;
                pthread_mutex_unlock(&sim.lock);
        }
        return bytes;
}

static CUresult operation_copy(const CUDA_MEMCPY3D_BATCH_OP *op, struct work_copy *ret_copy)
{
        const CUmemcpy3DOperand *s = &op->src, *t = &op->dst;
        size_t element = MAX(operand_element(s), operand_element(t));
        CUDA_MEMCPY3D d = {.WidthInBytes = op->extent.width * element,
                           .Height = op->extent.height,
                           .Depth = op->extent.depth};

        if (op->extent.width == 0 || op->extent.height == 0 || op->extent.depth == 0)
                return CUDA_ERROR_INVALID_VALUE;
        if (s->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
                d.srcMemoryType = CU_MEMORYTYPE_ARRAY;
                d.srcArray = s->op.array.array;
                d.srcXInBytes = s->op.array.offset.x * element;
                d.srcY = s->op.array.offset.y;
                d.srcZ = s->op.array.offset.z;
        } else {
                d.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
                d.srcDevice = s->op.ptr.ptr;
                d.srcPitch = s->op.ptr.rowLength * element;
                d.srcHeight = s->op.ptr.layerHeight;
        }
        if (t->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
                d.dstMemoryType = CU_MEMORYTYPE_ARRAY;
                d.dstArray = t->op.array.array;
                d.dstXInBytes = t->op.array.offset.x * element;
                d.dstY = t->op.array.offset.y;
                d.dstZ = t->op.array.offset.z;
        } else {
                d.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
                d.dstDevice = t->op.ptr.ptr;
                d.dstPitch = t->op.ptr.rowLength * element;
                d.dstHeight = t->op.ptr.layerHeight;
        }
        return copy_from_3d(&d, ret_copy);
}

static CUresult batch_3d(const char *function, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops,
                         unsigned long long flags, CUstream stream, size_t *ret_failed)
{
        CUresult r = api_enter(function, API_CONTEXT, NULL);
        struct work_copy w;

        *ret_failed = NO_INDEX;
        if (r != CUDA_SUCCESS)
                return r;
        if (count == 0 || !ops || flags || stream_is_legacy(stream))
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
                r = operation_copy(&ops[i], &w);
                if (r == CUDA_SUCCESS)
                        r = copy_check(&w, false);
                if (r != CUDA_SUCCESS)
                        *ret_failed = i;
        }
        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
                r = operation_copy(&ops[i], &w);
                if (r == CUDA_SUCCESS)
                        r = copy_submit(function, &w, stream, COPY_ASYNC);
        }
        return r;
}

EXPORT CUresult cuMemcpy3DBatchAsync(size_t op_count, CUDA_MEMCPY3D_BATCH_OP *op_list,
                                     size_t *fail_idx, unsigned long long flags, CUstream stream)
{
        size_t failed;
        CUresult r = batch_3d(__func__, op_count, op_list, flags, stream, &failed);

        if (r != CUDA_SUCCESS && fail_idx)
                *fail_idx = failed;
        return r;
}

EXPORT CUresult cuMemcpy3DBatchAsync_v2(size_t op_count, CUDA_MEMCPY3D_BATCH_OP *op_list,
                                        unsigned long long flags, CUstream stream)
{
        size_t failed;

        return batch_3d(__func__, op_count, op_list, flags, stream, &failed);
}

EXPORT CUresult cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                                              CUstream stream)
{
        size_t failed;

        return batch_3d(__func__, 1, op, flags, stream, &failed);
}

/* ---- managed memory ---- */

static CUresult batch_prefetch(CUdeviceptr *at, const size_t *bytes, size_t count,
                               const CUmemLocation *locations, const size_t *indices,
                               size_t locations_count, unsigned long long flags, CUstream stream)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!at || !bytes || count == 0 || !locations || flags ||
            !indices_fit(indices, locations_count, count))
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0, l = 0; i < count && r == CUDA_SUCCESS; i++) {
                if (l + 1 < locations_count && indices[l + 1] == i)
                        l++;
                r = cuMemPrefetchAsync_v2(at[i], bytes[i], locations[l], 0, stream);
        }
        return r;
}

EXPORT CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                        CUmemLocation *locations, size_t *location_indices,
                                        size_t location_count, unsigned long long flags,
                                        CUstream stream)
{
        return batch_prefetch(dptrs, sizes, count, locations, location_indices, location_count,
                              flags, stream);
}

/* Keeps the contents: discarded memory may have any contents. */
EXPORT CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                       unsigned long long flags, CUstream stream)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        int unused;

        if (r != CUDA_SUCCESS)
                return r;
        if (!dptrs || !sizes || count == 0 || flags)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
                r = cuMemRangeGetAttribute(&unused, sizeof(unused),
                                           CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, dptrs[i], sizes[i]);
        return r;
}

EXPORT CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                                  CUmemLocation *locations,
                                                  size_t *location_indices, size_t location_count,
                                                  unsigned long long flags, CUstream stream)
{
        return batch_prefetch(dptrs, sizes, count, locations, location_indices, location_count,
                              flags, stream);
}
