/* quiet.c: owns the lists of contexts and streams. Must never touch a capturing stream except by
 * cuStreamIsCapturing. */
#include "preload/quiet.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/gate.h"
#include "preload/real.h"

struct stream {
        CUstream handle; /* NULL: destroyed by the program with work in flight; only the event
                            counts */
        CUcontext context;
        CUevent event; /* ours; NULL: not needed yet */
        bool blocking; /* waits for the legacy stream and is waited for by it */
        bool pending;
};

static struct context *contexts;
static struct stream *streams;
static size_t stream_count, stream_room;
static unsigned captures;
static uint64_t quiet_at; /* gate_submissions() when nothing was in flight */

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

void quiet_context_remove(struct context *dead)
{
        struct context **link = &contexts;

        for (size_t i = stream_count; i-- > 0;)
                if (streams[i].context == dead->handle)
                        stream_drop(i); /* its event dies with the context */
        while (*link && *link != dead)
                link = &(*link)->next;
        if (*link)
                *link = dead->next;
        free(dead);
}

int quiet_stream_add(CUstream stream, CUcontext owner, bool blocking)
{
        if (stream_count == stream_room) {
                size_t room = stream_room ? stream_room * 2 : 64;
                struct stream *more = realloc(streams, room * sizeof(*more));

                if (!more)
                        return -ENOMEM;
                streams = more;
                stream_room = room;
        }
        streams[stream_count++] =
                (struct stream){.handle = stream, .context = owner, .blocking = blocking};
        return 0;
}

/* An error that ends the context: whatever was in its memory is lost. */
static bool error_is_sticky(CUresult r)
{
        switch (r) {
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
                return true;
        default:
                return false;
        }
}

static void note_error(CUcontext handle, CUresult r)
{
        struct context *c = quiet_context(handle);

        if (c && error_is_sticky(r) && !c->gpu->poisoned) {
                c->gpu->poisoned = c->gpu->usage_dirty = true;
                log_debug("GPU %u: a context has sticky error %d", c->gpu->index, (int)r);
        }
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

/* An event on the stream where it has work; the stream is not capturing. */
static void stream_begin(struct stream *s)
{
        CUresult r = real.cuStreamQuery(s->handle);

        s->pending = false;
        if (r == CUDA_ERROR_NOT_READY)
                s->pending = record(&s->event, s->context, s->handle) == CUDA_SUCCESS;
        else if (r != CUDA_SUCCESS)
                note_error(s->context, r);
}

void quiet_stream_remove(CUstream stream)
{
        for (size_t i = 0; i < stream_count; i++) {
                struct stream *s = &streams[i];

                if (s->handle != stream)
                        continue;
                if (!stream_is_capturing(stream))
                        stream_begin(s);
                s->handle = NULL;
                if (!s->pending) {
                        if (s->event)
                                (void)real.cuEventDestroy_v2(s->event);
                        stream_drop(i);
                }
                return;
        }
}

void quiet_capture_begin(void)
{
        captures++;
}

void quiet_capture_end(void)
{
        if (captures > 0)
                captures--;
        bell_ring(&core.changed);
}

bool quiet_capturing(void)
{
        return __atomic_load_n(&captures, __ATOMIC_RELAXED) > 0;
}

void quiet_begin(struct quiet_wait *w)
{
        CUstreamCaptureMode mode = core_relax();

        *w = (struct quiet_wait){.generation = gate_submissions()};
        if (captures == 0) {
                for (struct context *c = contexts; c; c = c->next)
                        c->legacy_recorded =
                                record(&c->legacy, c->handle, CU_STREAM_LEGACY) == CUDA_SUCCESS;
                for (size_t i = 0; i < stream_count; i++)
                        if (streams[i].handle && !streams[i].blocking)
                                stream_begin(&streams[i]);
        }
        core_unrelax(mode);
}

static enum quiet event_poll(CUevent event, CUcontext context, bool *pending, struct quiet_wait *w)
{
        CUresult r = real.cuEventQuery(event);

        if (r == CUDA_ERROR_NOT_READY)
                return QUIET_BUSY;
        *pending = false;
        w->progress++;
        if (r != CUDA_SUCCESS)
                note_error(context, r);
        return error_is_sticky(r) ? QUIET_POISONED : QUIET_DONE;
}

enum quiet quiet_poll(struct quiet_wait *w)
{
        enum quiet result = QUIET_DONE;

        if (captures > 0)
                return QUIET_CAPTURE;
        for (size_t i = stream_count; i-- > 0;) {
                struct stream *s = &streams[i];
                enum quiet q;

                if (!s->pending)
                        continue;
                q = event_poll(s->event, s->context, &s->pending, w);
                if (q == QUIET_POISONED)
                        return q;
                if (q == QUIET_BUSY) {
                        result = QUIET_BUSY;
                } else if (!s->handle) {
                        (void)real.cuEventDestroy_v2(s->event);
                        stream_drop(i);
                }
        }
        for (struct context *c = contexts; c; c = c->next) {
                enum quiet q;

                if (!c->legacy_recorded)
                        continue;
                q = event_poll(c->legacy, c->handle, &c->legacy_recorded, w);
                if (q == QUIET_POISONED)
                        return q;
                if (q == QUIET_BUSY)
                        result = QUIET_BUSY;
        }
        if (result == QUIET_DONE)
                quiet_at = w->generation;
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
        quiet_begin(&w);
        for (unsigned polls = 0; quiet_poll(&w) == QUIET_BUSY; polls++) {
                const struct timespec nap = {.tv_nsec = (long)nap_ns};

                lock_release(&core.lock);
                if (nap_ns)
                        (void)nanosleep(&nap, NULL);
                if (polls >= 20)
                        nap_ns = MIN(nap_ns * 2 + 10000, NSEC_PER_MSEC);
                lock_acquire(&core.lock);
        }
}
