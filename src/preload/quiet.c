/* quiet.c: owns the lists of contexts, streams and captures. Must never touch a capturing stream
 * except by cuStreamIsCapturing. */
#include "preload/quiet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/gate.h"
#include "preload/poison.h"
#include "preload/real.h"

struct stream {
        CUstream handle; /* NULL: destroyed by the program with work in flight; only the event
                            counts */
        CUcontext context;
        CUevent event; /* ours; NULL: not needed yet */
        bool pending;  /* the event is waited for */
        bool asked;    /* had work when the still wait began, or last time it was asked */
};

/* One that goes on. Its stream stands for it: a capture ends on the stream it began on. */
struct capture {
        CUstream stream;
        CUcontext context;
        const struct gate_thread *thread;
};

static struct context *contexts;
static struct stream *streams;
static size_t stream_count, stream_room;
static struct capture *captures;
static size_t capture_count, capture_room;
static uint64_t begins;        /* waits begun so far */
static uint64_t begins_marked; /* the last one that put events into the streams */
static uint64_t begins_done;   /* waits up to this one are over */
static uint64_t quiet_at;      /* gate_submissions() when nothing was in flight */

struct context *quiet_context(CUcontext handle)
{
        for (struct context *c = contexts; c; c = c->next)
                if (c->handle == handle)
                        return c;
        return NULL;
}

struct context *quiet_context_of(const struct gpu *g)
{
        struct context *c = contexts;

        while (c && c->gpu != g)
                c = c->next;
        return c;
}

struct context *quiet_context_primary(const struct gpu *g)
{
        struct context *c = contexts;

        while (c && (c->gpu != g || !c->primary))
                c = c->next;
        return c;
}

struct context *quiet_context_add(CUcontext handle, struct gpu *gpu, bool primary)
{
        struct context *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        *c = (struct context){.next = contexts, .handle = handle, .gpu = gpu, .primary = primary};
        contexts = c;
        return c;
}

static void stream_drop(size_t i)
{
        streams[i] = streams[--stream_count];
}

static void capture_drop(size_t i)
{
        captures[i] = captures[capture_count - 1];
        __atomic_store_n(&capture_count, capture_count - 1, __ATOMIC_RELAXED);
        bell_ring(&core.changed);
}

void quiet_context_remove(struct context *dead)
{
        struct context **link = &contexts;

        for (size_t i = stream_count; i-- > 0;)
                if (streams[i].context == dead->handle)
                        stream_drop(i); /* its event dies with the context */
        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].context == dead->handle)
                        capture_drop(i);
        while (*link && *link != dead)
                link = &(*link)->next;
        if (*link)
                *link = dead->next;
        free(dead);
}

int quiet_stream_add(CUstream stream, CUcontext owner)
{
        if (stream_count == stream_room) {
                size_t room = stream_room ? stream_room * 2 : 64;
                struct stream *more = realloc(streams, room * sizeof(*more));

                if (!more)
                        return -ENOMEM;
                streams = more;
                stream_room = room;
        }
        streams[stream_count++] = (struct stream){.handle = stream, .context = owner};
        return 0;
}

static void note_error(CUcontext handle, CUresult r)
{
        const struct context *c = quiet_context(handle);

        if (c)
                (void)poison_note(c->gpu, r);
}

static bool stream_is_capturing(CUstream s)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        return real.cuStreamIsCapturing(s, &status) != CUDA_SUCCESS ||
               status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Record an event of ours on a stream, created at first use in the stream's context. */
static CUresult record(CUevent *event, CUcontext context, CUstream stream)
{
        CUcontext popped;
        CUresult r;

        r = real.cuCtxPushCurrent_v2(context);
        if (r != CUDA_SUCCESS)
                return r;
        if (!*event)
                r = real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
        if (r == CUDA_SUCCESS)
                r = real.cuEventRecord(*event, stream);
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

/* Whatever thread asks, it may have no context, and the legacy stream is that of the current one.
 */
static CUresult ask_stream(CUstream stream, CUcontext context)
{
        CUcontext popped;
        CUresult r = real.cuCtxPushCurrent_v2(context);

        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuStreamQuery(stream);
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

static CUresult ask_event(CUevent event, CUcontext context)
{
        CUcontext popped;
        CUresult r = real.cuCtxPushCurrent_v2(context);

        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuEventQuery(event);
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

static bool stream_has_work(CUstream stream, CUcontext context)
{
        CUresult r = ask_stream(stream, context);

        if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
                note_error(context, r);
        return r == CUDA_ERROR_NOT_READY;
}

/* An event on the stream where it has work; the stream is not capturing. */
static void stream_mark(struct stream *s)
{
        s->pending = stream_has_work(s->handle, s->context) &&
                     record(&s->event, s->context, s->handle) == CUDA_SUCCESS;
}

void quiet_stream_remove(CUstream stream)
{
        CUstreamCaptureMode mode;

        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].stream == stream)
                        capture_drop(i);
        for (size_t i = 0; i < stream_count; i++) {
                struct stream *s = &streams[i];

                if (s->handle != stream)
                        continue;
                mode = core_relax(); /* another stream may be capturing */
                if (!stream_is_capturing(stream))
                        stream_mark(s);
                s->handle = NULL;
                s->asked = false;
                if (!s->pending) {
                        if (s->event)
                                (void)real.cuEventDestroy_v2(s->event);
                        stream_drop(i);
                }
                core_unrelax(mode);
                return;
        }
}

bool quiet_stream_is_busy(CUstream stream)
{
        CUstreamCaptureMode mode = core_relax();
        bool busy = real.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;

        core_unrelax(mode);
        return busy;
}

/* ---- captures ---- */

int quiet_capture_begin(CUstream stream, CUcontext context)
{
        if (capture_count == capture_room) {
                size_t room = capture_room ? capture_room * 2 : 16;
                struct capture *more = realloc(captures, room * sizeof(*more));

                if (!more)
                        return -ENOMEM;
                captures = more;
                capture_room = room;
        }
        captures[capture_count] =
                (struct capture){.stream = stream, .context = context, .thread = gate_self};
        __atomic_store_n(&capture_count, capture_count + 1, __ATOMIC_RELAXED);
        return 0;
}

void quiet_capture_end(CUstream stream)
{
        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].stream == stream &&
                    (stream != CU_STREAM_PER_THREAD || captures[i].thread == gate_self)) {
                        capture_drop(i);
                        return;
                }
}

void quiet_thread_ended(const struct gate_thread *t)
{
        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].stream == CU_STREAM_PER_THREAD && captures[i].thread == t)
                        capture_drop(i);
}

bool quiet_capturing(void)
{
        return __atomic_load_n(&capture_count, __ATOMIC_RELAXED) > 0;
}

/* ---- waiting ---- */

static void context_begin(struct context *c, bool still, unsigned defaults)
{
        bool legacy = defaults & (1u << (uintptr_t)CU_STREAM_LEGACY | 1u);
        bool per_thread = defaults & 1u << (uintptr_t)CU_STREAM_PER_THREAD;

        if (legacy)
                c->legacy_asked = stream_has_work(CU_STREAM_LEGACY, c->handle);
        if (per_thread || (c->legacy_asked && !still))
                c->legacy_recorded =
                        record(&c->legacy, c->handle, CU_STREAM_LEGACY) == CUDA_SUCCESS;
}

void quiet_begin(struct quiet_wait *w, bool still)
{
        CUstreamCaptureMode mode = core_relax();
        unsigned defaults = gate_default_streams();

        *w = (struct quiet_wait){
                .still = still, .number = ++begins, .generation = gate_submissions()};
        if (!still)
                begins_marked = begins;
        for (struct context *c = quiet_capturing() ? NULL : contexts; c; c = c->next)
                context_begin(c, still, defaults);
        for (size_t i = 0; i < stream_count && !quiet_capturing(); i++) {
                struct stream *s = &streams[i];

                if (!s->handle)
                        continue;
                if (still)
                        s->asked = stream_has_work(s->handle, s->context);
                else
                        stream_mark(s);
        }
        core_unrelax(mode);
}

/* A query of ours has answered. *waits: whether it is still to be waited for. */
static enum quiet answered(CUresult r, CUcontext context, bool *waits, struct quiet_wait *w)
{
        if (r == CUDA_ERROR_NOT_READY)
                return QUIET_BUSY;
        *waits = false;
        w->progress++;
        if (r != CUDA_SUCCESS)
                note_error(context, r);
        return QUIET_DONE;
}

static enum quiet stream_poll(struct stream *s, struct quiet_wait *w)
{
        /* Destroyed with work in flight: its event is all there is. */
        if (s->pending && (!w->still || !s->handle))
                return answered(ask_event(s->event, s->context), s->context, &s->pending, w);
        if (s->asked && w->still)
                return answered(ask_stream(s->handle, s->context), s->context, &s->asked, w);
        return QUIET_DONE;
}

static enum quiet context_poll(struct context *c, struct quiet_wait *w)
{
        enum quiet q = QUIET_DONE;

        if (c->legacy_recorded)
                q = answered(ask_event(c->legacy, c->handle), c->handle, &c->legacy_recorded, w);
        if (q == QUIET_DONE && c->legacy_asked && w->still)
                q = answered(ask_stream(CU_STREAM_LEGACY, c->handle), c->handle, &c->legacy_asked,
                             w);
        return q;
}

enum quiet quiet_poll(struct quiet_wait *w)
{
        enum quiet result = QUIET_DONE;

        if (quiet_capturing())
                return QUIET_CAPTURE;
        /* Another wait that began later is over: a thread that waits beside others who submit and
         * wait again and again is not forgotten. */
        if (w->number <= begins_done)
                return QUIET_DONE;
        for (size_t i = stream_count; i-- > 0;) {
                struct stream *s = &streams[i];
                enum quiet q = stream_poll(s, w);

                if (q == QUIET_BUSY) {
                        result = QUIET_BUSY;
                } else if (!s->handle) {
                        (void)real.cuEventDestroy_v2(s->event);
                        stream_drop(i);
                }
        }
        for (struct context *c = contexts; c; c = c->next) {
                enum quiet q = context_poll(c, w);

                if (q == QUIET_BUSY)
                        result = QUIET_BUSY;
        }
        if (result == QUIET_DONE) {
                /* All events are behind us, those of later waits too. */
                begins_done = MAX(begins_done, MAX(w->number, w->still ? 0 : begins_marked));
                quiet_at = w->generation;
        }
        return result;
}

void quiet_wait_all(void)
{
        struct quiet_wait w;
        uint64_t nap_ns = 0;

        /* Nothing was submitted since it was last quiet: the common case when a program frees many
         * blocks in a row. */
        if (gate_submissions() == quiet_at && !gate_anybody_inside())
                return;
        quiet_begin(&w, false);
        for (unsigned polls = 0; quiet_poll(&w) == QUIET_BUSY; polls++) {
                const struct timespec nap = {.tv_nsec = (long)nap_ns};

                lock_release(&core.lock);
                if (nap_ns)
                        (void)syscall(SYS_nanosleep, &nap, NULL);
                if (polls >= 20)
                        nap_ns = MIN(nap_ns * 2 + 10000, NSEC_PER_MSEC);
                lock_acquire(&core.lock);
        }
}
