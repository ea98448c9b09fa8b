/* overflow.c: owns the choice which buffers lie on the card and which on the host. Must never move
 * a buffer while work is in flight, nor take host memory that was not promised.
 * Why: docs/decisions.md, "A part of the card is kept for small allocations" and "Memory beyond the
 * card is mapped, not faulted in". */
#include "preload/overflow/overflow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/units.h"
#include "base/settings.h"
#include "preload/agent/agent_state.h"
#include "preload/state/core.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/process/mode.h"
#include "preload/overflow/profile.h"
#include "preload/pool/room.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/process/trace.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

#define SETTLE_NS   (200 * NSEC_PER_MSEC) /* pause after an allocation, as more may follow */
#define SPACING_NS  NSEC_PER_SEC          /* pause between our drains; doubled when they fail */
#define PATIENCE_NS (100 * NSEC_PER_MSEC) /* how long a drain of ours may take */
#define SPACING_MAX (30 * NSEC_PER_SEC)
#define SMALL_PART  64u /* 1 / 64 of the card is kept for small allocations */

enum phase { REST, DRAINS, MOVES };

static struct {
        enum phase phase;
        uint64_t next_ns; /* UINT64_MAX: all buffers lie where they should */
        uint64_t spacing_ns;
        uint64_t requested; /* most bytes to use of each card */
        uint64_t moved;     /* bytes moved in this drain */
        bool asked,         /* the trials want buffers to move */
                arranging,  /* that move is in progress */
                arranged;   /* that move has succeeded */
        bool carries,       /* an extent is on its way */
                cancelled;  /* the move ends when that extent has arrived */
} overflow = {.next_ns = UINT64_MAX, .spacing_ns = SPACING_NS, .requested = UINT64_MAX};

/* ---- what this GPU can do ---- */

static CUresult try_mapping(struct gpu *g)
{
        struct block b = {.kind = BLOCK_LARGE};
        struct extent e = {.bytes = HEAP_GRANULARITY, .block = &b};
        CUresult r = real.cuMemAddressReserve(&e.address, e.bytes, HEAP_GRANULARITY, 0, 0);

        if (r != CUDA_SUCCESS)
                return r;
        r = extent_map_host(g, &e);
        if (r == CUDA_SUCCESS)
                (void)extent_unmap(g, &e);
        (void)real.cuMemAddressFree(e.address, e.bytes);
        return r;
}

void overflow_setup(void)
{
        const char *text = setting_text(SETTING_KEEP);
        uint64_t bytes;

        if (!text)
                return;
        if (mode_memory() != MEMORY_OVERFLOW)
                log_warning("SUBLET_KEEP needs SUBLET_MEMORY=overflow");
        else if (units_parse_size(text, &bytes) == 0 && bytes > 0)
                overflow.requested = bytes & ~(HEAP_GRANULARITY - 1);
        else
                setting_refuse(SETTING_KEEP, text);
}

void overflow_learn(struct gpu *g)
{
        CUresult r;

        g->keep = UINT64_MAX;
        if (mode_memory() != MEMORY_OVERFLOW)
                return;
        g->keep = overflow.requested;
        lock_release(&core_lock);
        r = try_mapping(g);
        if (r == CUDA_SUCCESS)
                r = real.cuMemAddressReserve(&g->aside, g->heap.extent_bytes, HEAP_GRANULARITY, 0,
                                             0);
        lock_acquire(&core_lock);
        g->overflow = r == CUDA_SUCCESS;
        if (g->overflow)
                return;
        g->keep = UINT64_MAX; /* without host memory the program may use the whole card */
        log_warning("GPU %u: the driver maps no host memory (CUDA error %d): "
                    "SUBLET_MEMORY=overflow does not apply",
                    g->index, (int)r);
}

/* ---- allocation ---- */

/* Returns the most bytes of the card that the program may ever have. */
static uint64_t share(const struct gpu *g) REQUIRES(core_lock)
{
        return MIN(sub_sat(g->visible, core_own_unevictable(g)), g->keep);
}

/* The part kept for small allocations is a fraction of the most that the program may have, not of
 * what is promised so far. Otherwise the part would grow with each promise, and a program that asks
 * for just the missing bytes would never have enough. */
uint64_t overflow_card_most(const struct gpu *g, uint64_t bytes)
{
        const uint64_t most = share(g);

        return bytes > HEAP_SMALL_MAX ? most - (most / SMALL_PART & ~(HEAP_GRANULARITY - 1)) : most;
}

/* Maps host memory for the extents from `first` on, which are marked busy. Earlier extents get
 * memory of the card, and the agent may be about to give it to them. */
static int map_block(struct gpu *g, struct block *b, unsigned first) UNLOCKS(core_lock)
{
        CUstreamCaptureMode mode;
        CUresult r = CUDA_SUCCESS;
        unsigned end = first;

        lock_release(&core_lock);
        mode = core_relax();
        while (end < b->extent_count && (r = extent_map_host(g, &b->extents[end])) == CUDA_SUCCESS)
                end++;
        core_unrelax(mode);
        lock_acquire(&core_lock);
        for (unsigned i = first; i < b->extent_count; i++) {
                struct extent *e = &b->extents[i];

                e->busy = false;
                if (i < end) {
                        e->state = EXTENT_MAPPED;
                        g->heap.mapped += e->bytes;
                }
        }
        bell_ring(&core.changed);
        return r == CUDA_SUCCESS ? 0 : -ENOMEM;
}

static uint64_t card_left(const struct gpu *g, uint64_t promised) REQUIRES(core_lock)
{
        return sub_sat(MIN(promised, overflow_card_most(g, UINT64_MAX)), g->heap.allocated);
}

/* Returns the bytes of whole extents for which the card has room beside its present memory. */
static uint64_t extents_left(const struct gpu *g, uint64_t promised) REQUIRES(core_lock)
{
        const uint64_t left = card_left(g, promised);

        return left - left % g->heap.extent_bytes;
}

uint64_t overflow_free(const struct gpu *g, uint64_t promised)
{
        const uint64_t card = card_left(g, promised);
        const uint64_t host = sub_sat(MIN(core.host.most, g->room_host), core_host_mapped());

        return MAX(card, extents_left(g, promised) + host) & ~(HEAP_GRANULARITY - 1);
}

/* Take host memory for a buffer. If the host has too little for all of it, take room on the card
 * for its first extents. Returns the bytes for the host; 0: there is no room. */
static uint64_t take_room(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock)
{
        const uint64_t most = bytes - 1 - (bytes - 1) % g->heap.extent_bytes;
        uint64_t on_card;

        if (request_host(bytes) == 0)
                return bytes;
        request_room(g);
        on_card = MIN(most, extents_left(g, g->room));
        if (!on_card || request_host(bytes - on_card) < 0)
                return 0;
        /* Other threads may take the granted room before this thread uses it. */
        while (on_card > extents_left(g, room_allowed(g)))
                if (room_commit(g, on_card) < 0) {
                        core.host.taking -= bytes - on_card;
                        return 0;
                }
        return bytes - on_card;
}

int overflow_allocate(struct gpu *g, uint64_t bytes, CUcontext owner, CUdeviceptr *ret_address)
{
        const uint64_t whole = align_up(bytes, HEAP_GRANULARITY);
        const uint64_t on_host = take_room(g, whole);
        struct block *b, *dead = NULL;

        if (!on_host)
                return -ENOMEM;
        b = heap_allocate_aside(&g->heap, bytes, owner, whole - on_host);
        if (b && map_block(g, b, (unsigned)((whole - on_host) / b->extent_bytes)) == 0) {
                core.host.taking -= on_host;
                *ret_address = b->address;
                overflow_changed(g);
                return 0;
        }
        core.host.taking -= on_host;
        if (b && heap_free(&g->heap, b->address, &dead) == 0)
                swap_discard(g, dead);
        return -ENOMEM;
}

void overflow_changed(struct gpu *g)
{
        if (!g->overflow || g->heap.mapped == 0 || overflow.asked)
                return;
        overflow.next_ns = clock_now_ns() + SETTLE_NS;
        overflow.spacing_ns = SPACING_NS;
        request_kick();
}

void overflow_allocated(struct gpu *g, CUdeviceptr address, uint64_t bytes)
{
        struct heap_place p;

        if (bytes > HEAP_SMALL_MAX && heap_find(&g->heap, address, &p))
                profile_allocated(g, p.block);
}

int sublet_buffer_priority(uint64_t address, int priority)
{
        int r = -1;

        (void)core_setup();
        if (core_passive())
                return 0;
        lock_acquire(&core_lock);
        for (unsigned i = 0; i < core.gpu_count && r < 0; i++) {
                struct gpu *g = &core.gpus[i];
                struct heap_place p;

                if (!g->managed || !heap_find(&g->heap, address, &p) ||
                    p.block->kind != BLOCK_LARGE)
                        continue;
                p.block->priority = priority;
                overflow_changed(g);
                r = 0;
        }
        lock_release(&core_lock);
        return r;
}

/* ---- which buffers lie where ---- */

/* Sorts buffers for the card to the front; equal buffers keep a fixed order, so that nothing moves
 * in vain. */
static int by_rank(const void *left, const void *right)
{
        const struct block *a = *(struct block *const *)left, *b = *(struct block *const *)right;

        if (profile_room() && profile_place(a) != profile_place(b))
                return profile_place(a) > profile_place(b) ? -1 : 1;
        if (a->priority != b->priority)
                return a->priority > b->priority ? -1 : 1;
        if (a->use != b->use)
                return a->use > b->use ? -1 : 1;
        if (a->bytes != b->bytes)
                return a->bytes < b->bytes ? -1 : 1;
        return a->id < b->id ? -1 : 1;
}

bool overflow_places(const struct block *b)
{
        return b->kind == BLOCK_LARGE && !b->dying && !b->managed && !b->held;
}

/* Returns the most bytes of the card that may be used after this buffer is put there. most: the
 * result when there are no trials. */
static uint64_t room_of(const struct block *b, uint64_t most)
{
        uint64_t kept = MIN(profile_room(), most / 2);

        if (!profile_room() || profile_place(b) == PROFILE_CARD)
                return most;
        return profile_place(b) == PROFILE_HOST ? 0 : sub_sat(most, kept);
}

/* Mark the extents that have to move. Returns the bytes that come to the card. *ret_out: the bytes
 * that leave the card. */
static uint64_t plan(struct gpu *g, uint64_t *ret_out) REQUIRES(core_lock)
{
        uint64_t most = MIN(g->commit, overflow_card_most(g, UINT64_MAX));
        uint64_t in = 0, out = 0, used = g->heap.allocated;
        struct block **list = malloc((g->heap.count + 1) * sizeof(struct block *));
        size_t n = 0;

        *ret_out = 0;
        if (!list)
                return 0;
        for (size_t i = 0; i < g->heap.count; i++) {
                struct block *b = g->heap.blocks[i];

                if (!overflow_places(b))
                        continue;
                list[n++] = b;
                for (unsigned k = 0; k < b->extent_count; k++) {
                        struct extent *e = &b->extents[k];

                        e->moves = false;
                        used -= e->counted && !e->stay ? e->bytes : 0;
                }
        }
        qsort(list, n, sizeof(struct block *), by_rank);
        for (size_t i = 0; i < n; i++)
                for (unsigned k = 0; k < list[i]->extent_count; k++) {
                        struct extent *e = &list[i]->extents[k];
                        uint64_t room = room_of(list[i], most);
                        bool fits = used <= room && e->bytes <= room - used;

                        if (e->stay)
                                continue;

                        used += fits ? e->bytes : 0;
                        if (fits && e->state == EXTENT_MAPPED)
                                in += e->bytes;
                        else if (!fits && e->state == EXTENT_RESIDENT)
                                out += e->bytes;
                        else
                                continue;
                        e->moves = !e->busy;
                }
        free(list);
        *ret_out = out;
        return in;
}

/* Ask the daemon for room on the card, without waiting for it. */
static void request_more(struct gpu *g) REQUIRES(core_lock)
{
        uint64_t wanted = MIN(g->heap.allocated + g->heap.mapped, share(g));

        if (!g->attached || wanted <= MAX(g->commit, g->commit_requested))
                return;
        g->commit_requested = wanted;
        g->commit_used_ns = clock_now_ns();
        g->request_dirty = true;
}

/* ---- the course of a move ---- */

static void arranged(bool good)
{
        if (!overflow.arranging)
                return;
        overflow.arranging = false;
        overflow.arranged = good;
        bell_ring(&core.changed);
}

/* Drop the plan: no extent of this GPU moves. */
static void unplan(struct gpu *g)
{
        struct heap_cursor c = {0};
        struct extent *e;

        while (g->overflow && (e = heap_walk(&g->heap, &c)))
                e->moves = false;
}

static void end(void)
{
        overflow.phase = REST;
        for (unsigned i = 0; i < core.gpu_count; i++)
                unplan(&core.gpus[i]);
}

void overflow_arrange(void)
{
        overflow.asked = true;
        overflow.arranged = false;
        overflow.next_ns = 0;
        request_kick();
}

bool overflow_is_arranging(void)
{
        return overflow.asked || overflow.arranging;
}

bool overflow_is_arranged(void)
{
        return overflow.arranged && !overflow_is_arranging();
}

void overflow_step(uint64_t now)
{
        bool settled =
                daemon_line.link == LINK_UP ? core.lease != 0 : daemon_line.link != LINK_HELLO;
        bool any = false, refused = false;

        if (overflow.phase != REST || now < overflow.next_ns)
                return;
        if (!core.running || agent.revoking || !settled || quiesce_capturing()) {
                overflow.next_ns = now + SETTLE_NS;
                return;
        }
        overflow.next_ns = UINT64_MAX;
        overflow.arranging = overflow.asked;
        overflow.asked = false;
        profile_placing();
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];
                uint64_t in, out;

                if (!g->overflow || (g->heap.mapped == 0 && !profile_room()))
                        continue;
                request_more(g);
                if (profile_room())
                        g->commit_used_ns = now; /* keep the room: buffers that leave come back */
                in = plan(g, &out);
                if (in == 0 && (out == 0 || !profile_room())) {
                        unplan(g); /* do not move a buffer out if none comes in */
                        continue;
                }
                if (!request_may_map(sub_sat(out, in) + 2 * g->heap.extent_bytes)) {
                        unplan(g);
                        refused = true;
                        continue; /* overflow_changed() follows the daemon's answer */
                }
                any = true;
        }
        if (!any) {
                arranged(!refused);
                return;
        }
        overflow.phase = DRAINS;
        overflow.moved = 0;
        agent_begin_drain(PATIENCE_NS,
                          false); /* do not freeze: a step of the program has to be whole */
}

bool overflow_drained(void)
{
        if (overflow.phase != DRAINS)
                return false;
        overflow.phase = MOVES;
        return true;
}

bool overflow_drain_failed(void)
{
        if (overflow.phase != DRAINS)
                return false;
        end();
        arranged(false);
        overflow.next_ns = clock_now_ns() + overflow.spacing_ns;
        overflow.spacing_ns = MIN(2 * overflow.spacing_ns, SPACING_MAX);
        return true;
}

void overflow_cancel(void)
{
        /* A thread of the program may find the daemon gone while the agent carries an extent. No
         * thread may run before that extent lies where it belongs. */
        overflow.cancelled = overflow.carries;
        if (overflow.phase == REST || overflow.carries)
                return;
        agent_end_drain();
        end();
        arranged(false);
        overflow.next_ns = clock_now_ns() + SPACING_NS;
}

enum own_drain overflow_own(void)
{
        return overflow.phase != REST ? OWN_MOVES : OWN_NONE;
}

uint64_t overflow_next_ns(void)
{
        return overflow.phase == MOVES ? 0 : overflow.phase == REST ? overflow.next_ns : UINT64_MAX;
}

/* ---- moving ---- */

/* True if the extent can move now. */
static bool may_move(const struct gpu *g, const struct extent *e) REQUIRES(core_lock)
{
        uint64_t most = MIN(g->commit, share(g));

        if (!e->moves || e->busy || e->stay)
                return false;
        if (e->state == EXTENT_MAPPED)
                return g->heap.allocated + e->bytes <= most &&
                       g->heap.backed + e->bytes <= core_limit(g);
        return e->state == EXTENT_RESIDENT && core_host_mapped() + e->bytes <= core.host.allowed;
}

/* Returns an extent to move to the card if there is room for one, otherwise one to move out. */
static struct extent *next_move(struct gpu **ret_gpu) REQUIRES(core_lock)
{
        struct extent *leaves = NULL;

        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct heap_cursor c = {0};
                struct extent *e;

                while (core.gpus[i].overflow && (e = heap_walk(&core.gpus[i].heap, &c))) {
                        if (!may_move(&core.gpus[i], e))
                                continue;
                        if (e->state == EXTENT_RESIDENT && leaves)
                                continue;
                        *ret_gpu = &core.gpus[i];
                        if (e->state == EXTENT_MAPPED)
                                return e;
                        leaves = e;
                }
        }
        return leaves;
}

/* Make memory on the card or the host, fill it at a temporary address, and put it in place of the
 * old memory. After a failure the extent lies where it was, except as in extent_exchange(). */
static CUresult carry(struct gpu *g, struct extent *e, bool to_card)
{
        struct extent other = {.address = g->aside, .bytes = e->bytes, .block = e->block};
        CUresult r = to_card ? extent_map(g, &other, -EBADF) : extent_map_host(g, &other);

        if (r != CUDA_SUCCESS)
                return r;
        r = swap_carry(g, e, other.address);
        if (r != CUDA_SUCCESS) {
                (void)extent_unmap(g, &other);
                return r;
        }
        return extent_exchange(g, e, &other);
}

bool overflow_move(void)
{
        struct gpu *g = NULL;
        struct extent *e;
        bool to_card;
        CUresult r;

        lock_acquire(&core_lock);
        if (overflow.phase != MOVES) {
                lock_release(&core_lock);
                return false;
        }
        e = next_move(&g);
        if (!e) {
                trace_event("placed", 0, overflow.moved);
                end();
                arranged(true);
                agent_end_drain();
                lock_release(&core_lock);
                return false;
        }
        to_card = e->state == EXTENT_MAPPED;
        e->busy = true;
        e->moves = false;
        overflow.carries = true;
        if (to_card)
                heap_claim(&g->heap, e);
        lock_release(&core_lock);

        r = carry(g, e, to_card);

        lock_acquire(&core_lock);
        overflow.carries = false;
        e->busy = false;
        if (r != CUDA_SUCCESS) {
                if (to_card)
                        heap_unclaim(&g->heap, e);
                log_debug("GPU %u: an extent did not move: CUDA error %d", g->index, (int)r);
        } else {
                heap_change_sides(&g->heap, e);
                overflow.moved += e->bytes;
        }
        request_report(g);
        bell_ring(&core.changed);
        if (overflow.cancelled)
                overflow_cancel();
        lock_release(&core_lock);
        return true;
}
