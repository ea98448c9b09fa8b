/* room.c: owns the search for room for more memory. Must never promise more than the daemon has. */
#include "preload/pool/room.h"

#include <errno.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/move/swap.h"
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

static bool find_room(struct gpu *g, uint64_t more) UNLOCKS(core_lock)
{
        struct block *adopted;

        if (more > sub_sat(g->visible, core_own_unevictable(g)))
                return false; /* not enough even if all unused memory were given up */
        if (more <= core_visible_free(g) && room_commit(g, more) == 0)
                return true;
        if (pool_reclaim(g, more))
                return true;
        if (g->cap || !heap_adopted(&g->heap, 0, UINT64_MAX))
                return false; /* memory left to the driver makes no room in a cap */
        lock_release(&core_lock);
        home_find_out(g);
        lock_acquire(&core_lock);
        adopted = heap_adopted(&g->heap, 0, UINT64_MAX);
        if (!adopted || home_answer(&g->home) != HOME_LEAVES)
                return false; /* managed memory that has to stay on the card makes no room */
        swap_disown(g, adopted);
        return true;
}

/* On a card of this size the driver would say no more. But the card is larger, so say why once. */
void room_tell_cap(const struct gpu *g, uint64_t more)
{
        static bool told;

        if (told || !g->cap ||
            g->heap.allocated + more + core_own_unevictable(g) <= MIN(g->cap, g->visible))
                return;
        told = true;
        log_warning("out of memory: this program may use %llu MiB of GPU %u (memory cap), and asks "
                    "for %llu MiB beside %llu MiB",
                    (unsigned long long)(g->cap / MIB), g->index, (unsigned long long)(more / MIB),
                    (unsigned long long)((g->heap.allocated + core_own_unevictable(g)) / MIB));
}

bool room_grow(struct gpu *g, uint64_t more)
{
        if (find_room(g, more))
                return true;
        room_tell_cap(g, more);
        return false;
}

void room_taken(struct gpu *g)
{
        /* GATE_UNBACKED changes only with the lock held, so a million small allocations shut the
         * gate only once. */
        if (heap_missing(&g->heap) > 0 && !(atomic_load(&gate_bits) & GATE_UNBACKED))
                gate_shut(GATE_UNBACKED);
        if (g->heap.allocated != g->allocated_said)
                request_report(g);
        g->commit_used_ns = clock_now_ns();
        if (g->heap.allocated > g->most_allocated) {
                g->most_allocated = g->heap.allocated;
                g->grew_ns = g->commit_used_ns;
        }
}
