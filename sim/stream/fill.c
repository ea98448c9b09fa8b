/* fill.c: the entry points that set memory. The card fills, so the caller waits only for a fill of
 * host memory. */
#include "sim/stream/copy.h"
#include "sim/memory/memory.h"
#include "sim/space/space.h"
#include "sim/memory/graph_memory.h"
#include "sim/queue/stream.h"

CUresult set_check(const struct work_set *w, bool graph)
{
        uint64_t width, bytes;
        bool known;

        if (w->width == 0 || w->height == 0)
                return CUDA_SUCCESS;
        if (__builtin_mul_overflow(w->width, w->element, &width))
                return CUDA_ERROR_INVALID_VALUE;
        bytes = copy_span(width, w->pitch, w->height, 0, 1);
        space_lock_shared();
        known = space_range(w->to) != NULL;
        space_unlock();
        known = known || (graph && graph_memory_holds(w->to, bytes));
        return known && memory_usable(w->to, bytes, true, graph) ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fill_submit(const char *function, struct work_set set, CUstream stream, bool async)
{
        struct work w = {.kind = WORK_SET, .set = set};
        bool capturing;
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r != CUDA_SUCCESS || set.width == 0 || set.height == 0)
                return r;
        if (set.to % set.element || (set.height > 1 && set.pitch < set.width * set.element))
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        capturing = stream->capture != NULL;
        pthread_mutex_unlock(&sim.lock);
        if (!capturing) {
                r = set_check(&set, false);
                if (r != CUDA_SUCCESS)
                        return r;
        }
        if (async || space_is_device(set.to))
                return stream_submit(stream, &w, NULL, 0);
        pthread_mutex_lock(&sim.lock);
        r = stream_submit_free(stream, &w, true);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

#define FILL(bits, type)                                                                       \
        EXPORT CUresult cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t count)        \
        {                                                                                      \
                struct work_set w = {.to = dst,                                                \
                                     .width = count,                                           \
                                     .height = 1,                                              \
                                     .value = value,                                           \
                                     .element = (bits) / 8};                                   \
                return fill_submit(__func__, w, NULL, false);                                  \
        }                                                                                      \
        EXPORT CUresult cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t count,      \
                                               CUstream stream)                                \
        {                                                                                      \
                struct work_set w = {.to = dst,                                                \
                                     .width = count,                                           \
                                     .height = 1,                                              \
                                     .value = value,                                           \
                                     .element = (bits) / 8};                                   \
                return fill_submit(__func__, w, stream, true);                                 \
        }                                                                                      \
        EXPORT CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value,      \
                                               size_t width, size_t height)                    \
        {                                                                                      \
                struct work_set w = {dst, pitch, width, height, value, (bits) / 8};            \
                return fill_submit(__func__, w, NULL, false);                                  \
        }                                                                                      \
        EXPORT CUresult cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value,    \
                                                 size_t width, size_t height, CUstream stream) \
        {                                                                                      \
                struct work_set w = {dst, pitch, width, height, value, (bits) / 8};            \
                return fill_submit(__func__, w, stream, true);                                 \
        }

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)
