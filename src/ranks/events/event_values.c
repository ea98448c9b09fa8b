/* event_values.c: owns the values of events, and the words in which streams write them. A stream
 * writes ever larger values into its word. So the word of a destroyed stream is used again only
 * when its last value is there: an old value after a new one would be a wait without an end.
 *
 * Writing a value is work, which may wait at libsublet's gate. So only streams whose work may wait
 * for other ranks write values, and no thread waits here for another one that writes.
 * Why: docs/decisions.md, "Streams of a rank wait for values". */
#include "ranks/events/event_values.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/macros.h"
#include "ranks/real/entry.h"
#include "ranks/real/real_functions.h"

#define STREAMS_MAX 1024u /* events of further streams have no values */
#define BUCKETS     1024u
#define BYTES       (STREAMS_MAX * sizeof(uint64_t))

/* A stream with a word of its own. */
struct line {
        CUstream stream;
        CUcontext context;     /* of a default stream, whose handle says nothing; else NULL */
        _Atomic uint64_t last; /* the last value that is put into the stream */
        bool used;
        bool waits;             /* work behind the last value may wait for other ranks */
        pthread_mutex_t writes; /* held while an event and its value are put into the stream */
};

/* An event that has a value. */
struct mark {
        struct mark *next;
        CUevent event;
        unsigned line;
        uint64_t value;
};

static atomic_bool begun, always;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* no function of the driver is called */
static struct line lines[STREAMS_MAX];
static unsigned n_lines;
static struct mark *marks[BUCKETS];
static const uint64_t *words;
static CUdeviceptr words_device;
static CUcontext home; /* the context in which the words are registered */
static unsigned long long home_id;

/* ---- the words ---- */

/* A child of fork() has no streams, and no thread that could let go of the lock. */
static void forked(void)
{
        const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;

        lock = fresh;
        atomic_store(&begun, false);
}

static bool make_words(void)
{
        static bool told;
        void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (at == MAP_FAILED)
                return false;
        told = told || pthread_atfork(NULL, NULL, forked) == 0;
        if (!told || real_cuda()->cuCtxGetCurrent(&home) != CUDA_SUCCESS ||
            real_cuda()->cuMemHostRegister_v2(
                    at, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE) !=
                    CUDA_SUCCESS ||
            real_cuda()->cuMemHostGetDevicePointer_v2(&words_device, at, 0) != CUDA_SUCCESS) {
                (void)munmap(at, BYTES);
                return false;
        }
        if (real_cuda()->cuCtxGetId(home, &home_id) != CUDA_SUCCESS)
                home_id = 0;
        words = at;
        return true;
}

/* Forgets the streams and events of a context that was reset. */
static void forget_all(void)
{
        (void)pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < BUCKETS; i++)
                while (marks[i]) {
                        struct mark *m = marks[i];

                        marks[i] = m->next;
                        free(m);
                }
        for (unsigned i = 0; i < n_lines; i++) {
                lines[i].used = false;
                lines[i].last = 0;
        }
        (void)pthread_mutex_unlock(&lock);
}

void events_begin(void)
{
        static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

        (void)pthread_mutex_lock(&making);
        if (!atomic_load(&begun)) {
                forget_all();
                atomic_store(&begun, make_words());
        }
        (void)pthread_mutex_unlock(&making);
}

/* False once the context of the words was reset: its memory is no longer registered. */
static bool is_ready(void)
{
        CUcontext now = NULL;
        unsigned long long id = home_id;

        if (!atomic_load_explicit(&begun, memory_order_relaxed))
                return false;
        if (real_cuda()->cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == home && home_id)
                (void)real_cuda()->cuCtxGetId(now, &id);
        if (id != home_id)
                atomic_store(&begun, false);
        return id == home_id;
}

static bool is_written(unsigned line, uint64_t value)
{
        return __atomic_load_n(&words[line], __ATOMIC_ACQUIRE) >= value;
}

/* ---- lines ---- */

/* Returns the context of a default stream, whose handle says nothing; NULL for other streams. */
static CUcontext context_of(CUstream stream)
{
        CUcontext context = NULL;

        if (!stream || stream == CU_STREAM_LEGACY)
                (void)real_cuda()->cuCtxGetCurrent(&context);
        return context;
}

/* Returns the stream's line; STREAMS_MAX: it has none. Lock held. */
static unsigned find_line(CUstream stream, CUcontext context)
{
        unsigned i = 0;

        while (i < n_lines && !(lines[i].used && lines[i].context == context &&
                                (context || lines[i].stream == stream)))
                i++;
        return i < n_lines ? i : STREAMS_MAX;
}

/* The same, and makes a line if there is none. Lock held. */
static unsigned have_line(CUstream stream, CUcontext context)
{
        unsigned i = find_line(stream, context);

        if (i < STREAMS_MAX)
                return i;
        for (i = 0; i < n_lines; i++)
                if (!lines[i].used && is_written(i, lines[i].last))
                        break;
        if (i == STREAMS_MAX)
                return i;
        if (i == n_lines) {
                (void)pthread_mutex_init(&lines[i].writes, NULL);
                n_lines++;
        }
        lines[i].stream = stream;
        lines[i].context = context;
        lines[i].waits = false;
        lines[i].used = true;
        return i;
}

/* True if values may be put into the stream. A graph would repeat them. Each thread has a stream
 * with the handle CU_STREAM_PER_THREAD. */
static bool takes_values(CUstream stream)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        return stream != CU_STREAM_PER_THREAD &&
               real_cuda()->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
               status == CU_STREAM_CAPTURE_STATUS_NONE;
}

static void note_wait(CUstream stream, CUcontext context)
{
        unsigned line;

        (void)pthread_mutex_lock(&lock);
        line = have_line(stream, context);
        if (line < STREAMS_MAX)
                lines[line].waits = true;
        (void)pthread_mutex_unlock(&lock);
}

void events_note_wait(CUstream stream, bool captured)
{
        if (captured) /* the graph may be launched in any stream */
                atomic_store(&always, true);
        else if (stream != CU_STREAM_PER_THREAD && is_ready())
                note_wait(stream, context_of(stream));
}

static void forget_stream(CUstream stream)
{
        unsigned line;

        if (!atomic_load(&begun))
                return;
        (void)pthread_mutex_lock(&lock);
        line = find_line(stream, NULL);
        if (line < STREAMS_MAX)
                lines[line].used = false;
        (void)pthread_mutex_unlock(&lock);
}

/* Returns the line of a stream whose events need values: what is in it may wait for other ranks.
 * STREAMS_MAX: they need none. */
static unsigned line_that_waits(CUstream stream, CUcontext context)
{
        unsigned line;

        (void)pthread_mutex_lock(&lock);
        line = atomic_load(&always) ? have_line(stream, context) : find_line(stream, context);
        if (line < STREAMS_MAX && !lines[line].waits && !atomic_load(&always) &&
            is_written(line, lines[line].last))
                line = STREAMS_MAX;
        if (line < STREAMS_MAX)
                lines[line].waits = false;
        (void)pthread_mutex_unlock(&lock);
        return line;
}

/* ---- events ---- */

static struct mark **place_of(CUevent event)
{
        struct mark **at = &marks[((uintptr_t)event >> 4) % BUCKETS];

        while (*at && (*at)->event != event)
                at = &(*at)->next;
        return at;
}

/* value: 0: the event has none. */
static void set_mark(CUevent event, unsigned line, uint64_t value)
{
        struct mark **at, *m;

        (void)pthread_mutex_lock(&lock);
        at = place_of(event);
        m = *at;
        if (!value && m) {
                *at = m->next;
                free(m);
        } else if (value && !m) {
                m = *at = calloc(1, sizeof(*m));
                if (m)
                        m->event = event;
        }
        if (value && m) {
                m->line = line;
                m->value = value;
        }
        (void)pthread_mutex_unlock(&lock);
}

static void forget_event(CUevent event)
{
        if (atomic_load(&begun))
                set_mark(event, 0, 0);
}

struct record {
        CUevent event;
        CUstream stream;
        unsigned flags;
        bool has_flags;
};

static CUresult record_plainly(const struct record *r)
{
        return r->has_flags ? real_cuda()->cuEventRecordWithFlags(r->event, r->stream, r->flags)
                            : real_cuda()->cuEventRecord(r->event, r->stream);
}

/* Records the event and puts its value behind it. */
static CUresult record(const struct record *r)
{
        unsigned line = STREAMS_MAX;
        uint64_t value = 0;
        CUresult e;

        if (!atomic_load_explicit(&begun, memory_order_relaxed))
                return record_plainly(r);
        if (is_ready() && takes_values(r->stream))
                line = line_that_waits(r->stream, context_of(r->stream));
        if (line < STREAMS_MAX && pthread_mutex_trylock(&lines[line].writes) != 0) {
                note_wait(r->stream, context_of(r->stream)); /* for the next event */
                line = STREAMS_MAX;
        }
        e = record_plainly(r);
        if (line < STREAMS_MAX) {
                const uint64_t next = lines[line].last + 1;

                if (e == CUDA_SUCCESS && real_cuda()->cuStreamWriteValue64_v2(
                                                 r->stream, words_device + line * sizeof(uint64_t),
                                                 next, 0) == CUDA_SUCCESS)
                        lines[line].last = value = next;
                (void)pthread_mutex_unlock(&lines[line].writes);
        }
        if (e == CUDA_SUCCESS)
                set_mark(r->event, line, value);
        return e;
}

CUresult events_record(CUevent event, CUstream stream)
{
        return record(&(struct record){.event = event, .stream = stream});
}

bool events_has_passed(CUevent event)
{
        const struct mark *m;
        bool r;

        if (!atomic_load(&begun) || pthread_mutex_trylock(&lock) != 0)
                return false;
        m = *place_of(event);
        r = m && is_written(m->line, m->value);
        (void)pthread_mutex_unlock(&lock);
        return r;
}

/* True if the event's value is not there yet, and another stream writes it. */
static bool must_wait(CUstream stream, CUcontext context, CUevent event, CUdeviceptr *ret_at,
                      uint64_t *ret_value)
{
        const struct mark *m;
        bool r = false;

        (void)pthread_mutex_lock(&lock);
        m = *place_of(event);
        if (m && !is_written(m->line, m->value) && find_line(stream, context) != m->line) {
                *ret_at = words_device + m->line * sizeof(uint64_t);
                *ret_value = m->value;
                r = true;
        }
        (void)pthread_mutex_unlock(&lock);
        return r;
}

static CUresult wait(CUstream stream, CUevent event, unsigned flags)
{
        CUcontext context;
        CUdeviceptr at;
        uint64_t value;

        if (is_ready()) {
                context = context_of(stream);
                if (must_wait(stream, context, event, &at, &value) && takes_values(stream)) {
                        (void)real_cuda()->cuStreamWaitValue64_v2(stream, at, value,
                                                                  CU_STREAM_WAIT_VALUE_GEQ);
                        note_wait(stream, context);
                }
        }
        return real_cuda()->cuStreamWaitEvent(stream, event, flags);
}

CUresult events_wait(CUstream stream, CUevent event)
{
        return wait(stream, event, 0);
}

CUresult events_destroy(CUevent event)
{
        forget_event(event);
        return real_cuda()->cuEventDestroy_v2(event);
}

/* The driver may give the handle to a new stream as soon as this one is destroyed. */
CUresult events_destroy_stream(CUstream stream)
{
        forget_stream(stream);
        return real_cuda()->cuStreamDestroy_v2(stream);
}

/* ---- what the program calls ---- */

#define ENTRY(symbol, params) ENTRY_RETURNING(CUresult, symbol, params)

ENTRY(cuEventRecord, (CUevent event, CUstream stream))
{
        return events_record(event, stream);
}

ENTRY(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags))
{
        return record(&(struct record){event, stream, flags, true});
}

ENTRY(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))
{
        return wait(stream, event, flags);
}

ENTRY(cuEventDestroy, (CUevent event))
{
        forget_event(event);
        return real_cuda()->cuEventDestroy(event);
}

ENTRY(cuEventDestroy_v2, (CUevent event))
{
        return events_destroy(event);
}

ENTRY(cuStreamDestroy, (CUstream stream))
{
        forget_stream(stream);
        return real_cuda()->cuStreamDestroy(stream);
}

ENTRY(cuStreamDestroy_v2, (CUstream stream))
{
        return events_destroy_stream(stream);
}

void *events_replace(const char *symbol)
{
        static const struct entry rows[] = {
                {"cuEventRecord", (void *)entry_cuEventRecord},
                {"cuEventRecordWithFlags", (void *)entry_cuEventRecordWithFlags},
                {"cuStreamWaitEvent", (void *)entry_cuStreamWaitEvent},
                {"cuEventDestroy", (void *)entry_cuEventDestroy},
                {"cuEventDestroy_v2", (void *)entry_cuEventDestroy_v2},
                {"cuStreamDestroy", (void *)entry_cuStreamDestroy},
                {"cuStreamDestroy_v2", (void *)entry_cuStreamDestroy_v2},
        };

        return entry_find(rows, ARRAY_SIZE(rows), symbol);
}
