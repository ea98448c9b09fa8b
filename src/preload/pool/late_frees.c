/* late_frees.c: owns the memory that the program has freed while submitted work may still use it.
 * Must never release such memory before that work is done. */
#include "preload/pool/late_frees.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "preload/move/swap.h"
#include "preload/move/trouble.h"
#include "preload/pool/pool.h"
#include "preload/share/ipc.h"
#include "preload/state/core.h"
#include "preload/state/request.h"
#include "preload/stream/quiesce.h"

#define LATER_NS (10 * NSEC_PER_MSEC)

static bool late_tending; /* a thread is in late_tend(), which may give up the lock */
static bool late_waiting;
static struct quiesce_wait late_wait;
static struct late {
        CUdeviceptr address;
        uint64_t block_id;
        struct pool_stream stream; /* its handle is NULL if the free has no order */
        uint64_t number;           /* with an order: the number of the free (frees.h) */
        bool covered;              /* without an order: late_wait covers it */
        bool reached;              /* no work uses the memory any more */
} * late;
static size_t late_count, late_room;

bool late_is(const struct heap_place *p)
{
        for (size_t i = 0; i < late_count; i++)
                if (late[i].address == p->start && late[i].block_id == p->block->id)
                        return true;
        return false;
}

/* Record a free for later. False: no host memory for the record. */
static bool reap_later(const struct heap_place *p, const struct pool_stream *s) REQUIRES(core_lock)
{
        if (late_count == late_room) {
                size_t room = late_room ? late_room * 2 : 64;
                struct late *more = realloc(late, room * sizeof(*more));

                if (!more)
                        return false;
                late = more;
                late_room = room;
        }
        late[late_count] = (struct late){.address = p->start, .block_id = p->block->id};
        if (s) {
                late[late_count].stream = *s;
                late[late_count].number = frees_next();
        }
        late_count++;
        p->block->late = true;
        return true;
}

/* True if the block never got memory, so that no submitted work can use it. */
static bool was_never_backed(const struct block *b)
{
        if (b->kind == BLOCK_SLAB)
                return false; /* other allocations may have used its extents */
        for (unsigned i = 0; i < b->extent_count; i++)
                if (b->extents[i].busy || b->extents[i].state != EXTENT_UNBACKED)
                        return false;
        return true;
}

CUresult late_free(struct gpu *g, const struct heap_place *p, const struct pool_stream *s)
{
        struct block *dead;

        if (late_is(p))
                return CUDA_ERROR_INVALID_VALUE;
        ipc_export_freed(p->start);
        if (!s && was_never_backed(p->block) && heap_free(&g->heap, p->start, &dead) == 0) {
                swap_discard(g, dead);
                core_room_changed(g);
        } else if (!reap_later(p, s)) {
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        request_kick();
        return CUDA_SUCCESS;
}

static void reap_gpu(struct gpu *g) UNLOCKS(core_lock)
{
        struct block **link = &g->late;

        while (*link && !trouble_waits(g)) {
                struct block *b = *link;

                if (block_is_busy(b)) {
                        link = &b->next_late; /* a transfer uses the block: try again later */
                        continue;
                }
                *link = b->next_late;
                swap_discard(g, b);
                core_room_changed(g);
                link = &g->late; /* swap_discard() has given up the lock: begin again */
        }
}

/* Returns the GPU of an entry's memory; NULL: the memory is gone with its context. */
static struct gpu *gpu_of(const struct late *l) REQUIRES(core_lock)
{
        struct heap_place p;
        struct gpu *g = core_find(l->address, &p);

        return g && p.block->id == l->block_id && p.start == l->address ? g : NULL;
}

static void free_reached(const struct late *l) REQUIRES(core_lock)
{
        struct block *dead = NULL;
        struct gpu *g = gpu_of(l);

        if (g && heap_free(&g->heap, l->address, &dead) == 0 && dead) {
                dead->next_late = g->late;
                g->late = dead;
        }
}

static void reap(void) REQUIRES(core_lock)
{
        for (size_t i = late_count; i-- > 0;) {
                const struct late l = late[i];

                if (!l.reached)
                        continue;
                late[i] = late[--late_count];
                free_reached(&l);
        }
}

static void reap_gpus(void) UNLOCKS(core_lock)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                reap_gpu(&core.gpus[i]);
}

/* True if the stream has no work. Only its own thread can ask a per-thread default stream. */
static bool stream_is_done(const struct pool_stream *s)
{
        return s->handle != CU_STREAM_PER_THREAD && !quiesce_capturing() &&
               quiesce_ask_stream(s->handle, s->context) != CUDA_ERROR_NOT_READY;
}

static bool is_awaited(const struct late *l, const struct pool_stream *s, uint64_t frees)
        REQUIRES(core_lock)
{
        if (!gpu_of(l))
                return true;
        return s ? l->number <= frees && frees_covers(s, &l->stream) : stream_is_done(&l->stream);
}

bool late_awaited(const struct pool_stream *s, uint64_t frees)
{
        bool all = true;

        for (size_t i = 0; i < late_count; i++) {
                struct late *l = &late[i];

                if (!l->stream.handle || l->reached)
                        continue;
                l->reached = is_awaited(l, s, frees);
                if (l->reached)
                        request_kick();
                all = all && l->reached;
        }
        return all;
}

void late_stream_dies(CUstream stream)
{
        for (size_t i = 0; i < late_count; i++)
                if (late[i].stream.handle == stream) {
                        late[i].stream.handle = NULL;
                        request_kick();
                }
}

static bool any_buried(void) REQUIRES(core_lock)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].late)
                        return true;
        return false;
}

/* True if memory waits for the end of all work. */
static bool any_without_order(void) REQUIRES(core_lock)
{
        for (size_t i = 0; i < late_count; i++)
                if (!late[i].stream.handle)
                        return true;
        return false;
}

static void begin_wait(void) UNLOCKS(core_lock)
{
        for (size_t i = 0; i < late_count; i++)
                late[i].covered = !late[i].stream.handle;
        quiesce_begin(&late_wait, false);
        late_waiting = true;
}

static void end_wait(void) REQUIRES(core_lock)
{
        for (size_t i = 0; i < late_count; i++)
                late[i].reached = late[i].reached || late[i].covered;
        late_waiting = false;
}

static uint64_t tend(void) UNLOCKS(core_lock)
{
        enum quiescence now = QUIESCE_BUSY;

        if ((!late_count && !any_buried()) || quiesce_capturing())
                return UINT64_MAX;
        if (any_without_order()) {
                if (!late_waiting)
                        begin_wait();
                now = quiesce_poll(&late_wait);
                if (now == QUIESCE_DONE)
                        end_wait();
        }
        reap();
        reap_gpus();
        if (now == QUIESCE_CAPTURE)
                return UINT64_MAX; /* a capture has begun */
        return any_without_order() || any_buried() ? LATER_NS : UINT64_MAX;
}

uint64_t late_tend(uint64_t now_ns)
{
        uint64_t again_ns;

        if (late_tending)
                return LATER_NS;
        late_tending = true;
        again_ns = tend();
        late_tending = false;
        return again_ns;
}

bool late_settle(void)
{
        struct core_wait w = {.what = "memory that it has freed"};
        const size_t before = late_count;

        while (late_tending && !core_passive())
                core_wait(&w, NSEC_PER_MSEC);
        (void)late_tend(0);
        return late_count < before;
}
