/* swap.c: a fake of swap.h for unit tests that have heaps: memory comes and goes at once, in the
 * accounts alone. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/move/extent.h"
#include "preload/move/swap.h"

#define WEAK __attribute__((weak))

void account_back(struct gpu *g, struct extent *e)
{
        if (!e->live || e->state == EXTENT_RESIDENT)
                return;
        e->state = EXTENT_RESIDENT;
        g->heap.backed += e->bytes;
        g->heap.resident += e->bytes;
}

void account_unback(struct gpu *g, struct extent *e)
{
        if (e->state == EXTENT_RESIDENT) {
                g->heap.backed -= e->bytes;
                g->heap.resident -= e->bytes;
        }
        if (e->state == EXTENT_MAPPED)
                g->heap.mapped -= e->bytes;
        e->state = EXTENT_UNBACKED;
}

int back_answer;
WEAK int swap_back_block(struct gpu *g, struct block *b)
{
        give_up_lock();
        for (unsigned i = 0; back_answer == 0 && i < b->extent_count; i++)
                account_back(g, &b->extents[i]);
        return back_answer;
}

WEAK void swap_back_new(struct gpu *g)
{
        give_up_lock();
}

/* In place of extent.c, which a test may have as well. */
WEAK CUresult extent_unmap(const struct gpu *g, const struct extent *e)
{
        return CUDA_SUCCESS;
}

static void bury(struct gpu *g, struct block *b, bool unmap)
{
        give_up_lock();
        for (unsigned i = 0; i < b->extent_count; i++) {
                struct extent *e = &b->extents[i];

                assert_false(e->busy);
                if (unmap && (e->state == EXTENT_RESIDENT || e->state == EXTENT_MAPPED)) {
                        lock_release(&core_lock);
                        (void)extent_unmap(g, e);
                        lock_acquire(&core_lock);
                }
                account_unback(g, e);
        }
        heap_bury(&g->heap, b);
}

unsigned discarded;
WEAK void swap_discard(struct gpu *g, struct block *b)
{
        assert_true(b->dying);
        discarded++;
        bury(g, b, true);
}

WEAK void swap_hand_over(struct gpu *g, struct block *b)
{
        bury(g, b, false);
}
