/* quiesce.c: owns the lists of contexts, streams and captures. Must never touch a capturing stream
 * except by cuStreamIsCapturing.
 * Why: docs/decisions.md, "A drain polls the streams and adds nothing to them", "During a capture,
 * no stream is queried" and "`cuMemFree` waits by one event of the whole context". */
#include "preload/stream/quiesce.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/stream/gate.h"
#include "preload/state/poison.h"
#include "preload/driver/real.h"
#include "preload/state/request.h"
#include "preload/process/lock.h"
#include "preload/process/nap.h"

#define RECORDS_NS NSEC_PER_SEC        /* how long to wait for a stream whose queue is full */
#define TRIES      3u                  /* attempts at a question that the driver does not answer */
#define SILENT_NS  (30 * NSEC_PER_SEC) /* after so long without an answer, work counts as ended */

struct stream {
        CUstream handle; /* NULL: destroyed with work in flight; only the event is left */
        CUcontext context;
        CUevent event; /* our event; NULL: not needed yet */
        bool pending;  /* the event is waited for */
        bool wanted;   /* the event is to be recorded */
        bool asked; /* the stream had work when the wait with `still` began, or at its last query */
};

/* A capture in progress, named by its stream: a capture ends on the stream it began on. */
struct capture {
        CUstream stream;
        CUcontext context;
        const struct gate_thread *thread;
        CUevent probe; /* an event recorded before the capture began; NULL: none */
};

static struct context *contexts;
static struct stream *streams;
static size_t stream_count, stream_room;
static struct capture *captures;
static size_t capture_count, capture_room;
static uint64_t quiesce_at; /* gate_submissions() at the last quiescence */

/* A mark is made of events behind all submitted work. While the program goes on submitting, waits
 * share marks: when the GPU has reached the last mark, a new one is made, and serves all waits
 * begun by then. */
static struct {
        uint64_t begun;   /* waits begun so far */
        uint64_t reached; /* waits up to this number are over */
        uint64_t number;  /* the last wait that the mark serves */
        uint64_t generation;
        bool made;
} marks;

/* Events that are being recorded without the lock, because recording blocks on a full stream. The
 * stream and its context must not be destroyed before that is done. */
struct recording {
        struct recording *next;
        CUstream stream;
        CUcontext context;
};
static struct recording *recordings;

struct context *quiesce_context(CUcontext handle)
{
        for (struct context *c = contexts; c; c = c->next)
                if (c->handle == handle)
                        return c;
        return NULL;
}

struct context *quiesce_context_of(const struct gpu *g)
{
        struct context *c = contexts;

        while (c && (c->gpu != g || c->green || c->dying))
                c = c->next;
        return c;
}

struct context *quiesce_context_green(CUgreenCtx green)
{
        struct context *c = contexts;

        while (c && (!green || c->green != green))
                c = c->next;
        return c;
}

struct context *quiesce_context_green_of(const struct gpu *g)
{
        struct context *c = contexts;

        while (c && (c->gpu != g || !c->green))
                c = c->next;
        return c;
}

CUcontext quiesce_owner(CUcontext current)
{
        struct context *c = quiesce_context(current);

        if (c && c->green)
                c = quiesce_context_primary(c->gpu);
        return c ? c->handle : current;
}

struct context *quiesce_context_primary(const struct gpu *g)
{
        struct context *c = contexts;

        while (c && (c->gpu != g || !c->primary))
                c = c->next;
        return c;
}

/* False if the driver says how the work stands, or that the context or stream has ended, has failed
 * or captures. */
static bool tells_nothing(CUresult r)
{
        switch (r) {
        case CUDA_SUCCESS:
        case CUDA_ERROR_NOT_READY:
        case CUDA_ERROR_DEINITIALIZED:
        case CUDA_ERROR_INVALID_CONTEXT:
        case CUDA_ERROR_INVALID_HANDLE:
        case CUDA_ERROR_CONTEXT_IS_DESTROYED:
                return false;
        default:
                return !poison_sticks(r) && (r < CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
                                             r > CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
}

/* A call that failed may succeed the next time. */
#define ASK(call)                                                   \
        ({                                                          \
                CUresult answer_;                                   \
                unsigned tries_ = 0;                                \
                                                                    \
                do                                                  \
                        answer_ = (call);                           \
                while (tells_nothing(answer_) && ++tries_ < TRIES); \
                answer_;                                            \
        })

/* Creates both events of a context. True: the driver has context events. Call it while no thread
 * can block inside the driver on this context: creating an event would wait for that thread. */
static bool context_has_marks(struct context *c)
{
        CUstreamCaptureMode mode = core_relax();
        CUcontext popped;
        bool ok = false;

        if (ASK(real.cuCtxPushCurrent_v2(c->handle)) == CUDA_SUCCESS) {
                ok = ASK(real.cuEventCreate(&c->mark, CU_EVENT_DISABLE_TIMING)) == CUDA_SUCCESS &&
                     ASK(real.cuEventCreate(&c->still_mark, CU_EVENT_DISABLE_TIMING)) ==
                             CUDA_SUCCESS &&
                     real.cuCtxRecordEvent(c->handle, c->mark) == CUDA_SUCCESS;
                (void)real.cuCtxPopCurrent_v2(&popped);
        }
        core_unrelax(mode);
        return ok;
}

struct context *quiesce_context_add(CUcontext handle, struct gpu *gpu, bool primary)
{
        struct context *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        *c = (struct context){.next = contexts, .handle = handle, .gpu = gpu, .primary = primary};
        c->has_marks = context_has_marks(c);
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
        request_kick(); /* memory freed during the capture waits for its end */
}

static bool is_recording(CUstream stream, CUcontext context)
{
        const struct recording *r = recordings;

        while (r && r->stream != stream && r->context != context)
                r = r->next;
        return r != NULL;
}

static void await_recording(CUstream stream, CUcontext context) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "its own work"};

        while (is_recording(stream, context) && !core_passive())
                core_wait(&w, UINT64_MAX);
}

void quiesce_await_records(void)
{
        struct core_wait w = {.what = "events of its own"};
        uint64_t until = clock_now_ns() + RECORDS_NS, now;

        while (recordings && (now = clock_now_ns()) < until && !core_passive())
                core_wait(&w, until - now);
}

void quiesce_context_remove(struct context *dead)
{
        struct context **link = &contexts;

        await_recording(NULL, dead->handle);
        for (size_t i = stream_count; i-- > 0;)
                if (streams[i].context == dead->handle)
                        stream_drop(i); /* the stream's event dies with the context */
        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].context == dead->handle)
                        capture_drop(i);
        while (*link && *link != dead)
                link = &(*link)->next;
        if (*link)
                *link = dead->next;
        free(dead);
}

int quiesce_stream_add(CUstream stream, CUcontext owner)
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

static void note_error(CUcontext handle, CUresult r) REQUIRES(core_lock)
{
        const struct context *c = quiesce_context(handle);

        if (c)
                (void)poison_note(c->gpu, r);
}

static bool stream_is_capturing(CUstream s)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        return ASK(real.cuStreamIsCapturing(s, &status)) != CUDA_SUCCESS ||
               status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult quiesce_record(CUevent *event, CUcontext context, CUstream stream)
{
        CUcontext popped;
        CUresult r;

        r = ASK(real.cuCtxPushCurrent_v2(context));
        if (r != CUDA_SUCCESS)
                return r;
        if (!*event)
                r = ASK(real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
        if (r == CUDA_SUCCESS)
                r = ASK(real.cuEventRecord(*event, stream));
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

/* Records an event, and gives up the lock for that: pointers into the list of streams are invalid
 * afterwards. */
static bool record_unlocked(CUevent *event, CUcontext context, CUstream stream) UNLOCKS(core_lock)
{
        struct recording self = {recordings, stream, context}, **link = &recordings;
        CUresult r;

        recordings = &self;
        lock_release(&core_lock);
        r = quiesce_record(event, context, stream);
        lock_acquire(&core_lock);
        while (*link != &self)
                link = &(*link)->next;
        *link = self.next;
        bell_ring(&core.changed);
        return r == CUDA_SUCCESS;
}

/* Record an event behind all work of the context's streams. */
static bool context_record(const struct context *c, CUevent event) REQUIRES(core_lock)
{
        CUresult r = ASK(real.cuCtxRecordEvent(c->handle, event));

        if (r != CUDA_SUCCESS)
                (void)poison_note(c->gpu, r);
        return r == CUDA_SUCCESS;
}

/* The calling thread may have no context, and CU_STREAM_LEGACY belongs to the current context: so
 * make the stream's context current. */
CUresult quiesce_ask_stream(CUstream stream, CUcontext context)
{
        CUcontext popped;
        CUresult r = ASK(real.cuCtxPushCurrent_v2(context));

        if (r != CUDA_SUCCESS)
                return r;
        r = ASK(real.cuStreamQuery(stream));
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

CUresult quiesce_ask_event(CUevent event, CUcontext context)
{
        CUcontext popped;
        CUresult r = ASK(real.cuCtxPushCurrent_v2(context));

        if (r != CUDA_SUCCESS)
                return r;
        r = ASK(real.cuEventQuery(event));
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

static bool stream_has_work(CUstream stream, CUcontext context) REQUIRES(core_lock)
{
        CUresult r = quiesce_ask_stream(stream, context);

        if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
                note_error(context, r);
        return r == CUDA_ERROR_NOT_READY || tells_nothing(r);
}

static struct stream *stream_find(CUstream handle)
{
        for (size_t i = 0; i < stream_count; i++)
                if (streams[i].handle == handle)
                        return &streams[i];
        return NULL;
}

/* Record an event behind the stream's work. Returns the stream's new place in the list; NULL: its
 * context is gone. */
static struct stream *stream_record(struct stream *s) UNLOCKS(core_lock)
{
        CUstream handle = s->handle;
        CUevent event = s->event;
        bool pending;

        s->wanted = false;
        pending = record_unlocked(&event, s->context, handle);
        s = stream_find(handle);
        if (s) {
                s->event = event;
                s->pending = pending;
        }
        return s;
}

/* Remove a destroyed stream whose work is done. */
static void stream_bury(struct stream *s)
{
        if (s->event)
                (void)real.cuEventDestroy_v2(s->event);
        stream_drop((size_t)(s - streams));
}

void quiesce_stream_remove(CUstream stream)
{
        CUstreamCaptureMode mode;
        struct context *c;
        struct stream *s;

        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].stream == stream)
                        capture_drop(i);
        await_recording(stream, NULL);
        s = stream_find(stream);
        if (!s)
                return;
        mode = core_relax(); /* another stream may be capturing */
        c = quiesce_context(s->context);
        s->pending = false;
        if (c && !stream_is_capturing(stream) && stream_has_work(stream, s->context)) {
                c->strays = c->has_marks;
                if (!c->has_marks)
                        s = stream_record(s);
                else if (!quiesce_capturing())
                        c->still_marked = context_record(c, c->still_mark);
        }
        core_unrelax(mode);
        if (!s)
                return;
        s->handle = NULL;
        s->asked = false;
        if (!s->pending)
                stream_bury(s);
}

/* ---- captures ---- */

int quiesce_capture_begin(CUstream stream, CUcontext context, CUevent probe)
{
        if (capture_count == capture_room) {
                size_t room = capture_room ? capture_room * 2 : 16;
                struct capture *more = realloc(captures, room * sizeof(*more));

                if (!more)
                        return -ENOMEM;
                captures = more;
                capture_room = room;
        }
        captures[capture_count] = (struct capture){
                .stream = stream, .context = context, .thread = gate_self, .probe = probe};
        __atomic_store_n(&capture_count, capture_count + 1, __ATOMIC_RELAXED);
        return 0;
}

CUevent quiesce_capture_end(CUstream stream)
{
        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].stream == stream &&
                    (stream != CU_STREAM_PER_THREAD || captures[i].thread == gate_self)) {
                        CUevent probe = captures[i].probe;

                        capture_drop(i);
                        return probe;
                }
        return NULL;
}

bool quiesce_capture_forbids(void)
{
        for (size_t i = 0; i < capture_count; i++)
                if (captures[i].probe)
                        return real.cuEventQuery(captures[i].probe) ==
                               CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        return false;
}

void quiesce_thread_ended(const struct gate_thread *t)
{
        for (size_t i = capture_count; i-- > 0;)
                if (captures[i].stream == CU_STREAM_PER_THREAD && captures[i].thread == t)
                        capture_drop(i);
}

bool quiesce_capturing(void)
{
        return __atomic_load_n(&capture_count, __ATOMIC_RELAXED) > 0;
}

bool quiesce_is_capturing(CUstream stream)
{
        return quiesce_capturing() && stream_is_capturing(stream);
}

/* ---- waiting while nothing is submitted ---- */

static void still_begin(struct context *c, unsigned defaults) UNLOCKS(core_lock)
{
        bool per_thread = defaults & 1u << (uintptr_t)CU_STREAM_PER_THREAD;

        if (defaults & (1u << (uintptr_t)CU_STREAM_LEGACY | 1u))
                c->legacy_asked = stream_has_work(CU_STREAM_LEGACY, c->handle);
        if (c->has_marks && (per_thread || c->strays))
                c->still_marked = context_record(c, c->still_mark);
        else if (per_thread)
                c->still_marked = record_unlocked(&c->still_mark, c->handle, CU_STREAM_LEGACY);
}

/* True if the queried work has not ended. Otherwise *waits is cleared: nobody needs to wait for the
 * work any more. */
static bool is_busy(CUresult r, CUcontext context, bool *waits, struct quiesce_wait *w)
        REQUIRES(core_lock)
{
        if (r == CUDA_ERROR_NOT_READY)
                return true;
        if (tells_nothing(r)) {
                w->silent_ns = w->silent_ns ? w->silent_ns : clock_now_ns();
                if (clock_now_ns() - w->silent_ns < SILENT_NS)
                        return true;
        }
        *waits = false;
        w->progress++;
        if (r != CUDA_SUCCESS)
                note_error(context, r);
        return false;
}

/* Query the streams that were destroyed with work in flight: only their events are left. True: one
 * of them is busy. */
static bool dead_streams_are_busy(struct quiesce_wait *w) REQUIRES(core_lock)
{
        bool busy = false;

        for (size_t i = stream_count; i-- > 0;) {
                struct stream *s = &streams[i];

                if (s->handle)
                        continue;
                if (is_busy(quiesce_ask_event(s->event, s->context), s->context, &s->pending, w))
                        busy = true;
                else
                        stream_bury(s);
        }
        return busy;
}

static bool still_is_busy(struct quiesce_wait *w) REQUIRES(core_lock)
{
        bool busy = dead_streams_are_busy(w);

        for (struct stream *s = streams; s < streams + stream_count; s++)
                if (s->asked &&
                    is_busy(quiesce_ask_stream(s->handle, s->context), s->context, &s->asked, w))
                        busy = true;
        for (struct context *c = contexts; c; c = c->next) {
                if (c->still_marked && is_busy(quiesce_ask_event(c->still_mark, c->handle),
                                               c->handle, &c->still_marked, w))
                        busy = true;
                if (c->legacy_asked && is_busy(quiesce_ask_stream(CU_STREAM_LEGACY, c->handle),
                                               c->handle, &c->legacy_asked, w))
                        busy = true;
        }
        return busy;
}

/* ---- waiting beside a program that goes on submitting ---- */

static struct stream *stream_wanted(const struct context *c)
{
        for (struct stream *s = streams; s < streams + stream_count; s++)
                if (s->handle && s->wanted && s->context == c->handle)
                        return s;
        return NULL;
}

/* For drivers without context events: record one event for each stream that has work. */
static void context_mark_streams(struct context *c) UNLOCKS(core_lock)
{
        struct stream *s;

        for (s = streams; s < streams + stream_count; s++)
                if (s->handle && s->context == c->handle) {
                        s->pending = false;
                        s->wanted = stream_has_work(s->handle, s->context);
                }
        while (!quiesce_capturing() && (s = stream_wanted(c)))
                (void)stream_record(s);
        if (!quiesce_capturing() && gate_default_streams())
                c->marked = record_unlocked(&c->mark, c->handle, CU_STREAM_LEGACY);
}

/* Records new marks. Does nothing while another thread records events, and stops when a capture
 * begins. */
static void marks_make(void) UNLOCKS(core_lock)
{
        if (recordings)
                return;
        marks.number = marks.begun;
        marks.generation = gate_submissions();
        for (struct context *c = contexts; c && !quiesce_capturing(); c = c->next) {
                c->marked = c->has_marks && context_record(c, c->mark);
                if (!c->marked)
                        context_mark_streams(c);
        }
        marks.made = !quiesce_capturing();
}

static bool marks_are_busy(struct quiesce_wait *w) REQUIRES(core_lock)
{
        bool busy = dead_streams_are_busy(w);

        for (struct context *c = contexts; c; c = c->next)
                if (c->marked &&
                    is_busy(quiesce_ask_event(c->mark, c->handle), c->handle, &c->marked, w))
                        busy = true;
        for (struct stream *s = streams; s < streams + stream_count; s++)
                if (s->pending && s->handle &&
                    is_busy(quiesce_ask_event(s->event, s->context), s->context, &s->pending, w))
                        busy = true;
        return busy;
}

static bool marks_step(struct quiesce_wait *w) UNLOCKS(core_lock)
{
        if (w->number > marks.reached) {
                if (!marks.made)
                        marks_make();
                if (marks.made && !marks_are_busy(w)) {
                        marks.made = false;
                        marks.reached = MAX(marks.reached, marks.number);
                        quiesce_at = marks.generation;
                }
        }
        return w->number > marks.reached;
}

/* ---- both kinds of wait ---- */

void quiesce_begin(struct quiesce_wait *w, bool still)
{
        CUstreamCaptureMode mode;
        unsigned defaults = gate_default_streams();

        *w = (struct quiesce_wait){.still = still,
                                   .number = still ? marks.begun : ++marks.begun,
                                   .generation = gate_submissions()};
        if (!still || quiesce_capturing())
                return;
        mode = core_relax();
        for (struct context *c = contexts; c && !quiesce_capturing(); c = c->next)
                still_begin(c, defaults);
        for (struct stream *s = streams; s < streams + stream_count && !quiesce_capturing(); s++)
                if (s->handle)
                        s->asked = stream_has_work(s->handle, s->context);
        core_unrelax(mode);
}

enum quiescence quiesce_poll(struct quiesce_wait *w)
{
        CUstreamCaptureMode mode;
        bool busy;

        if (quiesce_capturing())
                return QUIESCE_CAPTURE;
        mode = core_relax();
        busy = w->still ? still_is_busy(w) : marks_step(w);
        core_unrelax(mode);
        if (!busy && w->still) {
                marks.reached = MAX(marks.reached, w->number);
                quiesce_at = w->generation;
                for (struct context *c = contexts; c; c = c->next)
                        c->strays = false;
        }
        return busy ? QUIESCE_BUSY : QUIESCE_DONE;
}

void quiesce_wait_all(void)
{
        struct quiesce_wait w;
        uint64_t nap_ns = 0;

        /* Nothing was submitted since the last quiescence: the common case when a program frees
         * many blocks in a row. */
        if (gate_submissions() == quiesce_at && !gate_anybody_inside())
                return;
        quiesce_begin(&w, false);
        for (unsigned polls = 0; quiesce_poll(&w) == QUIESCE_BUSY; polls++) {
                lock_release(&core_lock);
                if (nap_ns)
                        (void)nap(nap_ns);
                if (polls >= 20)
                        nap_ns = MIN(nap_ns * 2 + 10000, NSEC_PER_MSEC);
                lock_acquire(&core_lock);
        }
}
