/* swap.c: owns the decision what moves when, and the physical handles. Must never release memory
 * whose contents are not safe in the arena, nor touch an extent that another thread has marked
 * busy. */
#include "preload/move/swap.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/move/extent.h"
#include "preload/freeze/freeze.h"
#include "preload/process/hidden.h"
#include "preload/move/kept_copies.h"
#include "preload/freeze/mover.h"
#include "preload/heap/lent.h"
#include "preload/move/export.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"
#include "preload/move/swap_state.h"
#include "preload/process/trace.h"
#include "preload/state/request.h"
#include "preload/move/trouble.h"

void swap_learn(struct gpu *g)
{
        struct swap *s = calloc(1, sizeof(*s));

        if (!s)
                return;
        /* Other processes' driver calls wait while a segment is pinned or unpinned. */
        s->arena = arena_new(MIN(MAX(g->total / 512, 16 * MIB), 64 * MIB));
        if (!s->arena) {
                free(s);
                return;
        }
        s->unchanged = unchanged_new();
        g->swap = s;
}

uint64_t swap_arena_bytes(const struct gpu *g)
{
        return g->swap ? arena_bytes(g->swap->arena) : 0;
}

bool swap_pin_ahead(struct gpu *g)
{
        bool makes = false;
        uint64_t missing;

        lock_acquire(&core_lock);
        if (g->swap && g->swap->arena_said != swap_arena_bytes(g)) {
                g->swap->arena_said = swap_arena_bytes(g);
                request_report(g);
        }
        missing = sub_sat(g->heap.resident, g->heap.managed_bytes + swap_arena_bytes(g));
        if (missing == 0 || !g->swap || g->swap->no_host || g->swap->others_lack ||
            !core_keep_context(g)) {
                lock_release(&core_lock);
                return false;
        }
        lock_release(&core_lock);
        if (transfer_prepare(g) == CUDA_SUCCESS)
                makes = arena_add(g->swap->arena, missing);
        lock_acquire(&core_lock);
        core_let_context(g);
        lock_release(&core_lock);
        return makes;
}

/* True if the host may not have these bytes. Only the daemon knows how much its host pool has free,
 * so lent memory is given back unchecked. */
static bool is_lacking(const struct swap *s, uint64_t bytes)
{
        return arena_lent(s->arena) || !arena_host_has(bytes);
}

void swap_ask_unpin(struct gpu *g, uint64_t bytes)
{
        if (!g->swap)
                return;
        g->swap->unpin = is_lacking(g->swap, bytes) ? bytes : 0;
        if (!g->swap->unpin)
                request_report(g); /* the daemon asks again only after this report */
}

bool swap_is_to_unpin(const struct gpu *g)
{
        return g->swap && g->swap->unpin;
}

/* Gives one free segment back, or drops kept copies so that one becomes free. False: the host has
 * the bytes that other programs lack, or the arena holds nothing but the contents of evicted
 * memory. */
static bool unpin_some(struct gpu *g)
{
        struct swap *s = g->swap;
        const uint64_t before = arena_bytes(s->arena);

        if (!is_lacking(s, s->unpin) || transfer_prepare(g) != CUDA_SUCCESS)
                return false;
        s->others_lack = true;
        s->unpin -= MIN(s->unpin, lent_give_back());
        arena_trim(s->arena, sub_sat(before, 1));
        s->unpin -= MIN(s->unpin, before - arena_bytes(s->arena));
        return arena_bytes(s->arena) < before ||
               kept_drop(g, s->arena, &s->sweep, g->heap.extent_bytes);
}

bool swap_unpin_step(struct gpu *g)
{
        bool more;

        if (!g->swap || !g->swap->unpin)
                return false;
        lock_acquire(&core_lock);
        more = g->heap.backed <= core_limit(g) && core_keep_context(g);
        lock_release(&core_lock);
        more = more && unpin_some(g);
        lock_acquire(&core_lock);
        core_let_context(g);
        if (!more)
                g->swap->unpin = 0;
        if (!g->swap->unpin)
                request_report(g); /* the daemon asks again only after this report */
        lock_release(&core_lock);
        return more;
}

void swap_rest(struct gpu *g)
{
        if (g->swap)
                arena_rest(g->swap->arena);
}

/* ---- extents that are no longer busy ---- */

/* The extent is no longer busy. If it has no allocation, drop its host copy and stop counting it as
 * allocated. Memory on the card stays until it is evicted or released. Lock held. */
void swap_idle(struct gpu *g, struct extent *e)
{
        e->busy = false;
        if (e->live || e->state == EXTENT_RESIDENT || e->state == EXTENT_MAPPED)
                return;
        export_extent_dies(g, e);
        kept_forget(g->swap->arena, e);
        e->state = EXTENT_UNBACKED;
        if (e->counted)
                request_report(g);
        heap_settle(&g->heap, e);
}

void swap_unused(struct gpu *g, struct extent *e)
{
        if (!e->busy)
                swap_idle(g, e);
}

/* ---- what the limit allows ---- */

/* Move handed-over memory that exceeds the limit to *ret. Lock held. */
static void shed_passed(struct gpu *g, struct passed *ret) REQUIRES(core_lock)
{
        uint64_t room = sub_sat(core_limit(g), g->heap.backed) / g->heap.extent_bytes;

        passed_shed(&g->passed, (unsigned)MIN(room, (uint64_t)PASSED_MAX), ret);
}

bool swap_claim(struct gpu *g, struct extent *e, struct passed *ret_shed)
{
        if (!extent_is_free(e) || g->heap.backed + e->bytes > core_limit(g))
                return false;
        e->busy = true;
        g->heap.backed += e->bytes;
        shed_passed(g, ret_shed);
        return true;
}

void swap_unclaim(struct gpu *g, struct extent *e, CUresult why)
{
        swap_idle(g, e);
        g->heap.backed -= e->bytes;
        bell_ring(&core.changed); /* a thread may be waiting to free the extent */
        if (why != CUDA_ERROR_OUT_OF_MEMORY) {
                trouble_note(g, why);
                return;
        }
        log_debug("GPU %u: no memory for an extent of %llu bytes: CUDA error %d", g->index,
                  (unsigned long long)e->bytes, (int)why);
        if (g->attached) {
                g->short_bytes = e->bytes;
                request_kick();
        }
}

void swap_arrived(struct gpu *g, struct extent *e)
{
        e->state = EXTENT_RESIDENT;
        e->busy = false;
        choose_arrived(g);
        g->heap.resident += e->bytes;
        trouble_end(g);
        request_report(g);
        bell_ring(&core.changed);
}

/* ---- the agent's side ---- */

/* Returns the first exported extent that is not on the card, and in *ret_bytes the bytes of all
 * such extents. Exported memory is restored before other memory, even without the lease. */
static struct extent *find_exported(struct gpu *g, uint64_t *ret_bytes) REQUIRES(core_lock)
{
        struct heap_cursor c = {0};
        struct extent *e, *first = NULL;

        *ret_bytes = 0;
        while (g->export_granted && (e = heap_walk(&g->heap, &c))) {
                if (!e->exported || e->busy || e->state == EXTENT_RESIDENT ||
                    e->state == EXTENT_MAPPED)
                        continue;
                *ret_bytes += e->bytes;
                first = first ? first : e;
        }
        return first;
}

/* Tells the arena what an eviction of `excess` bytes may need. While another program grows, each
 * eviction is as large as all earlier ones together, so the arena doubles. But it never needs more
 * bytes than the program has. */
static void expect(const struct gpu *g, uint64_t excess) REQUIRES(core_lock)
{
        const uint64_t has = arena_bytes(g->swap->arena);
        const uint64_t lacks = sub_sat(g->heap.allocated, g->heap.managed_bytes + has);
        const uint64_t now = MIN(excess, lacks);

        arena_expect(g->swap->arena, now, MIN(sub_sat(has, now), lacks - now));
}

/* Returns the next extent to evict, marked busy. NULL: enough bytes have left or are leaving. Lock
 * held. */
static struct extent *claim_evict(struct gpu *g) REQUIRES(core_lock)
{
        const struct swap *s = g->swap;
        struct extent *e = NULL;
        uint64_t leaving = 0, wanted, excess;

        for (unsigned i = 0; i < s->count; i++) {
                const struct transfer *t = &s->ring[(s->first + i) % TRANSFERS_MAX];

                leaving += t->out && t->extent ? t->extent->bytes : 0;
        }
        (void)find_exported(g, &wanted);
        wanted += g->heap.backed;
        excess = sub_sat(wanted - leaving, core_limit(g));
        if (excess > 0 && (freeze_stands() || !hidden_library()))
                e = choose_evict(g, excess);
        if (e) {
                expect(g, excess);
                e->busy = true;
                if (e->kept != e->live)
                        kept_forget(s->arena, e);
                e->kept = e->live;
                g->heap.resident -= e->bytes;
        }
        return e;
}

/* Returns the next extent to restore, claimed; NULL: none, or there is no room. Handed-over memory
 * is used first, but only for extents whose contents overwrite all of it: never for new memory.
 * Lock held. */
static struct extent *claim_restore(struct gpu *g, bool all, int *ret_passed_fd,
                                    struct passed *ret_shed) REQUIRES(core_lock)
{
        uint64_t exported;
        struct extent *e = find_exported(g, &exported);

        *ret_passed_fd = -EBADF;
        if (e || !all)
                return e && swap_claim(g, e, ret_shed) ? e : NULL;
        e = g->passed.count ? choose_whole(g) : NULL;

        *ret_passed_fd =
                e && g->heap.backed + e->bytes <= core_limit(g) ? passed_take(&g->passed) : -EBADF;
        if (!e)
                e = choose_by_state(g, EXTENT_EVICTED);
        if (!e)
                e = choose_by_state(g, EXTENT_UNBACKED);
        return e && swap_claim(g, e, ret_shed) ? e : NULL;
}

static void end_episodes(struct gpu *g) REQUIRES(core_lock)
{
        struct swap *s = g->swap;

        if (s->evicting && g->heap.backed <= core_limit(g)) {
                s->evicting = false;
                trace_event("evict_spared", g->index, g->spared_out - s->spared_before);
                trace_event("evict_end", g->index, s->episode_bytes);
        }
        if (s->restoring && heap_missing(&g->heap) == 0) {
                s->restoring = false;
                trace_event("restore_end", g->index, s->episode_bytes);
        }
}

/* Give back handed-over memory that has no use, because the limit fell or no extent of its size
 * will come back. */
static void swap_shed(struct gpu *g, bool restore)
{
        struct passed shed;

        lock_acquire(&core_lock);
        if (g->passed.count && restore &&
            choose_whole(g)) /* the count is checked first, to save a walk */
                shed_passed(g, &shed);
        else
                passed_shed(&g->passed, 0, &shed);
        lock_release(&core_lock);
        passed_close(&shed);
}

/* Record whether the eviction is stuck or only slow: the daemon tells waiting programs which of the
 * two it is. */
static void note_stays(struct gpu *g, bool may_evict) REQUIRES(core_lock)
{
        bool stays = may_evict && g->heap.backed > core_limit(g) && g->swap->count == 0;

        if (stays != g->stays)
                request_report(g);
        g->stays = stays;
}

/* True if managed memory should leave, but it is unknown whether that would free the card. Lock
 * held. */
static bool home_is_asked(const struct gpu *g, bool may_evict) REQUIRES(core_lock)
{
        return may_evict && g->heap.managed_bytes > 0 && g->heap.backed > core_limit(g) &&
               home_answer(&g->home) == HOME_NOT_KNOWN;
}

/* One step, chosen under the lock and done without it. */
struct step {
        struct extent *e;   /* the claimed extent; NULL: only check the transfers in flight */
        bool out;           /* the extent leaves the card, rather than coming back */
        int passed_fd;      /* handed-over memory for the extent; -EBADF: create memory */
        struct passed shed; /* handed-over memory to close before memory is created */
        bool ask_home;
};

/* Choose the next step. False: there is nothing to do. */
static bool step_choose(struct gpu *g, bool may_evict, bool restore, struct step *step)
        REQUIRES(core_lock)
{
        struct swap *s = g->swap;
        bool may_begin;

        /* While the context ends, the thread that ends it owns the transfers, without the lock. */
        if (g->context_retires || (!g->context && s->count == 0))
                return false;
        may_begin = s->count < TRANSFERS_MAX && !trouble_waits(g);
        if (may_begin && may_evict && !s->no_host)
                step->e = claim_evict(g);
        step->out = step->e != NULL;
        if (may_begin && !step->e)
                step->e = claim_restore(g, restore, &step->passed_fd, &step->shed);
        if (!step->e && s->count == 0 && !trouble_stands(g)) {
                step->ask_home = home_is_asked(g, may_evict);
                note_stays(g, may_evict);
                end_episodes(g);
                return step->ask_home;
        }
        return true;
}

static enum swap_progress step_make(struct gpu *g, const struct step *step)
{
        enum swap_progress progress = SWAP_NOTHING, answered;
        bool begun;

        if (step->e) {
                begun = step->out ? transfer_evict(g, step->e)
                                  : transfer_restore(g, step->e, step->passed_fd);
                progress = begun ? SWAP_MORE : SWAP_LATER;
        }
        if (step->ask_home) {
                home_find_out(g);
                progress = SWAP_LATER;
        }
        answered = transfer_answers(g);
        progress = MAX(progress, answered);
        while ((answered = transfer_reap(g)) != SWAP_NOTHING)
                progress = MAX(progress, answered);
        return progress;
}

/* Undo a chosen step, because there are no streams to copy on: the extent stays where it was. */
static void step_undo(struct gpu *g, const struct step *step, CUresult why) REQUIRES(core_lock)
{
        if (step->e) {
                if (step->out)
                        g->heap.resident += step->e->bytes;
                else
                        g->heap.backed -= step->e->bytes;
                swap_idle(g, step->e);
                if (step->passed_fd >= 0)
                        passed_add(&g->passed, step->passed_fd);
        }
        trouble_note(g, why);
}

static enum swap_progress step_end(struct gpu *g, enum swap_progress progress, bool may_evict)
        REQUIRES(core_lock)
{
        struct swap *s = g->swap;

        g->context_kept = false;
        if (s->count > 0 && progress < SWAP_COPYING && !trouble_waits(g))
                progress = SWAP_COPYING;
        if (trouble_stands(g) && progress < SWAP_LATER)
                progress = SWAP_LATER;
        if (s->no_host && s->count == 0) {
                s->no_host = false;
                g->host_short = !s->lent_soon;
                progress = SWAP_LATER;
        }
        note_stays(g, may_evict);
        end_episodes(g);
        bell_ring(&core.changed);
        return progress;
}

enum swap_progress swap_step(struct gpu *g, bool may_evict, bool restore)
{
        struct step step = {.passed_fd = -EBADF};
        enum swap_progress progress;
        CUresult r;

        if (!g->swap)
                return SWAP_NOTHING;
        swap_shed(g, restore);
        lock_acquire(&core_lock);
        if (!step_choose(g, may_evict, restore, &step)) {
                progress = g->context_retires ? SWAP_LATER : SWAP_NOTHING;
                lock_release(&core_lock);
                return progress;
        }
        if (!g->swap->evicting)
                g->swap->spared_before = g->spared_out;
        g->context_kept = true;
        lock_release(&core_lock);

        passed_close(&step.shed);
        r = transfer_prepare(g);
        progress = r == CUDA_SUCCESS ? step_make(g, &step) : SWAP_LATER;

        lock_acquire(&core_lock);
        if (r != CUDA_SUCCESS)
                step_undo(g, &step, r);
        lock_release(&core_lock);
        trouble_look(g, r);
        lock_acquire(&core_lock);
        progress = step_end(g, progress, may_evict);
        lock_release(&core_lock);
        return progress;
}

/* ---- giving memory back ---- */

/* Wait until an extent is not busy. False: the GPU has failed, and no memory is given back before
 * the process ends. */
static bool extent_await(struct extent *e) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "a transfer of its own memory"};

        while (e->busy && !core_passive())
                core_wait(&w, UINT64_MAX);
        return !e->busy;
}

bool swap_moves_apart(const struct gpu *g)
{
        const struct swap *s = g->swap;

        return swap_is_still(g) || (g->mover && s->context == mover_context(g->mover));
}

bool swap_is_still(const struct gpu *g)
{
        return !g->swap || g->swap->count == 0;
}

void swap_leave_mover(struct gpu *g, const struct mover *m)
{
        struct swap *s = g->swap;

        if (!s || !s->context || s->context != mover_context(m))
                return;
        if (real.cuCtxSetCurrent(s->context) == CUDA_SUCCESS)
                transfer_end(g);
        s->context = NULL;
}

CUresult swap_carry(struct gpu *g, struct extent *e, CUdeviceptr to)
{
        struct swap *s = g->swap;
        CUresult r;
        bool kept;

        lock_acquire(&core_lock);
        kept = core_keep_context(g);
        lock_release(&core_lock);
        if (!kept)
                return CUDA_ERROR_INVALID_CONTEXT;
        kept_forget(s->arena, e);
        r = transfer_prepare(g);
        if (r == CUDA_SUCCESS)
                r = real.cuMemcpyDtoDAsync_v2(to, e->address, e->bytes, s->out);
        if (r == CUDA_SUCCESS)
                r = trouble_await(s->out);
        lock_acquire(&core_lock);
        core_let_context(g);
        lock_release(&core_lock);
        return r;
}

/* Unmap an extent; threads that need it wait while it is busy. False: it stays where it is. */
static bool unmap_unlocks(struct gpu *g, struct extent *e) UNLOCKS(core_lock)
{
        CUstreamCaptureMode mode;
        CUresult r;

        e->busy = true;
        lock_release(&core_lock);
        mode = core_relax();
        r = extent_unmap(g, e);
        core_unrelax(mode);
        lock_acquire(&core_lock);
        if (r != CUDA_SUCCESS && !g->error) {
                trouble_note(g, r);
                return false;
        }
        e->state = EXTENT_UNBACKED;
        return true;
}

/* Take a resident extent off the card, and drop its host copy. False: it stays there. */
static bool take_off(struct gpu *g, struct extent *e) UNLOCKS(core_lock)
{
        g->heap.resident -= e->bytes; /* from here on the extent counts as missing */
        if (!unmap_unlocks(g, e)) {
                g->heap.resident += e->bytes;
                return false;
        }
        g->heap.backed -= e->bytes;
        kept_forget(g->swap->arena, e);
        return true;
}

/* Give back an extent's memory and copies; the caller rings the bell. False: the driver keeps the
 * memory for now. */
static bool extent_empty(struct gpu *g, struct extent *e) UNLOCKS(core_lock)
{
        bool gone = true;

        export_extent_dies(g, e);
        if (e->state == EXTENT_RESIDENT) {
                gone = take_off(g, e);
        } else if (e->state == EXTENT_MAPPED) {
                gone = unmap_unlocks(g, e);
                g->heap.mapped -= gone ? e->bytes : 0;
        }
        swap_idle(g, e);
        request_report(g);
        return gone;
}

bool swap_release(struct gpu *g, struct extent *e)
{
        bool gone = extent_empty(g, e);

        bell_ring(&core.changed);
        return gone;
}

void swap_let_go(struct gpu *g, uint64_t until_ns)
{
        struct extent *e;

        if (!g->swap)
                return;
        while (clock_now_ns() < until_ns && (e = choose_evict(g, UINT64_MAX)) && !e->managed) {
                if (!take_off(g, e)) {
                        e->busy = false;
                        break;
                }
                e->state = EXTENT_EVICTED; /* without a copy, so it counts as zeros */
                e->busy = false;
                choose_left(g);
        }
        request_report(g);
        bell_ring(&core.changed);
}

void swap_unpin(struct gpu *g, uint64_t until_ns)
{
        uint64_t before;

        if (!g->swap)
                return;
        do {
                before = arena_bytes(g->swap->arena);
                arena_trim(g->swap->arena, sub_sat(before, 1)); /* one segment at a time */
        } while (arena_bytes(g->swap->arena) < before && clock_now_ns() < until_ns);
}

void swap_hand_over(struct gpu *g, struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++) {
                struct extent *e = &b->extents[i];

                if (e->state == EXTENT_RESIDENT) {
                        g->heap.resident -= e->bytes;
                        g->heap.backed -= e->bytes;
                        kept_forget(g->swap->arena, e);
                        e->state = EXTENT_UNBACKED;
                }
        }
        heap_bury(&g->heap, b);
        request_report(g);
        bell_ring(&core.changed);
}

/* Take a block of managed memory out of the accounts. give_back: also return it to the driver,
 * which may wait for work. The figures change after the memory is gone. */
static void withdraw_managed(struct gpu *g, struct block *b, bool give_back) UNLOCKS(core_lock)
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
                core.unbooked++;
                lock_release(&core_lock);
                mode = core_relax();
                if (real.cuCtxPushCurrent_v2(owner) == CUDA_SUCCESS) {
                        (void)real.cuMemFree_v2(address);
                        (void)real.cuCtxPopCurrent_v2(&popped);
                }
                core_unrelax(mode);
                lock_acquire(&core_lock);
                core.unbooked--;
        }
        g->heap.allocated -= allocated;
        g->heap.managed_bytes -= bytes;
        g->heap.backed -= resident;
        g->heap.resident -= resident;
        request_report(g);
        bell_ring(&core.changed);
}

bool swap_empty(struct gpu *g, struct block *b)
{
        bool gone = true;

        for (unsigned i = 0; i < b->extent_count; i++) {
                if (!extent_await(&b->extents[i]))
                        return false;
                b->extents[i].live = 0;
                gone = extent_empty(g, &b->extents[i]) && gone;
        }
        request_report(g);
        bell_ring(&core.changed);
        return gone;
}

void swap_discard(struct gpu *g, struct block *b)
{
        if (b->managed) {
                withdraw_managed(g, b, true);
        } else if (swap_empty(g, b)) {
                heap_bury(&g->heap, b);
        } else if (!core_passive()) { /* the agent tries again (late_frees.c) */
                b->handle = NULL;
                b->next_late = g->late;
                g->late = b;
        }
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

        if (!s) {
                g->context = NULL;
                return;
        }
        g->context_retires = true;
        while (g->context_kept)
                core_wait(&w, UINT64_MAX); /* the agent may be making its streams in that context */
        if (s->context && s->context == g->context->handle) {
                lock_release(&core_lock);
                (void)real.cuCtxPushCurrent_v2(s->context);
                transfer_end(g);
                (void)real.cuCtxPopCurrent_v2(&popped);
                lock_acquire(&core_lock);
                s->context = NULL;
        }
        g->context_retires = false;
        g->context = NULL;
        bell_ring(&core.changed);
}
