/* event_values.c: owns the values of events, and the words in which streams write them. A stream
 * writes ever larger values into its word. So the word of a destroyed stream is used again only
 * when its last value is there: an old value after a new one would be a wait without an end.
 * Why: docs/decisions.md, "Streams of a rank wait for values". */
#include "ranks/events/event_values.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/macros.h"
#include "ranks/real/entry.h"
#include "ranks/real/real_functions.h"

#define STREAMS_MAX 1024u /* events of further streams have no values */
#define BUCKETS     1024u
#define BYTES       (STREAMS_MAX * sizeof(uint32_t))

/* A stream with a word of its own. */
struct line {
        CUstream stream;
        CUcontext context; /* of a default stream, whose handle says nothing; else NULL */
        uint32_t last;     /* the last value that is put into the stream */
        bool used;
};

/* An event that has a value. */
struct mark {
        struct mark *next;
        CUevent event;
        unsigned line;
        uint32_t value;
};

static atomic_bool begun;
/* Held while a value is put into a stream, so that values are in order there. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line lines[STREAMS_MAX];
static unsigned n_lines;
static struct mark *marks[BUCKETS];
static const uint32_t *words;
static CUdeviceptr words_device;

void events_begin(void)
{
        void *at = MAP_FAILED;

        (void)pthread_mutex_lock(&lock);
        if (!words)
                at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED) {
                if (real_cuda()->cuMemHostRegister_v2(at, BYTES,
                                                      CU_MEMHOSTREGISTER_DEVICEMAP |
                                                              CU_MEMHOSTREGISTER_PORTABLE) ==
                            CUDA_SUCCESS &&
                    real_cuda()->cuMemHostGetDevicePointer_v2(&words_device, at, 0) ==
                            CUDA_SUCCESS) {
                        words = at;
                        atomic_store(&begun, true);
                } else {
                        (void)munmap(at, BYTES);
                }
        }
        (void)pthread_mutex_unlock(&lock);
}

static bool is_written(unsigned line, uint32_t value)
{
        return (int32_t)(__atomic_load_n(&words[line], __ATOMIC_ACQUIRE) - value) >= 0;
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

static unsigned new_line(CUstream stream, CUcontext context)
{
        unsigned i = 0;

        while (i < n_lines && (lines[i].used || !is_written(i, lines[i].last)))
                i++;
        if (i == STREAMS_MAX)
                return i;
        n_lines = MAX(n_lines, i + 1);
        lines[i].stream = stream;
        lines[i].context = context;
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

static void forget_stream(CUstream stream)
{
        unsigned line;

        (void)pthread_mutex_lock(&lock);
        line = find_line(stream, NULL);
        if (line < STREAMS_MAX)
                lines[line].used = false;
        (void)pthread_mutex_unlock(&lock);
}

/* ---- events ---- */

static struct mark **place_of(CUevent event)
{
        struct mark **at = &marks[((uintptr_t)event >> 4) % BUCKETS];

        while (*at && (*at)->event != event)
                at = &(*at)->next;
        return at;
}

/* Lock held. */
static void forget_mark(CUevent event)
{
        struct mark **at = place_of(event), *m = *at;

        if (m) {
                *at = m->next;
                free(m);
        }
}

static void forget_event(CUevent event)
{
        (void)pthread_mutex_lock(&lock);
        forget_mark(event);
        (void)pthread_mutex_unlock(&lock);
}

/* Puts a value behind the event, which was recorded in the stream. Lock held. */
static void mark_event(CUevent event, CUstream stream)
{
        const CUcontext context = context_of(stream);
        unsigned line = find_line(stream, context);
        struct mark **at = place_of(event);

        if (line == STREAMS_MAX)
                line = new_line(stream, context);
        if (line == STREAMS_MAX || !takes_values(stream) ||
            real_cuda()->cuStreamWriteValue32_v2(stream, words_device + line * sizeof(uint32_t),
                                                 lines[line].last + 1, 0) != CUDA_SUCCESS) {
                forget_mark(event);
                return;
        }
        lines[line].last++;
        if (!*at) {
                *at = calloc(1, sizeof(**at));
                if (!*at)
                        return;
                (*at)->event = event;
        }
        (*at)->line = line;
        (*at)->value = lines[line].last;
}

static CUresult recorded(CUevent event, CUstream stream, CUresult e)
{
        if (e == CUDA_SUCCESS && atomic_load_explicit(&begun, memory_order_relaxed)) {
                (void)pthread_mutex_lock(&lock);
                mark_event(event, stream);
                (void)pthread_mutex_unlock(&lock);
        }
        return e;
}

CUresult events_record(CUevent event, CUstream stream)
{
        return recorded(event, stream, real_cuda()->cuEventRecord(event, stream));
}

bool events_has_passed(CUevent event)
{
        const struct mark *m;
        bool r;

        if (pthread_mutex_trylock(&lock) != 0)
                return false;
        m = *place_of(event);
        r = m && is_written(m->line, m->value);
        (void)pthread_mutex_unlock(&lock);
        return r;
}

/* True if the event's value is not there yet, and another stream writes it. */
static bool must_wait(CUstream stream, CUevent event, CUdeviceptr *ret_at, uint32_t *ret_value)
{
        const struct mark *m;
        bool r = false;

        (void)pthread_mutex_lock(&lock);
        m = *place_of(event);
        if (m && !is_written(m->line, m->value) &&
            find_line(stream, context_of(stream)) != m->line) {
                *ret_at = words_device + m->line * sizeof(uint32_t);
                *ret_value = m->value;
                r = true;
        }
        (void)pthread_mutex_unlock(&lock);
        return r;
}

static CUresult wait(CUstream stream, CUevent event, unsigned flags)
{
        CUdeviceptr at;
        uint32_t value;

        if (atomic_load_explicit(&begun, memory_order_relaxed) &&
            must_wait(stream, event, &at, &value) && takes_values(stream))
                (void)real_cuda()->cuStreamWaitValue32_v2(stream, at, value,
                                                          CU_STREAM_WAIT_VALUE_GEQ);
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
        return recorded(event, stream, real_cuda()->cuEventRecordWithFlags(event, stream, flags));
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
