/* captures.c: owns the list of captures in progress, and decides which calls they forbid. */
#include "sim/call/captures.h"

#include <stdlib.h>

static struct capture *captures;
static uint64_t last_id;
/* Read without the lock, so that without captures a call costs one load. */
static _Atomic unsigned capture_count;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool capture_forbids(const struct capture *k)
{
        if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
            k->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
                return false;
        if (pthread_equal(k->thread, pthread_self()))
                return k->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        return k->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
               thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_unsafe_locked(void)
{
        CUresult r = CUDA_SUCCESS;

        for (struct capture *k = captures; k; k = k->next)
                if (capture_forbids(k)) {
                        capture_invalidate(k);
                        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                }
        return r;
}

CUresult capture_unsafe(void)
{
        CUresult r;

        if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0)
                return CUDA_SUCCESS;
        pthread_mutex_lock(&sim.lock);
        r = capture_unsafe_locked();
        pthread_mutex_unlock(&sim.lock);
        return r;
}

CUresult capture_conflicts(CUstream s, bool invalidate)
{
        CUresult r = CUDA_SUCCESS;

        if (!s->legacy || !captures)
                return CUDA_SUCCESS;
        for (CUstream o = s->context->streams; o; o = o->next_of_context)
                if (o->capture && !(o->flags & CU_STREAM_NON_BLOCKING)) {
                        if (invalidate)
                                capture_invalidate(o->capture);
                        r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                }
        return r;
}

CUresult capture_implicit(CUstream s)
{
        return capture_conflicts(s, true);
}

CUresult capture_refuses_sync(CUstream s)
{
        if (!s->capture)
                return capture_implicit(s);
        capture_invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_refuses_context(CUcontext c)
{
        CUresult r = CUDA_SUCCESS;

        for (CUstream s = captures ? c->streams : NULL; s; s = s->next_of_context)
                if (s->capture) {
                        capture_invalidate(s->capture);
                        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                }
        return r;
}

struct capture *capture_of_event(const struct CUevent_st *event)
{
        for (struct capture *k = captures; event->capture && k; k = k->next)
                if (k == event->capture && k->id == event->capture_id)
                        return k;
        return NULL;
}

CUresult capture_refuses_event(CUevent event)
{
        struct capture *k = capture_of_event(event);

        if (!event->capture)
                return CUDA_SUCCESS;
        if (!k)
                return CUDA_ERROR_INVALID_VALUE;
        capture_invalidate(k);
        return CUDA_ERROR_CAPTURED_EVENT;
}

void capture_forget_event(CUevent event)
{
        free(event->tail);
        event->tail = NULL;
        event->tails = 0;
        event->capture = NULL;
}

CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode)
{
        CUstreamCaptureMode old = thread_mode;

        thread_mode = mode;
        return old;
}

void capture_begins(struct capture *k)
{
        k->id = ++last_id;
        k->next = captures;
        captures = k;
        atomic_fetch_add(&capture_count, 1);
}

static void uncapture(CUstream s)
{
        free(s->tail);
        s->tail = NULL;
        s->tails = 0;
        s->capture = NULL;
}

void capture_leave(CUstream s)
{
        capture_invalidate(s->capture);
        uncapture(s);
}

void capture_ends(struct capture *k)
{
        struct capture **p = &captures;

        for (CUstream s = k->origin->context->streams; s; s = s->next_of_context)
                if (s->capture == k)
                        uncapture(s);
        while (*p != k)
                p = &(*p)->next;
        *p = k->next;
        atomic_fetch_sub(&capture_count, 1);
}
