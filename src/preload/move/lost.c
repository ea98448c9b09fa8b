/* lost.c: owns the memory of a process on a GPU on which one of its contexts has failed (poison.h).
 * Must never wait for a transfer: it runs in the agent, which makes the transfers. */
#include "preload/move/lost.h"

#include "preload/heap/heap.h"
#include "preload/move/swap.h"
#include "preload/state/core.h"

static bool give_back(struct gpu *g) UNLOCKS(core_lock)
{
        struct block *b, **link = &g->lost;

        /* From here on the program's calls about these blocks go to the driver, which answers with
         * the error. */
        while ((b = heap_orphan(&g->heap, NULL))) {
                b->next_late = g->lost;
                g->lost = b;
        }
        while (*link) {
                b = *link;
                if (b->held || block_is_busy(b)) {
                        link = &b->next_late; /* a copy in flight has not ended yet */
                        continue;
                }
                *link = b->next_late;
                (void)swap_empty(g, b);
                link = &g->lost; /* swap_empty() has given up the lock: begin again */
        }
        return g->lost != NULL;
}

bool lost_clean(void)
{
        bool more = false;

        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];

                if (g->managed && g->error && g->heap.allocated > 0)
                        more = give_back(g) || more;
        }
        return more;
}
