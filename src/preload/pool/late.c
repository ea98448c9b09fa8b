/* late.c: owns the memory that the program has freed while submitted work may still use it. Must
 * never release such memory before that work is done. */
#include "preload/pool/late.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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
/* A question about freed memory waits for the mark behind the last work to be reached. The waits
 * double from the first one to some 100 ms in all, because a busy machine may stop the threads that
 * reach the mark. */
#define SETTLE_NS    (50 * NSEC_PER_USEC)
#define SETTLE_POLLS 11

static bool late_tending; /* a thread is in late_tend(), which may give up the lock */
static bool late_waiting;
static struct quiesce_wait late_wait;
static struct late {
        CUdeviceptr address;
        uint64_t block_id;
} * late;
static size_t late_count, late_room;
static size_t late_waited; /* the number of oldest entries that late_wait covers */

bool late_is(const struct heap_place *p)
{
        for (size_t i = 0; i < late_count; i++)
                if (late[i].address == p->start && late[i].block_id == p->block->id)
                        return true;
        return false;
}

/* Record a free for later. False: no host memory for the record. */
static bool reap_later(const struct heap_place *p)
{
        if (late_count == late_room) {
                size_t room = late_room ? late_room * 2 : 64;
                struct late *more = realloc(late, room * sizeof(*more));

                if (!more)
                        return false;
                late = more;
                late_room = room;
        }
        late[late_count++] = (struct late){p->start, p->block->id};
        p->block->late = true;
        return true;
}

/* True if the block never got memory, so that no submitted work can use it. */
static bool was_never_backed(const struct block *b)
{
        if (b->kind == BLOCK_SLAB || b->kind == BLOCK_POOL)
                return false; /* other allocations may have used its extents */
        for (unsigned i = 0; i < b->extent_count; i++)
                if (b->extents[i].busy || b->extents[i].state != EXTENT_UNBACKED)
                        return false;
        return true;
}

CUresult late_free(struct gpu *g, const struct heap_place *p)
{
        struct block *dead;

        if (late_is(p))
                return CUDA_ERROR_INVALID_VALUE;
        ipc_export_freed(p->start);
        if (was_never_backed(p->block) && heap_free(&g->heap, p->start, &dead) == 0) {
                swap_discard(g, dead);
                core_room_changed(g);
        } else if (!reap_later(p)) {
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        request_kick();
        return CUDA_SUCCESS;
}

static bool block_is_busy(const struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++)
                if (b->extents[i].busy)
                        return true;
        return false;
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

static void reap(void) REQUIRES(core_lock)
{
        while (late_waited > 0) {
                struct late l = late[--late_waited];
                struct block *dead = NULL;
                struct heap_place p;
                struct gpu *g = core_find(l.address, &p);

                late[late_waited] = late[--late_count];
                if (!g || p.block->id != l.block_id || p.start != l.address)
                        continue;
                if (p.block->kind == BLOCK_POOL)
                        (void)pool_free(p.block, l.address, NULL);
                else if (heap_free(&g->heap, l.address, &dead) == 0 && dead) {
                        dead->next_late = g->late;
                        g->late = dead;
                }
        }
}

static bool any_late(void) REQUIRES(core_lock)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].late)
                        return true;
        return late_count > 0;
}

static uint64_t tend(void) UNLOCKS(core_lock)
{
        enum quiescence now;

        if (!any_late() || quiesce_capturing())
                return UINT64_MAX;
        if (!late_waiting) {
                late_waited = late_count;
                quiesce_begin(&late_wait, false);
        }
        late_waiting = true;
        now = quiesce_poll(&late_wait);
        if (now != QUIESCE_DONE)
                return now == QUIESCE_BUSY ? LATER_NS : UINT64_MAX; /* a capture has begun */
        late_waiting = false;
        reap();
        for (unsigned i = 0; i < core.gpu_count; i++)
                reap_gpu(&core.gpus[i]);
        return any_late() ? LATER_NS : UINT64_MAX;
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

void late_settle(void)
{
        struct timespec nap = {.tv_nsec = SETTLE_NS};

        for (unsigned polls = 0; polls < SETTLE_POLLS; polls++) {
                (void)late_tend(0);
                if (late_count == 0)
                        return;
                lock_release(&core_lock);
                (void)syscall(SYS_nanosleep, &nap, NULL);
                nap.tv_nsec *= 2;
                lock_acquire(&core_lock);
        }
}
