/* event.c: events. An event is a point of a stream, and the time when it was reached. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "sim/stream/shared_event.h"
#include "sim/stream/event.h"
#include "sim/queue/capture.h"
#include "sim/session/fault.h"
#include "sim/memory/pool.h"
#include "sim/queue/stream.h"

/* Event objects are never freed: they are reused, or the program still has them. */
static struct CUevent_st *event_spare, *event_all;

void event_stamp(CUevent event, uint64_t records)
{
        pthread_mutex_lock(&sim.lock);
        if (event->records == records)
                event->stamp_ns = clock_now_ns();
        pthread_mutex_unlock(&sim.lock);
}

static CUresult event_enter(const char *function, CUevent event, CUcontext *ret_context)
{
        CUresult r = api_enter(function, API_CONTEXT, ret_context);

        if (r != CUDA_SUCCESS)
                return r;
        return event && event->magic == MAGIC_EVENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuEventCreate(CUevent *ret_event, unsigned int flags)
{
        struct shared_event *shared = NULL;
        int shared_fd = -1;
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);
        CUevent e;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_event || (flags & ~7u) ||
            (flags & (CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING)) == CU_EVENT_INTERPROCESS)
                return CUDA_ERROR_INVALID_VALUE;
        if (flags & CU_EVENT_INTERPROCESS && shared_event_new(&shared, &shared_fd) < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&sim.lock);
        e = event_spare;
        if (e) {
                event_spare = e->next_free;
                if (e->shared && e->shared_fd >= 0)
                        (void)close(e->shared_fd);
        } else {
                e = calloc(1, sizeof(*e));
                if (e) {
                        e->next_all = event_all;
                        event_all = e;
                }
        }
        if (e) {
                e->magic = MAGIC_EVENT;
                e->context = context_owner(c);
                e->flags = flags;
                e->shared = shared;
                e->shared_fd = shared_fd;
                e->recorded = false;
                e->records++; /* so a late stamp of the earlier event is ignored */
                e->point = (struct point){0};
                e->stamp_ns = 0;
                *ret_event = e;
        }
        pthread_mutex_unlock(&sim.lock);
        return e ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
        CUresult r = api_enter(__func__, context_current() ? API_CONTEXT : API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!event)
                return CUDA_ERROR_INVALID_HANDLE;
        pthread_mutex_lock(&sim.lock);
        if (event->magic == MAGIC_EVENT) {
                capture_forget_event(event);
                event->magic = 0;
                event->next_free = event_spare;
                event_spare = event;
        } else {
                r = CUDA_ERROR_INVALID_HANDLE;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
        return cuEventDestroy_v2(event);
}

/* Needs sim.lock. */
static void event_recorded(CUevent event, struct point p)
{
        capture_forget_event(event);
        event->records++;
        event->recorded = true;
        event->point = p;
}

static CUresult event_record(const char *function, CUevent event, CUstream stream,
                             unsigned int flags)
{
        FAULT_AFTER(function);
        CUcontext c;
        CUresult r = event_enter(function, event, &c);

        if (r == CUDA_SUCCESS)
                r = stream_resolve(c, stream, &stream);
        if (r != CUDA_SUCCESS)
                return r;
        if (flags & ~1u)
                return CUDA_ERROR_INVALID_VALUE;
        if (context_owner(stream->context) != event->context)
                return CUDA_ERROR_INVALID_HANDLE;
        pthread_mutex_lock(&sim.lock);
        if (stream->capture) {
                r = capture_record_event(stream, event);
        } else if (flags) { /* an event is external only to a graph */
                r = CUDA_ERROR_ILLEGAL_STATE;
        } else {
                stream_await_room(stream);
                r = capture_implicit(stream);
                if (r == CUDA_SUCCESS) {
                        struct work w = {
                                .kind = WORK_RECORD,
                                .record = {event, event->records + 1, event->shared,
                                           event->shared ? shared_event_record(event->shared) : 0}};
                        struct point p;

                        r = stream_submit_locked(stream, &w, NULL, 0, &p);
                        if (r == CUDA_SUCCESS)
                                event_recorded(event, p);
                }
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
        return event_record(__func__, event, stream, flags);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
        return event_record(__func__, event, stream, 0);
}

static CUresult context_event_enter(CUcontext *context, CUevent event)
{
        CUresult r;

        if (!*context)
                return CUDA_ERROR_INVALID_CONTEXT;
        r = context_check(*context, context);
        if (r == CUDA_SUCCESS)
                r = (CUresult)atomic_load((*context)->error);
        if (r == CUDA_SUCCESS && (!event || event->magic != MAGIC_EVENT))
                r = CUDA_ERROR_INVALID_HANDLE;
        return r;
}

CUresult context_record(CUcontext context, CUevent event)
{
        CUresult r = context_event_enter(&context, event);

        if (r != CUDA_SUCCESS)
                return r;
        if (event->context != context_owner(context))
                return CUDA_ERROR_INVALID_HANDLE;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_context(context);
        if (r == CUDA_SUCCESS) {
                struct work w = {.kind = WORK_RECORD, .record = {event, event->records + 1}};
                struct point p;

                r = stream_submit_behind_all(context, &w, &p);
                if (r == CUDA_SUCCESS)
                        event_recorded(event, p);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

CUresult context_await(CUcontext context, CUevent event)
{
        struct work w = {.kind = WORK_EMPTY};
        CUresult r = context_event_enter(&context, event);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_context(context);
        if (r == CUDA_SUCCESS)
                r = capture_refuses_event(event);
        if (r == CUDA_SUCCESS && event->shared)
                w = (struct work){.kind = WORK_AWAIT_EVENT,
                                  .record = {.shared = event->shared,
                                             .number = shared_event_last(event->shared)}};
        if (r == CUDA_SUCCESS && (event->shared || !point_reached(&event->point)))
                r = stream_hold_all(context, &w, &event->point);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        return r != CUDA_SUCCESS ? r : context_record(context, event);
}

EXPORT CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        return r != CUDA_SUCCESS ? r : context_await(context, event);
}

EXPORT CUresult cuEventQuery(CUevent event)
{
        CUcontext c;
        CUresult r = event_enter(__func__, event, &c);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_event(event);
        if (r == CUDA_SUCCESS)
                r = capture_unsafe_locked();
        if (r == CUDA_SUCCESS && event->shared)
                r = shared_event_is_done(event->shared, shared_event_last(event->shared))
                            ? (CUresult)atomic_load(event->context->error)
                            : CUDA_ERROR_NOT_READY;
        else if (r == CUDA_SUCCESS)
                r = point_reached(&event->point) ? (CUresult)atomic_load(event->context->error)
                                                 : CUDA_ERROR_NOT_READY;
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
        struct point p = {0};
        CUcontext c;
        CUresult r = event_enter(__func__, event, &c);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_event(event);
        if (r == CUDA_SUCCESS)
                r = capture_unsafe_locked();
        if (r == CUDA_SUCCESS && !event->shared) {
                p = event->point;
                r = point_wait(event->context, p);
        }
        pthread_mutex_unlock(&sim.lock);
        if (r == CUDA_SUCCESS && event->shared) {
                (void)shared_event_await(c, event->shared, shared_event_last(event->shared));
                r = (CUresult)atomic_load(c->error);
        }
        frees_synced(c, &p);
        return r;
}

EXPORT CUresult cuEventElapsedTime_v2(float *ret_ms, CUevent start, CUevent end)
{
        CUcontext c;
        CUresult r = event_enter(__func__, start, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!end || end->magic != MAGIC_EVENT)
                return CUDA_ERROR_INVALID_HANDLE;
        if (!ret_ms)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = capture_refuses_event(start);
        if (r == CUDA_SUCCESS)
                r = capture_refuses_event(end);
        if (r != CUDA_SUCCESS)
                ; /* an event was recorded in a capture */
        else if (!start->recorded || !end->recorded ||
                 ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
                r = CUDA_ERROR_INVALID_HANDLE;
        else if (!point_reached(&start->point) || !point_reached(&end->point))
                r = CUDA_ERROR_NOT_READY;
        else
                *ret_ms = (float)((double)(int64_t)(end->stamp_ns - start->stamp_ns) / 1e6);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuEventElapsedTime(float *ret_ms, CUevent start, CUevent end)
{
        return cuEventElapsedTime_v2(ret_ms, start, end);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
        struct work w = {.kind = WORK_EMPTY};
        CUcontext c;
        CUresult r = event_enter(__func__, event, &c);

        if (r == CUDA_SUCCESS)
                r = stream_resolve(c, stream, &stream);
        if (r != CUDA_SUCCESS)
                return r;
        if (flags & ~1u)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        if (event->capture || stream->capture) {
                r = capture_join(stream, event);
        } else if (flags) {
                r = CUDA_ERROR_ILLEGAL_STATE;
        } else {
                r = capture_implicit(stream);
                if (r == CUDA_SUCCESS && event->shared)
                        w = (struct work){.kind = WORK_AWAIT_EVENT,
                                          .record = {.shared = event->shared,
                                                     .number = shared_event_last(event->shared)}};
                if (r == CUDA_SUCCESS && event->shared)
                        r = stream_submit_locked(stream, &w, NULL, 0, NULL);
                else if (r == CUDA_SUCCESS && !point_reached(&event->point))
                        r = stream_submit_locked(stream, &w, &event->point, 1, NULL);
                if (r == CUDA_SUCCESS && !event->shared)
                        stream_hear(stream, event->point);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}
