/* swap.c: owns the copies and the physical handles. Must never release memory whose contents are
 * not safe in the arena, nor touch an extent that somebody else has marked busy. */
#include "preload/swap.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/agent.h"
#include "preload/core.h"
#include "preload/extent.h"
#include "preload/gate.h"
#include "preload/poison.h"
#include "preload/quiet.h"
#include "preload/real.h"
#include "preload/trace.h"
#include "wire/wire.h"

#define TRANSFERS_MAX 8u /* enough to map one extent while others are being copied */

struct transfer {
        struct extent *extent;
        struct arena_room room;
        uint64_t pages; /* that are copied, as bits (struct extent) */
        CUevent done;   /* stays with the slot */
        bool out, copies;
};

struct swap {
        struct context *context; /* that the streams and events were made in */
        CUstream out, in;
        struct arena *arena;
        struct transfer ring[TRANSFERS_MAX];
        unsigned first, count;
        bool in_step, retiring;
        bool evicting, restoring; /* an episode is on, for the trace */
        uint64_t episode_bytes;
        bool no_host_said;
};

struct swap *swap_new(struct gpu *g)
{
        struct swap *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        /* Small cards get small segments, so that little is pinned for nothing. */
        s->arena = arena_new(MIN(MAX(g->total / 256, 16 * MIB), 512 * MIB));
        if (!s->arena) {
                free(s);
                return NULL;
        }
        return s;
}

uint64_t swap_arena_bytes(const struct gpu *g)
{
        return g->swap ? arena_bytes(g->swap->arena) : 0;
}

void swap_trim_arena(struct gpu *g, uint64_t bytes)
{
        if (g->swap)
                arena_trim(g->swap->arena, bytes);
}

/* ---- extents in nobody's hands any more ---- */

/* What came to be of no use while an extent was busy, or before, is dropped: contents in the arena,
 * and the claim that memory has to be there. Memory itself stays until it is evicted or released.
 * Lock held. */
static void extent_idle(struct gpu *g, struct extent *e)
{
        e->busy = false;
        if (e->live || e->state == EXTENT_RESIDENT)
                return;
        if (e->state == EXTENT_EVICTED)
                arena_give(g->swap->arena, &e->host);
        e->state = EXTENT_UNBACKED;
        heap_settle(&g->heap, e);
}

void swap_unused(struct gpu *g, struct extent *e)
{
        if (!e->busy)
                extent_idle(g, e);
}

/* ---- what the limit allows ---- */

/* Move to *ret what was passed on to us and the limit has no room for. Lock held. */
static void shed_passed(struct gpu *g, struct passed *ret)
{
        uint64_t room = sub_sat(core_limit(g), g->heap.backed) / g->heap.extent_bytes;

        passed_shed(&g->passed, (unsigned)MIN(room, (uint64_t)PASSED_MAX), ret);
}

/* Mark an extent as on its way to the GPU, if the limit allows. Lock held. ret_shed: memory passed
 * on to us that it leaves no room for; close before anything is created. */
static bool extent_claim(struct gpu *g, struct extent *e, struct passed *ret_shed)
{
        if (e->busy || g->heap.backed + e->bytes > core_limit(g))
                return false;
        e->busy = true;
        g->heap.backed += e->bytes;
        shed_passed(g, ret_shed);
        return true;
}

/* The memory that should have been there was not. Lock held. */
static void extent_unclaim(struct gpu *g, struct extent *e, CUresult why)
{
        extent_idle(g, e);
        g->heap.backed -= e->bytes;
        if (why != CUDA_ERROR_OUT_OF_MEMORY) {
                core_give_up(g, why); /* these calls look at no context: it is the GPU */
                return;
        }
        log_debug("GPU %u: no memory for an extent of %llu bytes: CUDA error %d", g->index,
                  (unsigned long long)e->bytes, (int)why);
        agent_short(g, e->bytes);
}

static void extent_arrived(struct gpu *g, struct extent *e)
{
        e->state = EXTENT_RESIDENT;
        e->busy = false;
        g->heap.resident += e->bytes;
        g->usage_dirty = true;
        bell_ring(&core.changed);
}

/* ---- at the gate ---- */

static struct extent *find_extent(struct gpu *g, enum extent_state state)
{
        struct heap_cursor c = {0};
        struct extent *e;

        while ((e = heap_walk(&g->heap, &c)))
                if (!e->busy && e->state == state && e->live)
                        return e;
        return NULL;
}

/* Put new memory behind an extent that was just claimed. Lock held, given up meanwhile. */
static CUresult back_extent(struct gpu *g, struct extent *e, struct passed *shed)
{
        CUstreamCaptureMode mode;
        CUresult r;

        lock_release(&core.lock);
        passed_close(shed);
        mode = core_relax();
        r = extent_map(g, e, -EBADF);
        core_unrelax(mode);
        lock_acquire(&core.lock);
        if (r == CUDA_SUCCESS)
                extent_arrived(g, e);
        else
                extent_unclaim(g, e, r);
        return r;
}

/* Lock held. False: the lease is gone meanwhile. */
static bool back_gpu(struct gpu *g)
{
        struct core_wait w = {.what = "GPU memory"};

        while (heap_missing(&g->heap) > 0 && !core_passive()) {
                struct extent *e = find_extent(g, EXTENT_UNBACKED);
                struct passed shed;

                if (!core.running)
                        return false;
                if (!e) {
                        core_wait(&w, NSEC_PER_SEC); /* others are at it */
                } else if (!extent_claim(g, e, &shed)) {
                        agent_kick();
                        core_wait(&w, NSEC_PER_SEC);
                } else if (back_extent(g, e, &shed) != CUDA_SUCCESS) {
                        core_wait(&w, 10 * NSEC_PER_MSEC);
                }
        }
        return true;
}

int swap_back_block(struct gpu *g, struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++) {
                struct extent *e = &b->extents[i];
                struct passed shed;

                if (e->state == EXTENT_UNBACKED && e->live && extent_claim(g, e, &shed) &&
                    back_extent(g, e, &shed) != CUDA_SUCCESS)
                        return -ENOMEM;
        }
        return 0;
}

void swap_back_new(void)
{
        bool all = true;

        lock_acquire(&core.lock);
        core.waiters++;
        for (unsigned i = 0; i < core.gpu_count && all; i++)
                if (core.gpus[i].managed)
                        all = back_gpu(&core.gpus[i]);
        core.waiters--;
        for (unsigned i = 0; i < core.gpu_count; i++)
                all = all && (!core.gpus[i].managed || heap_missing(&core.gpus[i].heap) == 0);
        if (all)
                gate_open(GATE_UNBACKED);
        agent_kick();
        lock_release(&core.lock);
}

/* ---- the agent's side ---- */

static CUresult swap_prepare(struct gpu *g)
{
        struct swap *s = g->swap;
        unsigned events = 0;
        CUresult r;

        if (s->context == g->context && s->context)
                return real.cuCtxSetCurrent(s->context->handle);
        if (!g->context)
                return CUDA_ERROR_OUT_OF_MEMORY; /* of contexts: another time */
        r = real.cuCtxSetCurrent(g->context->handle);
        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuStreamCreate(&s->out, CU_STREAM_NON_BLOCKING);
        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuStreamCreate(&s->in, CU_STREAM_NON_BLOCKING);
        if (r != CUDA_SUCCESS)
                goto no_in;
        for (; events < TRANSFERS_MAX; events++) {
                r = real.cuEventCreate(&s->ring[events].done, CU_EVENT_DISABLE_TIMING);
                if (r != CUDA_SUCCESS)
                        goto no_events;
        }
        s->context = g->context;
        return CUDA_SUCCESS;

no_events:
        while (events-- > 0)
                (void)real.cuEventDestroy_v2(s->ring[events].done);
        (void)real.cuStreamDestroy_v2(s->in);
no_in:
        (void)real.cuStreamDestroy_v2(s->out);
        return r;
}

/* A call on one of our streams has failed: is it the context, or the call alone? */
static bool swap_context_died(struct gpu *g)
{
        CUresult r = real.cuStreamQuery(g->swap->out);
        bool died;

        lock_acquire(&core.lock);
        died = poison_note(g, r);
        lock_release(&core.lock);
        return died;
}

/* The next run of pages of a transfer from *offset on: its length, 0 at the end. */
static uint64_t next_run(uint64_t pages, uint64_t *offset)
{
        uint64_t first = *offset / HEAP_GRANULARITY, rest = first < 64 ? pages >> first : 0, gap;

        if (rest == 0)
                return 0;
        gap = (uint64_t)__builtin_ctzll(rest);
        *offset = (first + gap) * HEAP_GRANULARITY;
        rest = ~(rest >> gap);
        return (rest ? (uint64_t)__builtin_ctzll(rest) : 64) * HEAP_GRANULARITY;
}

/* Copy between the pages of an extent and their room, which lie in it one after the other. Managed
 * memory is sent where it shall be: in bulk, and only what is not there. */
static CUresult copy(struct gpu *g, const struct transfer *t)
{
        struct swap *s = g->swap;
        const struct arena_piece *p = t->room.pieces;
        uint64_t offset = 0, in_piece = 0, run;
        CUresult r = CUDA_SUCCESS;

        if (t->extent->managed)
                r = real.cuMemPrefetchAsync(t->extent->address, t->extent->bytes,
                                            t->out ? CU_DEVICE_CPU : (CUdevice)g->index,
                                            t->out ? s->out : s->in);
        while ((run = next_run(t->pages, &offset)) > 0 && r == CUDA_SUCCESS) {
                for (uint64_t n; run > 0 && r == CUDA_SUCCESS; run -= n, offset += n) {
                        CUdeviceptr at = t->extent->address + offset;
                        char *host = p->host + in_piece;

                        n = MIN(run, p->bytes - in_piece);
                        r = t->out ? real.cuMemcpyDtoHAsync_v2(host, at, n, s->out)
                                   : real.cuMemcpyHtoDAsync_v2(at, host, n, s->in);
                        in_piece += n;
                        if (in_piece == p->bytes) {
                                p++;
                                in_piece = 0;
                        }
                }
        }
        if (r == CUDA_SUCCESS)
                r = real.cuEventRecord(t->done, t->out ? s->out : s->in);
        return r;
}

/* Neither moved nor lost: another time. */
static void evict_later(struct gpu *g, struct transfer *t)
{
        lock_acquire(&core.lock);
        arena_give(g->swap->arena, &t->room);
        t->extent->busy = false;
        g->heap.resident += t->extent->bytes;
        lock_release(&core.lock);
}

static void restore_later(struct gpu *g, struct extent *e)
{
        extent_unmap(e);
        lock_acquire(&core.lock);
        g->heap.backed -= e->bytes;
        extent_idle(g, e);
        lock_release(&core.lock);
}

static struct transfer *transfer_push(struct swap *s)
{
        return &s->ring[(s->first + s->count++) % TRANSFERS_MAX];
}

static bool start_evict(struct gpu *g, struct extent *e)
{
        struct swap *s = g->swap;
        struct transfer *t;
        struct arena_room room = {0};
        uint64_t pages = e->managed ? 0 : e->kept;

        if (pages && arena_take(s->arena, extent_pages_bytes(pages), &room) < 0) {
                if (!s->no_host_said)
                        log_warning("GPU %u: no host memory to evict %llu MiB to; they stay on the "
                                    "GPU for now",
                                    g->index, (unsigned long long)(e->bytes >> 20));
                s->no_host_said = true;
                evict_later(g, &(struct transfer){.extent = e});
                return false;
        }
        t = transfer_push(s);
        t->extent = e;
        t->room = room;
        t->pages = pages;
        t->out = true;
        t->copies = e->managed || pages != 0;
        if (t->copies && copy(g, t) != CUDA_SUCCESS) {
                (void)swap_context_died(g);
                s->count--;
                /* What was queued of it still writes there. */
                (void)real.cuStreamSynchronize(s->out);
                evict_later(g, t);
                return false;
        }
        if (!s->evicting) {
                s->evicting = true;
                s->episode_bytes = 0;
                trace_event("evict_begin", g->index, 0);
        }
        return true;
}

static bool start_restore(struct gpu *g, struct extent *e, int passed_fd)
{
        struct swap *s = g->swap;
        struct transfer *t;
        CUresult r;

        if (!s->restoring) {
                s->restoring = true;
                s->episode_bytes = 0;
                trace_event("restore_begin", g->index, 0);
        }
        r = extent_map(g, e, passed_fd);
        if (r != CUDA_SUCCESS) {
                lock_acquire(&core.lock);
                extent_unclaim(g, e, r);
                lock_release(&core.lock);
                return false;
        }
        t = transfer_push(s);
        t->extent = e;
        t->room = e->host;
        t->pages = e->managed ? 0 : e->kept;
        t->out = false;
        /* In a heap of managed memory what is touched comes back by itself, and nothing else. */
        t->copies = e->state == EXTENT_EVICTED && !(e->managed && g->heap.managed);
        if (t->copies && copy(g, t) != CUDA_SUCCESS) {
                (void)swap_context_died(g);
                s->count--;
                (void)real.cuStreamSynchronize(s->in);
                restore_later(g, e);
                return false;
        }
        return true;
}

static void transfer_pop(struct swap *s)
{
        s->first = (s->first + 1) % TRANSFERS_MAX;
        s->count--;
}

/* Finish the oldest transfer if its copy is done. */
static bool reap(struct gpu *g)
{
        struct swap *s = g->swap;
        struct transfer *t = &s->ring[s->first];
        struct extent *e = t->extent;
        bool pass_on;
        int fd = -EBADF;

        if (s->count == 0)
                return false;
        if (t->copies) {
                CUresult r = real.cuEventQuery(t->done);

                if (r == CUDA_ERROR_NOT_READY || (r != CUDA_SUCCESS && !swap_context_died(g)))
                        return false;
                if (r != CUDA_SUCCESS) { /* the context that copies is gone, not the contents */
                        if (t->out)
                                evict_later(g, t);
                        else
                                restore_later(g, e);
                        transfer_pop(s);
                        return true;
                }
        }
        lock_acquire(&core.lock);
        pass_on = t->out && t->copies && g->passes && g->attached && g->may_pass &&
                  extent_is_whole(g, e) && g->leaving.count < WIRE_PASS_MAX &&
                  g->heap.backed > g->limit; /* what comes back to us is nobody else's */
        lock_release(&core.lock);
        if (pass_on)
                fd = extent_export(e);
        if (t->out)
                extent_unmap(e);
        lock_acquire(&core.lock);
        if (fd >= 0)
                passed_add(&g->leaving, fd);
        if (t->out) {
                e->host = t->room;
                e->state = t->room.count || (e->managed && t->copies) ? EXTENT_EVICTED
                                                                      : EXTENT_UNBACKED;
                g->heap.backed -= e->bytes;
                g->moved_out += t->room.count ? extent_pages_bytes(t->pages) : 0;
                extent_idle(g, e);
                g->usage_dirty = true;
                bell_ring(&core.changed);
        } else {
                if (e->state == EXTENT_EVICTED) {
                        arena_give(s->arena, &e->host);
                        g->moved_in += extent_pages_bytes(t->pages);
                }
                extent_arrived(g, e);
        }
        s->episode_bytes += e->bytes;
        lock_release(&core.lock);
        transfer_pop(s);
        return true;
}

/* What to evict next, marked busy; NULL: enough is out or on its way. Lock held. What nothing lives
 * in comes first, for it need not be copied; then the smallest extent that is enough, else the
 * largest: the fewest calls, and little more than what is missing. Among equals the one highest in
 * the address space: what lies low was allocated first and is most likely to live long. */
static struct extent *choose_evict(struct gpu *g)
{
        const struct swap *s = g->swap;
        uint64_t leaving = 0, missing;
        struct heap_cursor c = {0};
        struct extent *e, *best = NULL;

        for (unsigned i = 0; i < s->count; i++) {
                const struct transfer *t = &s->ring[(s->first + i) % TRANSFERS_MAX];

                leaving += t->out ? t->extent->bytes : 0;
        }
        if (g->heap.backed - leaving <= core_limit(g))
                return NULL;
        missing = g->heap.backed - leaving - core_limit(g);
        while ((e = heap_walk(&g->heap, &c))) {
                if (e->busy || e->state != EXTENT_RESIDENT || (e->managed && !g->home_frees))
                        continue;
                if (best && !best->live != !e->live) {
                        best = e->live ? best : e;
                        continue;
                }
                if (!best ||
                    (best->bytes < missing ? e->bytes >= best->bytes
                                           : e->bytes >= missing && e->bytes <= best->bytes))
                        best = e;
        }
        if (best) {
                best->busy = true;
                best->kept = best->live;
                g->heap.resident -= best->bytes;
        }
        return best;
}

/* The next evicted extent that memory passed on to us can take the place of. Lock held. */
static struct extent *find_whole(struct gpu *g)
{
        struct heap_cursor c = {0};
        struct extent *e;

        while ((e = heap_walk(&g->heap, &c)))
                if (!e->busy && e->state == EXTENT_EVICTED && extent_is_whole(g, e) &&
                    e->kept == extent_whole(e))
                        return e;
        return NULL;
}

/* What to bring in next, claimed; NULL: nothing, or there is no room. Lock held. Memory passed on
 * is used first, and only where contents are put over all of it: never for new memory. */
static struct extent *choose_restore(struct gpu *g, int *ret_passed_fd, struct passed *ret_shed)
{
        struct extent *e = g->passed.count ? find_whole(g) : NULL;

        *ret_passed_fd =
                e && g->heap.backed + e->bytes <= core_limit(g) ? passed_take(&g->passed) : -EBADF;
        if (!e)
                e = find_extent(g, EXTENT_EVICTED);
        if (!e)
                e = find_extent(g, EXTENT_UNBACKED);
        return e && extent_claim(g, e, ret_shed) ? e : NULL;
}

static void end_episodes(struct gpu *g)
{
        struct swap *s = g->swap;

        if (s->evicting && g->heap.backed <= core_limit(g)) {
                s->evicting = false;
                trace_event("evict_end", g->index, s->episode_bytes);
        }
        if (s->restoring && heap_missing(&g->heap) == 0) {
                s->restoring = false;
                trace_event("restore_end", g->index, s->episode_bytes);
        }
}

/* Give back what was passed on to us and is of no use any more: the limit fell, or nothing that it
 * would fit is to come back. */
static void swap_shed(struct gpu *g, bool restore)
{
        struct passed shed;

        lock_acquire(&core.lock);
        if (g->passed.count && restore && find_whole(g)) /* no walk for nothing at every step */
                shed_passed(g, &shed);
        else
                passed_shed(&g->passed, 0, &shed);
        lock_release(&core.lock);
        passed_close(&shed);
}

enum swap_progress swap_step(struct gpu *g, bool may_evict, bool restore)
{
        struct swap *s = g->swap;
        struct extent *e = NULL;
        enum swap_progress progress = SWAP_NOTHING;
        struct passed shed;
        int passed_fd = -EBADF;
        bool out = false;
        CUresult r;

        if (!s)
                return SWAP_NOTHING;
        swap_shed(g, restore);
        lock_acquire(&core.lock);
        if (s->retiring || (!g->context && s->count == 0)) {
                lock_release(&core.lock);
                return s->retiring ? SWAP_LATER : SWAP_NOTHING;
        }
        if (s->count < TRANSFERS_MAX && may_evict) {
                e = choose_evict(g);
                out = e != NULL;
        }
        if (s->count < TRANSFERS_MAX && !e && restore)
                e = choose_restore(g, &passed_fd, &shed);
        if (!e && s->count == 0) {
                end_episodes(g);
                lock_release(&core.lock);
                return SWAP_NOTHING;
        }
        s->in_step = true;
        lock_release(&core.lock);

        if (e && !out)
                passed_close(&shed);
        r = swap_prepare(g);
        if (r == CUDA_SUCCESS) {
                if (e)
                        progress = (out ? start_evict(g, e) : start_restore(g, e, passed_fd))
                                           ? SWAP_MORE
                                           : SWAP_LATER;
                while (reap(g))
                        progress = SWAP_MORE;
        } else {
                lock_acquire(&core.lock);
                if (e) {
                        if (out)
                                g->heap.resident += e->bytes;
                        else
                                g->heap.backed -= e->bytes;
                        extent_idle(g, e);
                        if (passed_fd >= 0)
                                passed_add(&g->passed, passed_fd);
                }
                if (r != CUDA_ERROR_OUT_OF_MEMORY && !poison_note(g, r))
                        core_give_up(g, r);
                lock_release(&core.lock);
                progress = SWAP_LATER;
        }

        lock_acquire(&core.lock);
        s->in_step = false;
        if (s->count > 0 && progress < SWAP_COPYING)
                progress = SWAP_COPYING;
        end_episodes(g);
        bell_ring(&core.changed);
        lock_release(&core.lock);
        return progress;
}

/* ---- giving memory back ---- */

/* False: the GPU has failed; nothing is given back before the process ends. */
static bool extent_await(struct extent *e)
{
        struct core_wait w = {.what = "a transfer of its own memory"};

        while (e->busy && !core_passive())
                core_wait(&w, UINT64_MAX);
        return !e->busy;
}

void swap_forsake(struct gpu *g, struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++) {
                struct extent *e = &b->extents[i];

                if (!extent_await(e))
                        return;
                if (e->state == EXTENT_RESIDENT)
                        continue;
                e->live = 0;
                extent_idle(g, e);
        }
        g->usage_dirty = true;
        bell_ring(&core.changed);
}

/* Give back what an extent has; the bell is the caller's. Lock held, given up meanwhile. */
static void extent_empty(struct gpu *g, struct extent *e)
{
        if (e->state == EXTENT_RESIDENT) {
                CUstreamCaptureMode mode;

                e->busy = true;
                g->heap.resident -= e->bytes; /* from here on whoever needs it waits for it */
                lock_release(&core.lock);
                mode = core_relax();
                extent_unmap(e);
                core_unrelax(mode);
                lock_acquire(&core.lock);
                g->heap.backed -= e->bytes;
                e->state = EXTENT_UNBACKED;
        }
        extent_idle(g, e);
        g->usage_dirty = true;
}

void swap_release(struct gpu *g, struct extent *e)
{
        extent_empty(g, e);
        bell_ring(&core.changed);
}

/* Take a block of managed memory out of the books; give_back: and return it to the driver, which
 * may wait for work. The figures follow when it is gone. core.lock held, given up meanwhile. */
static void withdraw_managed(struct gpu *g, struct block *b, bool give_back)
{
        uint64_t bytes = b->bytes, allocated = 0, resident = 0;
        CUdeviceptr address = b->address;
        CUcontext owner = b->owner, popped;
        CUstreamCaptureMode mode;

        for (unsigned i = 0; i < b->extent_count; i++) {
                struct extent *e = &b->extents[i];

                if (!extent_await(e))
                        return;
                allocated += e->counted ? e->bytes : 0;
                resident += e->state == EXTENT_RESIDENT ? e->bytes : 0;
        }
        heap_withdraw(&g->heap, b);
        if (give_back) {
                lock_release(&core.lock);
                mode = core_relax();
                if (real.cuCtxPushCurrent_v2(owner) == CUDA_SUCCESS) {
                        (void)real.cuMemFree_v2(address);
                        (void)real.cuCtxPopCurrent_v2(&popped);
                }
                core_unrelax(mode);
                lock_acquire(&core.lock);
        }
        g->heap.allocated -= allocated;
        g->heap.managed_bytes -= bytes;
        g->heap.backed -= resident;
        g->heap.resident -= resident;
        g->usage_dirty = true;
        bell_ring(&core.changed);
}

bool swap_empty(struct gpu *g, struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++) {
                if (!extent_await(&b->extents[i]))
                        return false;
                b->extents[i].live = 0;
                extent_empty(g, &b->extents[i]);
        }
        g->usage_dirty = true;
        bell_ring(&core.changed);
        return true;
}

void swap_discard(struct gpu *g, struct block *b)
{
        if (b->managed)
                withdraw_managed(g, b, true);
        else if (swap_empty(g, b))
                heap_bury(&g->heap, b);
}

void swap_disown(struct gpu *g, struct block *b)
{
        b->dying = true;
        withdraw_managed(g, b, false);
}

void swap_retire(struct gpu *g)
{
        struct swap *s = g->swap;
        struct core_wait w = {.what = "a transfer of its own memory"};
        CUcontext popped;

        if (!s || !s->context || s->context != g->context) {
                g->context = NULL;
                return;
        }
        s->retiring = true;
        while (s->in_step)
                core_wait(&w, UINT64_MAX);
        lock_release(&core.lock);
        (void)real.cuCtxPushCurrent_v2(s->context->handle);
        (void)real.cuStreamSynchronize(s->out);
        (void)real.cuStreamSynchronize(s->in);
        while (s->count > 0 && reap(g))
                ;
        for (unsigned i = 0; i < TRANSFERS_MAX; i++)
                (void)real.cuEventDestroy_v2(s->ring[i].done);
        (void)real.cuStreamDestroy_v2(s->out);
        (void)real.cuStreamDestroy_v2(s->in);
        (void)real.cuCtxPopCurrent_v2(&popped);
        lock_acquire(&core.lock);
        s->context = NULL;
        s->retiring = false;
        g->context = NULL;
        bell_ring(&core.changed);
}
