/* bounds_calls.c: the ranges of copies and fills in two and three dimensions, of batches and of
 * nodes of graphs. A range goes from its first byte to its last one, with all gaps between rows.
 * Must never decide itself whether a range is within its allocation: bounds_hold() does. */
#include "preload/hooks/bounds.h"

#include <string.h>

#include "preload/hooks/hooks.h"

/* Sizes saturate: a range that is too large for the address space is too large for any
 * allocation. */
static size_t mul_sat(size_t a, size_t b)
{
        size_t product;

        return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

bool bounds_hold_rows(CUdeviceptr at, size_t pitch, size_t element, size_t width, size_t height)
{
        if (width == 0 || height == 0)
                return true;
        return bounds_hold(at, add_sat(mul_sat(height - 1, pitch), mul_sat(width, element)));
}

/* One side of a copy. A pitch or a height of 0 means that there are no gaps. */
struct side {
        CUmemorytype type;
        CUdeviceptr device;
        const void *host;
        size_t x, y, z, pitch, height;
};

static bool side_holds(const struct side *s, size_t width, size_t rows, size_t slices)
{
        const size_t pitch = s->pitch ? s->pitch : s->x + width;
        const size_t height = s->height ? s->height : s->y + rows;
        CUdeviceptr base;

        switch (s->type) {
        case CU_MEMORYTYPE_HOST:
                base = (uintptr_t)s->host;
                break;
        case CU_MEMORYTYPE_DEVICE:
        case CU_MEMORYTYPE_UNIFIED:
                base = s->device;
                break;
        default:
                return true; /* an array, or a type that the driver refuses */
        }
        if (width == 0 || rows == 0 || slices == 0)
                return true;
        return bounds_hold_rows(base + (s->z * height + s->y) * pitch + s->x, pitch, 1, width,
                                add_sat(mul_sat(slices - 1, height), rows));
}

bool bounds_of_3d(const CUDA_MEMCPY3D *c)
{
        return side_holds(&(struct side){.type = c->dstMemoryType,
                                         .device = c->dstDevice,
                                         .host = c->dstHost,
                                         .x = c->dstXInBytes,
                                         .y = c->dstY,
                                         .z = c->dstZ,
                                         .pitch = c->dstPitch,
                                         .height = c->dstHeight},
                          c->WidthInBytes, c->Height, c->Depth) &&
               side_holds(&(struct side){.type = c->srcMemoryType,
                                         .device = c->srcDevice,
                                         .host = c->srcHost,
                                         .x = c->srcXInBytes,
                                         .y = c->srcY,
                                         .z = c->srcZ,
                                         .pitch = c->srcPitch,
                                         .height = c->srcHeight},
                          c->WidthInBytes, c->Height, c->Depth);
}

bool bounds_of_2d(const CUDA_MEMCPY2D *c)
{
        return side_holds(&(struct side){.type = c->dstMemoryType,
                                         .device = c->dstDevice,
                                         .host = c->dstHost,
                                         .x = c->dstXInBytes,
                                         .y = c->dstY,
                                         .pitch = c->dstPitch},
                          c->WidthInBytes, c->Height, 1) &&
               side_holds(&(struct side){.type = c->srcMemoryType,
                                         .device = c->srcDevice,
                                         .host = c->srcHost,
                                         .x = c->srcXInBytes,
                                         .y = c->srcY,
                                         .pitch = c->srcPitch},
                          c->WidthInBytes, c->Height, 1);
}

bool bounds_of_peer(const CUDA_MEMCPY3D_PEER *copy)
{
        CUDA_MEMCPY3D c;

        _Static_assert(sizeof(c) == sizeof(*copy), "the contexts lie in reserved words");
        memcpy(&c, copy, sizeof(c));
        return bounds_of_3d(&c);
}

bool bounds_of_set(const CUDA_MEMSET_NODE_PARAMS *s)
{
        return bounds_hold_rows(s->dst, s->pitch, s->elementSize, s->width, s->height);
}

bool bounds_of_node(const CUgraphNodeParams *n)
{
        if (n->type == CU_GRAPH_NODE_TYPE_MEMCPY)
                return bounds_of_3d(&n->memcpy.copyParams);
        if (n->type == CU_GRAPH_NODE_TYPE_MEMSET)
                return bounds_hold_rows(n->memset.dst, n->memset.pitch, n->memset.elementSize,
                                        n->memset.width, n->memset.height);
        return true;
}

/* ---- batches ---- */

static bool batch_holds(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                        size_t count, size_t *ret_failed)
{
        for (size_t i = 0; to && from && bytes && i < count; i++)
                if (!bounds_hold(to[i], bytes[i]) || !bounds_hold(from[i], bytes[i])) {
                        *ret_failed = i;
                        return false;
                }
        return true;
}

bool bounds_batch(int zero, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                  size_t count, CUmemcpyAttributes *attributes, size_t *indices,
                  size_t attribute_count, size_t *ret_failed, CUstream stream)
{
        size_t failed;

        return batch_holds(to, from, bytes, count, ret_failed ? ret_failed : &failed);
}

bool bounds_batch_v2(int zero, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                     size_t count, ...)
{
        size_t failed;

        return batch_holds(to, from, bytes, count, &failed);
}

/* Lengths count elements of the array at the other end, if there is one. */
static bool operand_holds(const CUmemcpy3DOperand *o, const CUmemcpy3DOperand *other,
                          const struct CUextent3D_st *extent)
{
        const size_t element = other->type == CU_MEMCPY_OPERAND_TYPE_ARRAY
                                       ? hooks_array_element(other->op.array.array)
                                       : 1;

        if (o->type != CU_MEMCPY_OPERAND_TYPE_POINTER)
                return true;
        return side_holds(&(struct side){.type = CU_MEMORYTYPE_DEVICE,
                                         .device = o->op.ptr.ptr,
                                         .pitch = mul_sat(o->op.ptr.rowLength, element),
                                         .height = o->op.ptr.layerHeight},
                          mul_sat(extent->width, element), extent->height, extent->depth);
}

bool bounds_3d_batch(int zero, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t *ret_failed,
                     unsigned long long flags, CUstream stream)
{
        for (size_t i = 0; ops && i < count; i++)
                if (!operand_holds(&ops[i].dst, &ops[i].src, &ops[i].extent) ||
                    !operand_holds(&ops[i].src, &ops[i].dst, &ops[i].extent)) {
                        if (ret_failed)
                                *ret_failed = i;
                        return false;
                }
        return true;
}

bool bounds_3d_batch_v2(int zero, size_t count, const CUDA_MEMCPY3D_BATCH_OP *ops,
                        unsigned long long flags, CUstream stream)
{
        return bounds_3d_batch(zero, count, ops, NULL, flags, stream);
}

bool bounds_3d_one(int zero, const CUDA_MEMCPY3D_BATCH_OP *op, ...)
{
        return bounds_3d_batch(zero, 1, op, NULL, 0, NULL);
}
