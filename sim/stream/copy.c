/* copy.c: the entry points that copy. Turns each of their many forms into work, and decides whether
 * the caller waits. Must never touch the bytes itself (transfer.c does). */
#include "sim/stream/copy.h"

#include <stdlib.h>
#include <string.h>

#include "sim/memory/array.h"
#include "base/macros.h"
#include "sim/session/fault.h"
#include "sim/memory/memory.h"
#include "sim/space/space.h"
#include "sim/queue/stream.h"

#define STAGED_MOST (64 * KIB) /* a pageable source up to this size is copied at the call */

static bool is_known(CUdeviceptr address)
{
        bool found;

        space_lock_shared();
        found = space_range(address) != NULL;
        space_unlock();
        return found;
}

static bool is_pageable(CUdeviceptr address)
{
        return !space_is_device(address) && !is_known(address);
}

/* The driver reads an unknown address with the processor (measured). This read faults if the
 * address is in the region of device addresses. */
static void take_for_host(CUdeviceptr address)
{
        if (space_is_device(address) && !is_known(address))
                (void)*(volatile char *)(uintptr_t)address;
}

static uint64_t mul_sat(uint64_t a, uint64_t b)
{
        uint64_t product;

        return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t copy_span(uint64_t width, uint64_t pitch, uint64_t height, uint64_t slice, uint64_t depth)
{
        return add_sat(add_sat(mul_sat(depth - 1, slice), mul_sat(height - 1, pitch)), width);
}

CUresult copy_check(const struct work_copy *w, bool graph)
{
        uint64_t to, from;

        if (w->width == 0 || w->height == 0 || w->depth == 0)
                return CUDA_SUCCESS;
        to = copy_span(w->width, w->to_pitch, w->height, w->to_slice, w->depth);
        from = copy_span(w->width, w->from_pitch, w->height, w->from_slice, w->depth);
        return memory_usable(w->to, to, true, graph) && memory_usable(w->from, from, false, graph)
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_submit(const char *function, const struct work_copy *copy, CUstream stream,
                     enum copy_wait wait)
{
        FAULT_AFTER(function);
        struct work w = {.kind = WORK_COPY, .copy = *copy};
        bool capturing, pageable_source, pageable_target;
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r != CUDA_SUCCESS || copy->width == 0 || copy->height == 0 || copy->depth == 0)
                return r;
        pthread_mutex_lock(&sim.lock);
        capturing = stream->capture != NULL;
        pthread_mutex_unlock(&sim.lock);
        /* The driver checks a copy before it queues it, even while the stream captures. */
        if (copy->unified) {
                take_for_host(copy->from);
                take_for_host(copy->to);
        }
        r = copy_check(copy, capturing);
        if (r != CUDA_SUCCESS)
                return r;
        pageable_source = is_pageable(copy->from);
        pageable_target = is_pageable(copy->to);
        if (capturing)
                return stream_submit(stream, &w, NULL, 0);

        /* As in the driver, when a call with pageable memory returns, the program may change a
         * pageable source, and a pageable target has all its bytes. */
        if (wait == COPY_ASYNC && pageable_source && !pageable_target && copy->height == 1 &&
            copy->depth == 1 && copy->width <= STAGED_MOST) {
                w.copy.staged = malloc(copy->width);
                if (!w.copy.staged)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                memcpy(w.copy.staged, (void *)(uintptr_t)copy->from, copy->width);
        } else if (wait == COPY_ASYNC && (pageable_source || pageable_target)) {
                wait = COPY_SYNC;
        }
        if (wait == COPY_SYNC_DEVICE && !(space_is_device(copy->to) && space_is_device(copy->from)))
                wait = COPY_SYNC;

        if (wait != COPY_SYNC)
                return stream_submit(stream, &w, NULL, 0);
        pthread_mutex_lock(&sim.lock);
        r = stream_submit_free(stream, &w, true);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

static struct work_copy linear(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
        return (struct work_copy){.to = to, .from = from, .width = bytes, .height = 1, .depth = 1};
}

EXPORT CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
        struct work_copy w = linear(dst, src, bytes);

        w.unified = true;
        return copy_submit(__func__, &w, NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
        struct work_copy w = linear(dst, src, bytes);

        w.unified = true;
        return copy_submit(__func__, &w, stream, COPY_ASYNC);
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
        struct work_copy w = linear(dst, (uintptr_t)src, bytes);

        w.from_host = true;
        return copy_submit(__func__, &w, NULL, COPY_SYNC);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
        struct work_copy w = linear((uintptr_t)dst, src, bytes);

        w.to_host = true;
        return copy_submit(__func__, &w, NULL, COPY_SYNC);
}

EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
        struct work_copy w = linear(dst, src, bytes);

        return copy_submit(__func__, &w, NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes,
                                     CUstream stream)
{
        struct work_copy w = linear(dst, (uintptr_t)src, bytes);

        w.from_host = true;
        return copy_submit(__func__, &w, stream, COPY_ASYNC);
}

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
        struct work_copy w = linear((uintptr_t)dst, src, bytes);

        w.to_host = true;
        return copy_submit(__func__, &w, stream, COPY_ASYNC);
}

EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                     CUstream stream)
{
        struct work_copy w = linear(dst, src, bytes);

        return copy_submit(__func__, &w, stream, COPY_ASYNC);
}

EXPORT CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                             CUcontext src_context, size_t bytes)
{
        struct work_copy w = linear(dst, src, bytes);

        return copy_submit(__func__, &w, NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                  CUcontext src_context, size_t bytes, CUstream stream)
{
        struct work_copy w = linear(dst, src, bytes);

        return copy_submit(__func__, &w, stream, COPY_ASYNC);
}

/* ---- two and three dimensions ---- */

/* One side of a copy: its start, and the distances of its rows and slices. */
struct side {
        CUdeviceptr at;
        size_t pitch, slice;
};

static CUresult array_side(const CUDA_MEMCPY3D *d, CUarray array, size_t x, size_t y, size_t z,
                           struct side *ret_side)
{
        CUresult r = CUDA_SUCCESS;
        CUarray a;

        pthread_mutex_lock(&sim.lock);
        a = array_find(array);
        if (!a)
                r = CUDA_ERROR_INVALID_HANDLE;
        else if (x + d->WidthInBytes > a->pitch || y + d->Height > a->rows ||
                 z + d->Depth > a->slices || x % a->element || d->WidthInBytes % a->element)
                r = CUDA_ERROR_INVALID_VALUE;
        else
                *ret_side = (struct side){a->at + (z * a->rows + y) * a->pitch + x, a->pitch,
                                          a->pitch * a->rows};
        pthread_mutex_unlock(&sim.lock);
        return r;
}

static CUresult linear_side(const CUDA_MEMCPY3D *d, CUdeviceptr base, size_t pitch, size_t height,
                            size_t x, size_t y, size_t z, struct side *ret_side)
{
        pitch = pitch ? pitch : d->WidthInBytes + x;
        height = height ? height : d->Height + y;
        if ((d->Height > 1 || d->Depth > 1) && pitch < d->WidthInBytes + x)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_side = (struct side){base + (z * height + y) * pitch + x, pitch, pitch * height};
        return CUDA_SUCCESS;
}

static CUresult side(const CUDA_MEMCPY3D *d, bool from, struct side *ret_side)
{
        size_t x = from ? d->srcXInBytes : d->dstXInBytes, y = from ? d->srcY : d->dstY;
        size_t z = from ? d->srcZ : d->dstZ, pitch = from ? d->srcPitch : d->dstPitch;
        size_t height = from ? d->srcHeight : d->dstHeight;

        switch (from ? d->srcMemoryType : d->dstMemoryType) {
        case CU_MEMORYTYPE_HOST:
                return linear_side(d, (uintptr_t)(from ? d->srcHost : d->dstHost), pitch, height, x,
                                   y, z, ret_side);
        case CU_MEMORYTYPE_DEVICE:
        case CU_MEMORYTYPE_UNIFIED:
                return linear_side(d, from ? d->srcDevice : d->dstDevice, pitch, height, x, y, z,
                                   ret_side);
        case CU_MEMORYTYPE_ARRAY:
                return array_side(d, from ? d->srcArray : d->dstArray, x, y, z, ret_side);
        default:
                return CUDA_ERROR_INVALID_VALUE;
        }
}

CUresult copy_from_3d(const CUDA_MEMCPY3D *d, struct work_copy *ret_copy)
{
        struct side from, to;
        struct work_copy w;
        CUresult r = side(d, true, &from);

        if (r == CUDA_SUCCESS)
                r = side(d, false, &to);
        if (r != CUDA_SUCCESS)
                return r;
        w = (struct work_copy){.to = to.at,
                               .from = from.at,
                               .width = d->WidthInBytes,
                               .height = d->Height,
                               .depth = d->Depth,
                               .to_host = d->dstMemoryType == CU_MEMORYTYPE_HOST,
                               .from_host = d->srcMemoryType == CU_MEMORYTYPE_HOST,
                               .from_pitch = from.pitch,
                               .to_pitch = to.pitch,
                               .from_slice = from.slice,
                               .to_slice = to.slice};
        /* Rows without gaps are copied as one row. */
        if (w.depth == 1 && w.from_pitch == w.width && w.to_pitch == w.width) {
                w.width *= w.height;
                w.height = 1;
        }
        *ret_copy = w;
        return CUDA_SUCCESS;
}

void copy_to_3d(const struct work_copy *w, CUDA_MEMCPY3D *ret_descriptor)
{
        *ret_descriptor = (CUDA_MEMCPY3D){
                .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                .srcDevice = w->from,
                .srcPitch = w->from_pitch,
                .srcHeight = w->from_pitch ? w->from_slice / w->from_pitch : 0,
                .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                .dstDevice = w->to,
                .dstPitch = w->to_pitch,
                .dstHeight = w->to_pitch ? w->to_slice / w->to_pitch : 0,
                .WidthInBytes = w->width,
                .Height = w->height,
                .Depth = w->depth,
        };
}

static CUresult copy_3d(const char *function, const CUDA_MEMCPY3D *d, CUstream stream,
                        enum copy_wait wait)
{
        struct work_copy w;
        CUresult r;

        if (!d)
                return CUDA_ERROR_INVALID_VALUE;
        r = copy_from_3d(d, &w);
        return r != CUDA_SUCCESS ? r : copy_submit(function, &w, stream, wait);
}

static CUresult copy_2d(const char *function, const CUDA_MEMCPY2D *d, CUstream stream,
                        enum copy_wait wait)
{
        CUDA_MEMCPY3D c;

        if (!d)
                return CUDA_ERROR_INVALID_VALUE;
        c = (CUDA_MEMCPY3D){
                .srcXInBytes = d->srcXInBytes,
                .srcY = d->srcY,
                .srcMemoryType = d->srcMemoryType,
                .srcHost = d->srcHost,
                .srcDevice = d->srcDevice,
                .srcArray = d->srcArray,
                .srcPitch = d->srcPitch,
                .dstXInBytes = d->dstXInBytes,
                .dstY = d->dstY,
                .dstMemoryType = d->dstMemoryType,
                .dstHost = d->dstHost,
                .dstDevice = d->dstDevice,
                .dstArray = d->dstArray,
                .dstPitch = d->dstPitch,
                .WidthInBytes = d->WidthInBytes,
                .Height = d->Height,
                .Depth = 1,
        };
        return copy_3d(function, &c, stream, wait);
}

EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
        return copy_2d(__func__, copy, NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
        return copy_2d(__func__, copy, NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
        return copy_2d(__func__, copy, stream, COPY_ASYNC);
}

EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
        return copy_3d(__func__, copy, NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
        return copy_3d(__func__, copy, stream, COPY_ASYNC);
}

/* Drops the contexts of the two sides, because the addresses alone determine the devices. */
static CUDA_MEMCPY3D without_contexts(const CUDA_MEMCPY3D_PEER *p)
{
        CUDA_MEMCPY3D d;

        _Static_assert(sizeof(d) == sizeof(*p), "the contexts lie in reserved words");
        memcpy(&d, p, sizeof(d));
        return d;
}

EXPORT CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
        CUDA_MEMCPY3D d;

        if (!copy)
                return CUDA_ERROR_INVALID_VALUE;
        d = without_contexts(copy);
        return copy_3d(__func__, &d, NULL, COPY_SYNC_DEVICE);
}

EXPORT CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
        CUDA_MEMCPY3D d;

        if (!copy)
                return CUDA_ERROR_INVALID_VALUE;
        d = without_contexts(copy);
        return copy_3d(__func__, &d, stream, COPY_ASYNC);
}
