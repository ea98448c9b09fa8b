/* stream.c: the queues of streams and their threads. Must never hold sim.lock while an operation
 * runs, because host functions are the program's code. */
#include "sim/queue/stream.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sim/queue/capture.h"

struct op {
        struct op *next;
        uint64_t number;
        uint64_t order; /* of submission, among all streams */
        struct point *after;
        size_t count;
        struct work work;
};

/* The queue of a stream holds at most this number of operations that have not ended, about as many
 * as on a real card. */
#define STREAM_QUEUE 1024u

#define CONNECTIONS_MAX 32

static struct CUstream_st *stream_all, *stream_spare;
static uint64_t stream_last_id, last_order;
/* Wakes host threads when an operation has ended. Each stream's thread has its own condition. */
static pthread_cond_t stream_progress = PTHREAD_COND_INITIALIZER;

/* A default stream of this thread, one for each context. The object of a destroyed stream may be
 * reused by another thread: the id tells the streams apart. */
struct thread_stream {
        struct thread_stream *next;
        CUstream stream;
        uint64_t id;
};
static __thread struct thread_stream *thread_streams;
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

bool point_reached(const struct point *p)
{
        return !p->stream || p->stream->done >= p->number;
}

/* ---- the thread of a stream ---- */

static bool op_ready(const struct op *op)
{
        for (size_t i = 0; i < op->count; i++)
                if (!point_reached(&op->after[i]))
                        return false;
        return true;
}

/* Returns CUDA_DEVICE_MAX_CONNECTIONS, or 0: each stream has a connection of its own. */
static unsigned connections(void)
{
        static int known = -1;

        if (known < 0) {
                const char *setting = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
                const int n = setting ? atoi(setting) : 0;

                known = n > 0 && n <= CONNECTIONS_MAX ? n : 0;
        }
        return (unsigned)known;
}

static bool shares_connection(CUstream a, CUstream b)
{
        return a != b && a->id % connections() == b->id % connections() &&
               b != a->context->gather && b != a->context->hold;
}

/* True if the next operation of a stream is behind a wait of another stream. Work of one connection
 * begins in the order of submission, and a wait holds up what is behind it. */
static bool is_behind_wait(CUstream s)
{
        const CUcontext c = s->context;

        if (connections() == 0 || s == c->gather || s == c->hold)
                return false;
        for (CUstream o = c->streams; o; o = o->next_of_context)
                for (const struct op *op = shares_connection(s, o) ? o->first : NULL;
                     op && op->order < s->first->order; op = op->next)
                        if (op->work.kind == WORK_WAIT_VALUE || op->work.kind == WORK_AWAIT_EVENT ||
                            !op_ready(op))
                                return true;
        return false;
}

static void op_free(struct op *op)
{
        work_clear(&op->work);
        free(op->after);
        free(op);
}

static void stream_wake_dependants(void)
{
        for (struct CUstream_st *s = stream_all; s; s = s->next_all)
                if (s->waiting && s->first)
                        pthread_cond_signal(&s->wake);
        pthread_cond_broadcast(&stream_progress);
}

/* Frees the object of a destroyed and idle stream for reuse. */
static void stream_retire(CUstream s)
{
        struct CUstream_st **p = &s->context->streams;

        while (*p && *p != s)
                p = &(*p)->next_of_context;
        if (*p)
                *p = s->next_of_context;
        s->magic = s->context->alive ? 0 : MAGIC_ORPHAN;
        s->next_free = stream_spare;
        stream_spare = s;
}

/* Tells channel.c the channels of the stream. Needs sim.lock. */
static void stream_sit(const struct CUstream_st *s)
{
        const struct channels_of *own = &s->context->queues.channels;
        const struct channels_of *all = &context_owner(s->context)->queues.channels;

        channel_sit(own->compute[s->id % CHANNELS_COMPUTE], all->copy[s->id % CHANNELS_COPY],
                    s->context->error);
}

static void *stream_thread(void *argument)
{
        struct CUstream_st *s = argument;

        pthread_mutex_lock(&sim.lock);
        for (;;) {
                CUcontext c = s->context;
                struct op *op;
                CUresult r;

                while (!(s->first && op_ready(s->first) && !is_behind_wait(s)) &&
                       !(s->destroyed && !s->first)) {
                        s->waiting = true;
                        pthread_cond_wait(&s->wake, &sim.lock);
                        s->waiting = false;
                }
                op = s->first;
                if (!op)
                        break;
                stream_sit(s);
                pthread_mutex_unlock(&sim.lock);
                /* After a failure operations end without running. */
                if (!context_cancelled(c)) {
                        r = work_run(c, &op->work);
                        if (r != CUDA_SUCCESS && !atomic_load(&sim.exiting))
                                context_fail(c, r);
                }
                pthread_mutex_lock(&sim.lock);
                s->first = op->next;
                if (!s->first)
                        s->last = &s->first;
                s->done = op->number;
                stream_wake_dependants();
                /* op_free() takes the lock itself if the work is a graph. */
                pthread_mutex_unlock(&sim.lock);
                op_free(op);
                pthread_mutex_lock(&sim.lock);
        }
        s->worker = false;
        stream_retire(s);
        pthread_mutex_unlock(&sim.lock);
        return NULL;
}

static CUresult stream_start(CUstream s)
{
        sigset_t all, old;
        pthread_attr_t attr;
        pthread_t thread;
        int r;

        if (s->worker)
                return CUDA_SUCCESS;
        /* The program's own threads must receive its signals. */
        (void)sigfillset(&all);
        (void)sigdelset(&all, SIGSEGV); /* a host function may touch managed memory */
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        (void)pthread_attr_init(&attr);
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        r = pthread_create(&thread, &attr, stream_thread, s);
        (void)pthread_attr_destroy(&attr);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (r)
                return CUDA_ERROR_OPERATING_SYSTEM;
        s->worker = true;
        return CUDA_SUCCESS;
}

void stream_abandon(void)
{
        pthread_mutex_lock(&sim.lock);
        stream_wake_dependants();
        pthread_mutex_unlock(&sim.lock);
}

/* ---- submission ---- */

static void after_add(struct point *after, size_t *count, CUstream s)
{
        if (s->submitted > s->done)
                after[(*count)++] = (struct point){s, s->submitted};
}

CUresult stream_submit_locked(CUstream s, struct work *w, const struct point *after, size_t count,
                              struct point *ret_point)
{
        CUcontext c = s->context;
        size_t streams = 1, n = 0;
        struct op *op;
        CUresult r;

        r = (CUresult)atomic_load(c->error);
        if (r == CUDA_SUCCESS && !c->alive)
                r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        if (r == CUDA_SUCCESS)
                r = stream_start(s);
        if (r != CUDA_SUCCESS)
                goto drop;

        if (s->legacy)
                for (CUstream o = c->streams; o; o = o->next_of_context)
                        streams++;
        op = calloc(1, sizeof(*op));
        if (!op)
                goto no_memory;
        op->after = calloc(streams + 1 + count, sizeof(*op->after));
        if (!op->after) {
                free(op);
                goto no_memory;
        }
        if (s->legacy) {
                for (CUstream o = c->streams; o; o = o->next_of_context)
                        if (o != s && !(o->flags & CU_STREAM_NON_BLOCKING))
                                after_add(op->after, &n, o);
        } else if (!(s->flags & CU_STREAM_NON_BLOCKING)) {
                after_add(op->after, &n, c->legacy);
        }
        if (c->hold && s != c->hold)
                after_add(op->after, &n, c->hold);
        for (size_t i = 0; i < count; i++)
                if (!point_reached(&after[i]))
                        op->after[n++] = after[i];
        op->count = n;
        op->number = ++s->submitted;
        op->order = ++last_order;
        op->work = *w;
        memset(w, 0, sizeof(*w));
        *s->last = op;
        s->last = &op->next;
        if (s->waiting)
                pthread_cond_signal(&s->wake);
        if (ret_point)
                *ret_point = (struct point){s, op->number};
        return CUDA_SUCCESS;

no_memory:
        r = CUDA_ERROR_OUT_OF_MEMORY;
drop:
        work_clear(w);
        return r;
}

CUresult stream_submit_behind_all(CUcontext c, struct work *w, struct point *ret_point)
{
        struct point *all;
        size_t n = 0;
        CUresult r = CUDA_SUCCESS;

        if (!c->gather)
                r = stream_new(c, CU_STREAM_NON_BLOCKING, 0, &c->gather);
        for (CUstream s = c->streams; s; s = s->next_of_context)
                n++;
        all = calloc(n + 1, sizeof(*all));
        if (r != CUDA_SUCCESS || !all) {
                free(all);
                work_clear(w);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        n = 0;
        for (CUstream s = c->streams; s; s = s->next_of_context)
                if (s != c->gather && s != c->hold)
                        after_add(all, &n, s);
        r = stream_submit_locked(c->gather, w, all, n, ret_point);
        free(all);
        return r;
}

CUresult stream_hold_all(CUcontext c, struct work *w, const struct point *until)
{
        CUresult r = c->hold ? CUDA_SUCCESS : stream_new(c, CU_STREAM_NON_BLOCKING, 0, &c->hold);

        if (r == CUDA_SUCCESS)
                return stream_submit_locked(c->hold, w, until, 1, NULL);
        work_clear(w);
        return r;
}

void stream_hear(CUstream s, struct point p)
{
        struct point *more;

        for (size_t i = 0; i < s->heards; i++)
                if (s->heard[i].stream == p.stream) {
                        s->heard[i].number = p.number;
                        return;
                }
        more = p.stream ? reallocarray(s->heard, s->heards + 1, sizeof(*more)) : NULL;
        if (!more)
                return; /* the stream only remembers fewer points */
        s->heard = more;
        s->heard[s->heards++] = p;
}

bool stream_follows(CUstream s, const struct point *p)
{
        for (size_t i = 0; i < s->heards; i++)
                if (s->heard[i].stream == p->stream)
                        return s->heard[i].number >= p->number;
        return false;
}

bool stream_awaited(CUcontext c, const struct point *waited, const struct point *p)
{
        if (!waited)
                return p->stream->context == c && point_reached(p);
        if (waited->stream == p->stream)
                return p->number <= waited->number;
        return waited->stream && stream_follows(waited->stream, p);
}

void stream_await_room(CUstream s)
{
        while (!s->capture && s->submitted - s->done >= STREAM_QUEUE &&
               !atomic_load(&sim.exiting) && atomic_load(s->context->error) == CUDA_SUCCESS)
                pthread_cond_wait(&stream_progress, &sim.lock);
}

CUresult stream_submit(CUstream s, struct work *w, const struct point *after, size_t count)
{
        CUresult r;

        pthread_mutex_lock(&sim.lock);
        if (s->capture) {
                r = capture_add(s, w);
        } else {
                stream_await_room(s);
                r = capture_implicit(s);
                if (r == CUDA_SUCCESS)
                        r = stream_submit_locked(s, w, after, count, NULL);
                else
                        work_clear(w);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

CUresult stream_submit_free(CUstream s, struct work *w, bool wait)
{
        struct point p;
        CUresult r = s->capture ? capture_refuses_sync(s) : capture_implicit(s);

        if (r != CUDA_SUCCESS) {
                work_clear(w);
                return r;
        }
        r = stream_submit_locked(s, w, NULL, 0, &p);
        return r == CUDA_SUCCESS && wait ? point_wait(s->context, p) : r;
}

/* ---- waiting ---- */

CUresult point_wait(CUcontext c, struct point p)
{
        while (!point_reached(&p)) {
                if (atomic_load(&sim.exiting))
                        return CUDA_ERROR_DEINITIALIZED;
                pthread_cond_wait(&stream_progress, &sim.lock);
        }
        return (CUresult)atomic_load(c->error);
}

/* Iterates over a context and its green contexts. */
static CUcontext next_part(CUcontext c, CUcontext o)
{
        return o == c ? c->greens : o->next_green;
}

CUresult context_wait_locked(CUcontext c)
{
        struct point *all;
        size_t n = 0;

        for (CUcontext o = c; o; o = next_part(c, o))
                for (CUstream s = o->streams; s; s = s->next_of_context)
                        n++;
        all = calloc(n ? n : 1, sizeof(*all));
        if (!all)
                return CUDA_ERROR_OUT_OF_MEMORY;
        n = 0;
        for (CUcontext o = c; o; o = next_part(c, o))
                for (CUstream s = o->streams; s; s = s->next_of_context)
                        all[n++] = (struct point){s, s->submitted};
        for (size_t i = 0; i < n; i++)
                (void)point_wait(c, all[i]);
        free(all);
        return (CUresult)atomic_load(c->error);
}

CUresult context_wait(CUcontext c)
{
        CUresult r;

        pthread_mutex_lock(&sim.lock);
        r = context_wait_locked(c);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* ---- streams as objects ---- */

CUresult stream_new(CUcontext c, unsigned flags, int priority, CUstream *ret_stream)
{
        CUstream s = stream_spare;

        if (s) {
                stream_spare = s->next_free;
        } else {
                s = calloc(1, sizeof(*s));
                if (!s)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                (void)pthread_cond_init(&s->wake, NULL);
                s->next_all = stream_all;
                stream_all = s;
        }
        s->magic = MAGIC_STREAM;
        s->context = c;
        s->flags = flags;
        s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
        s->id = ++stream_last_id;
        s->legacy = false;
        s->destroyed = false;
        s->first = NULL;
        s->last = &s->first;
        s->capture = NULL;
        s->heards = 0;
        s->next_of_context = c->streams;
        c->streams = s;
        *ret_stream = s;
        return CUDA_SUCCESS;
}

void stream_destroy(CUstream s)
{
        if (s->capture)
                capture_stream_gone(s);
        s->destroyed = true;
        if (!s->worker)
                stream_retire(s);
        else if (s->waiting)
                pthread_cond_signal(&s->wake);
}

void stream_destroy_all(CUcontext c)
{
        for (CUstream s = c->streams, next; s; s = next) {
                next = s->next_of_context;
                if (!s->destroyed)
                        stream_destroy(s);
        }
}

static bool thread_stream_lives(const struct thread_stream *t)
{
        return t->stream->id == t->id && !t->stream->destroyed;
}

static void thread_ends(void *list)
{
        struct thread_stream **head = list;

        pthread_mutex_lock(&sim.lock);
        for (struct thread_stream *t; (t = *head);) {
                *head = t->next;
                if (thread_stream_lives(t))
                        stream_destroy(t->stream);
                free(t);
        }
        pthread_mutex_unlock(&sim.lock);
}

static void thread_make_key(void)
{
        (void)pthread_key_create(&thread_key, thread_ends);
}

/* Returns the calling thread's default stream in c. Drops streams of destroyed contexts from the
 * thread's list. */
static CUresult stream_of_thread(CUcontext c, CUstream *ret_stream)
{
        struct thread_stream **p = &thread_streams, *t;
        CUresult r;

        (void)pthread_once(&thread_once, thread_make_key);
        while ((t = *p)) {
                if (!thread_stream_lives(t)) {
                        *p = t->next;
                        free(t);
                        continue;
                }
                if (t->stream->context == c) {
                        *ret_stream = t->stream;
                        return CUDA_SUCCESS;
                }
                p = &t->next;
        }
        t = malloc(sizeof(*t));
        r = t ? stream_new(c, 0, 0, ret_stream) : CUDA_ERROR_OUT_OF_MEMORY;
        if (r != CUDA_SUCCESS) {
                free(t);
                return r;
        }
        *t = (struct thread_stream){thread_streams, *ret_stream, (*ret_stream)->id};
        thread_streams = t;
        (void)pthread_setspecific(thread_key, &thread_streams);
        return CUDA_SUCCESS;
}

CUresult stream_check(CUstream handle)
{
        if (handle->magic == MAGIC_ORPHAN ||
            (handle->magic == MAGIC_STREAM && handle->destroyed && !handle->context->alive))
                return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return handle->magic == MAGIC_STREAM && !handle->destroyed ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_resolve(CUcontext c, CUstream handle, CUstream *ret_stream)
{
        CUresult r = CUDA_SUCCESS;

        if (!handle)
                handle = sim_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
        if (handle == CU_STREAM_LEGACY) {
                *ret_stream = c->legacy;
        } else if (handle == CU_STREAM_PER_THREAD) {
                pthread_mutex_lock(&sim.lock);
                r = stream_of_thread(c, ret_stream);
                pthread_mutex_unlock(&sim.lock);
        } else {
                r = stream_check(handle);
                if (r == CUDA_SUCCESS)
                        *ret_stream = handle;
        }
        return r;
}

CUresult stream_enter(const char *function, CUstream *stream, CUcontext *ret_context)
{
        CUresult r = api_enter(function, API_CONTEXT, ret_context);

        return r != CUDA_SUCCESS ? r : stream_resolve(*ret_context, *stream, stream);
}
