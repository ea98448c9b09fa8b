/* room.c: owns the search for room for more memory, and the words for why there is none. Must never
 * promise more than the daemon has. */
#include "preload/pool/room.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/move/swap.h"
#include "preload/pool/late_frees.h"
#include "preload/pool/pool.h"
#include "preload/state/core.h"
#include "preload/state/request.h"
#include "preload/stream/gate.h"

int room_commit(struct gpu *g, uint64_t more)
{
        uint64_t exact = g->heap.allocated + more;
        uint64_t blocks = align_up(exact, MAX(g->block_bytes, HEAP_GRANULARITY));

        blocks = MAX(MIN(blocks, sub_sat(g->visible, core_own_unevictable(g))), exact);
        if (request_commit(g, blocks) == 0)
                return 0;
        return blocks > exact ? request_commit(g, g->heap.allocated + more) : -ENOMEM;
}

uint64_t room_allowed(const struct gpu *g)
{
        return MIN(g->commit, sub_sat(g->visible, core_own_unevictable(g)));
}

bool room_grow(struct gpu *g, uint64_t more)
{
        struct block *adopted;

        if (more > sub_sat(g->visible, core_own_unevictable(g)))
                return false; /* not enough even if all unused memory were given up */
        if (more <= core_visible_free(g) && room_commit(g, more) == 0)
                return true;
        (void)late_awaited(NULL, 0); /* no call needs to wait for frees that streams have reached */
        if (late_settle() || pool_reclaim(g, more))
                return true;
        if (g->cap || !heap_adopted(&g->heap, 0, UINT64_MAX))
                return false; /* memory left to the driver makes no room under a cap */
        lock_release(&core_lock);
        home_find_out(g);
        lock_acquire(&core_lock);
        adopted = heap_adopted(&g->heap, 0, UINT64_MAX);
        if (!adopted || home_answer(&g->home) != HOME_LEAVES)
                return false; /* managed memory that has to stay on the card makes no room */
        swap_disown(g, adopted);
        return true;
}

/* ---- why there is no room ---- */

static uint64_t held(const struct gpu *g) REQUIRES(core_lock)
{
        return g->heap.allocated + core_own_unevictable(g);
}

static void tell_shortage(const struct gpu *g, uint64_t more, const char *why) REQUIRES(core_lock)
{
        static bool told;

        if (told)
                return;
        told = true;
        log_warning("out of memory: this program asks for %llu MiB of GPU %u beside the %llu MiB "
                    "that it holds, but %s",
                    (unsigned long long)(align_up(more, MIB) / MIB), g->index,
                    (unsigned long long)(held(g) / MIB), why);
}

/* True if the daemon has refused a total of `bytes`, or of fewer. */
static bool was_refused(const struct refusals *r, uint64_t allowed, uint64_t bytes)
{
        return r->count > 0 && allowed < bytes && r->bytes <= bytes;
}

/* The driver would only return the error. But sublet makes the card look smaller than it is, or can
 * add host memory: so tell the user. */
static void tell_size(const struct gpu *g, uint64_t more) REQUIRES(core_lock)
{
        char why[160];

        (void)snprintf(why, sizeof(why), "it may use %llu MiB there (%s",
                       (unsigned long long)(g->visible / MIB),
                       g->cap && g->cap <= g->visible
                               ? "memory cap): use less, or raise the cap: your --memory-cap, or "
                                 "the owner's"
                               : "the GPU's size): `sublet run --memory overflow` adds host "
                                 "memory");
        tell_shortage(g, more, why);
}

void room_tell(const struct gpu *g, uint64_t more)
{
        const uint64_t host = core_host_mapped() + align_up(more, HEAP_GRANULARITY);

        if (g->limit == UINT64_MAX && !g->cap)
                return; /* without a daemon the GPU itself is full */
        /* The refused request may have been larger: buffers may have moved to the card since. */
        if (g->overflow && core.host.refused.count > 0 && core.host.allowed < host)
                tell_shortage(g, more,
                              "the daemon may promise no more host memory: end idle programs, or "
                              "raise its "
                              "key host_memory");
        else if (!g->overflow && held(g) + more > g->visible)
                tell_size(g, more);
        else if (was_refused(&g->refused_commit, g->commit, g->heap.allocated + more))
                tell_shortage(g, more, g->refused_commit.why);
}

void room_tell_unevictable(const struct gpu *g, uint64_t more)
{
        if (was_refused(&g->refused_unevictable, g->unevictable_allowed, g->unevictable + more))
                tell_shortage(g, more, g->refused_unevictable.why);
}

void room_taken(struct gpu *g)
{
        /* GATE_UNBACKED changes only with the lock held, so a million small allocations shut the
         * gate only once. */
        if (heap_missing(&g->heap) > 0 && !(atomic_load(&gate_bits) & GATE_UNBACKED))
                gate_shut(GATE_UNBACKED);
        if (g->heap.allocated != g->told.usage.allocated)
                request_report(g);
        g->commit_used_ns = clock_now_ns();
        if (g->heap.allocated > g->most_allocated) {
                g->most_allocated = g->heap.allocated;
                g->grew_ns = g->commit_used_ns;
        }
}
