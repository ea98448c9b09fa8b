/* pool_streams.c: owns the list of pools, the frees of each stream, and how many of its frees each
 * stream has reached. Must never query a stream or record an event during a capture. */
#include "preload/pool/pool_state.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/heap/suballocator.h"
#include "preload/stream/quiesce.h"
#include "preload/state/request.h"

#define FREE_LISTS_KEPT 16u          /* how many records of streams without freed memory are kept */
#define RECORDS_NS      NSEC_PER_SEC /* how long to wait for a stream whose queue is full */

struct pool *pools;
bool pool_tending;
uint64_t pool_tend_ns;
static unsigned recording; /* threads that record events without the lock */

void pool_tend_soon(void)
{
        if (!pool_tending) {
                pool_tending = true;
                pool_tend_ns = clock_now_ns() + POOL_REST_NS;
                request_kick();
        }
}

struct pool_free_list *pool_list_find(const struct pool *p, const struct pool_stream *s)
{
        struct pool_free_list *l = p->free_lists;

        while (l && (l->gone || !frees_covers(s, &l->stream)))
                l = l->next;
        return l;
}

struct pool_free_list *pool_list_get(struct pool *p, const struct pool_stream *s)
{
        struct pool_free_list *l = pool_list_find(p, s);

        if (l)
                return l;
        l = calloc(1, sizeof(*l));
        if (!l)
                return NULL;
        l->stream = *s;
        if (!s->context && real.cuStreamGetCtx(s->handle, &l->stream.context) != CUDA_SUCCESS) {
                free(l);
                return NULL;
        }
        l->name = ++p->names;
        l->next = p->free_lists;
        p->free_lists = l;
        return l;
}

/* Record an event behind all frees of the stream so far. The lock is given up, because recording
 * blocks if the stream's queue is full. */
static void free_list_record(struct pool_free_list *l) UNLOCKS(core_lock)
{
        uint64_t freed = l->freed;
        CUresult r;

        l->looking = true;
        recording++;
        lock_release(&core_lock);
        r = quiesce_record(&l->event, l->stream.context, l->stream.handle);
        lock_acquire(&core_lock);
        recording--;
        l->looking = false;
        bell_ring(&core.changed);
        if (r == CUDA_SUCCESS) {
                l->marked = freed;
                l->pending = true;
        }
}

/* True if this thread can query the stream. A per-thread default stream can be named only by its
 * own thread, which records an event at each free. */
static bool free_list_can_be_asked(const struct pool_free_list *l)
{
        return !l->gone && l->stream.handle != CU_STREAM_PER_THREAD;
}

/* Give the freed memory of a stream to all streams, as far as the stream has reached the frees.
 * record: record an event if none is pending; the lock is given up for that. */
static void free_list_look(struct pool *p, struct pool_free_list *l, bool record) UNLOCKS(core_lock)
{
        if (l->looking || quiesce_capturing())
                return;
        /* Any answer but CUDA_ERROR_NOT_READY means that the work is done: if the context is gone,
         * so is its work. */
        if (l->done < l->freed && l->pending &&
            quiesce_ask_event(l->event, l->stream.context) != CUDA_ERROR_NOT_READY) {
                l->pending = false;
                l->done = MAX(l->done, l->marked);
        }
        if (l->done < l->freed && free_list_can_be_asked(l)) {
                if (quiesce_ask_stream(l->stream.handle, l->stream.context) != CUDA_ERROR_NOT_READY)
                        l->done = l->freed;
                else if (record && !l->pending)
                        free_list_record(l);
        }
        suballocator_pass(&l->free, l->done, &p->suballocator.common, 0);
}

static void free_lists_prune(struct pool *p)
{
        unsigned empty = 0;

        for (struct pool_free_list **link = &p->free_lists, *l; (l = *link);) {
                bool spare = l->free.bytes == 0 && !l->looking && !l->waiters;

                if (!spare || (!l->gone && ++empty <= FREE_LISTS_KEPT)) {
                        link = &l->next;
                        continue;
                }
                pool_settle_frees(p, l); /* without the record, no wait can be noted in it */
                *link = l->next;
                if (l->event)
                        (void)real.cuEventDestroy_v2(l->event);
                free(l);
        }
}

bool pool_look(struct pool *p, bool record)
{
        CUstreamCaptureMode mode = core_relax();
        uint64_t before = p->suballocator.common.bytes;

        p->users++;
        for (struct pool_free_list *l = p->free_lists; l; l = l->next)
                if (l->free.bytes)
                        free_list_look(p, l, record);
        free_lists_prune(p);
        p->users--;
        core_unrelax(mode);
        return p->suballocator.common.bytes > before;
}

void pool_await_records(void)
{
        struct core_wait w = {.what = "events of its own"};
        uint64_t until = clock_now_ns() + RECORDS_NS, now;

        while (recording && (now = clock_now_ns()) < until && !core_passive())
                core_wait(&w, until - now);
}

static void free_list_await(struct pool_free_list *l) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "an event of its own"};

        l->waiters++;
        while (l->looking)
                core_wait(&w, UINT64_MAX);
        l->waiters--;
}

void pool_stream_dies(CUstream stream)
{
        CUstreamCaptureMode mode = core_relax();

        for (struct pool *p = pools; p; p = p->next)
                for (struct pool_free_list *l = p->free_lists; l; l = l->next) {
                        if (l->gone || l->stream.handle != stream)
                                continue;
                        free_list_await(l);
                        free_list_look(p, l, false);
                        /* The last chance to record an event: do it even while other threads
                         * capture. */
                        if (l->done < l->freed && l->marked < l->freed &&
                            !quiesce_is_capturing(stream))
                                free_list_record(l);
                        l->gone = true;
                }
        core_unrelax(mode);
}

void pool_context_dies(CUcontext context)
{
        for (struct pool *p = pools; p; p = p->next)
                for (struct pool_free_list *l = p->free_lists; l; l = l->next) {
                        if (l->stream.context != context)
                                continue;
                        free_list_await(l);
                        l->gone = true;
                        l->pending = false;
                        l->event = NULL; /* the event ends with its context */
                        l->done = l->marked = l->freed;
                        pool_settle_frees(p, l);
                        suballocator_pass(&l->free, l->done, &p->suballocator.common, 0);
                }
}

bool pool_borrow(struct pool *p, const struct pool_stream *s, uint64_t bytes)
{
        struct pool_free_list *own, *l = p->free_lists;
        uint64_t held;
        CUresult r;

        if (!p->may_wait || quiesce_capturing())
                return false;
        while (l && (l->looking || frees_covers(s, &l->stream) ||
                     !suballocator_fit(&l->free, bytes, false)))
                l = l->next;
        own = l ? pool_list_get(p, s) : NULL;
        if (!own || own->looking)
                return false;
        own->looking = true; /* keeps both streams' records alive */
        if (free_list_can_be_asked(l))
                free_list_record(l);
        l->looking = true;
        recording++;
        lock_release(&core_lock);
        r = l->event ? real.cuStreamWaitEvent(s->handle, l->event, 0) : CUDA_ERROR_INVALID_HANDLE;
        lock_acquire(&core_lock);
        recording--;
        l->looking = own->looking = false;
        bell_ring(&core.changed);
        held = l->free.bytes;
        if (r == CUDA_SUCCESS)
                suballocator_pass(&l->free, l->marked, &own->free, own->freed = frees_next());
        return l->free.bytes < held; /* false if the event is older than the frees of that memory */
}

void pool_mark(const struct block *b, const struct pool_stream *s)
{
        struct pool *p =
                b->chunk ? container_of(b->chunk->suballocator, struct pool, suballocator) : NULL;
        struct pool_free_list *l = p ? pool_list_find(p, s) : NULL;

        if (!l)
                return;
        free_list_await(l);
        free_list_record(l);
}
