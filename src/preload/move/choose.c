/* choose.c: owns the choice of the next extent to evict, to restore or to back. Must never mark the
 * extent busy; the caller does. core_lock is held throughout.
 *
 * A program may have tens of thousands of extents, if it creates its memory in pages. A walk over
 * all of them for each choice would take longer than the moves. So a walk remembers the extents
 * that it would choose next; each is checked again before use. */
#include "preload/move/swap_state.h"

#include "base/macros.h"
#include "preload/move/extent.h"

static void begin_choice(struct choice *c, const struct gpu *g)
{
        *c = (struct choice){.buried = g->heap.buried};
}

/* Only the last CHOICE_MAX extents are remembered. */
static void remember(struct choice *c, struct extent *e)
{
        c->extents[c->end++ % CHOICE_MAX] = e;
        c->count += c->count < CHOICE_MAX;
}

/* Returns the extent that was remembered last. NULL: no extent is remembered, or some remembered
 * extents may have been freed. */
static struct extent *last(const struct choice *c, const struct gpu *g)
{
        return c->count > 0 && c->buried == g->heap.buried ? c->extents[(c->end - 1) % CHOICE_MAX]
                                                           : NULL;
}

static void drop_last(struct choice *c)
{
        c->end--;
        c->count--;
}

/* ---- extents to come to the card: by state, in address order ---- */

static bool may_come(const struct extent *e, enum extent_state state)
{
        return e->state == state && e->live && !e->block->dying && extent_is_free(e);
}

struct extent *choose_by_state(struct gpu *g, enum extent_state state)
{
        struct choice *c = state == EXTENT_EVICTED ? &g->swap->evicted : &g->swap->unbacked;
        struct extent *e, *found[CHOICE_MAX];
        struct heap_cursor cursor = {0};
        unsigned n = 0;
        bool any = false;

        /* If the last walk found no evicted extent, another walk would be in vain: for example in a
         * heap of new memory. */
        if (state == EXTENT_EVICTED && g->swap->none_left)
                return NULL;
        for (; (e = last(c, g)); drop_last(c))
                if (may_come(e, state))
                        return e;
        while (n < CHOICE_MAX && (e = heap_walk(&g->heap, &cursor))) {
                any = any || e->state == state;
                if (may_come(e, state))
                        found[n++] = e;
        }
        if (state == EXTENT_EVICTED)
                g->swap->none_left = !any;
        begin_choice(c, g);
        while (n > 0)
                remember(c, found[--n]);
        return last(c, g);
}

struct extent *choose_whole(struct gpu *g)
{
        struct heap_cursor c = {0};
        struct extent *e;

        while ((e = heap_walk(&g->heap, &c)))
                if (extent_is_free(e) && e->state == EXTENT_EVICTED && extent_may_adopt(g, e) &&
                    e->kept == extent_whole(e))
                        return e;
        return NULL;
}

void choose_left(struct gpu *g)
{
        g->swap->none_left = false;
}

/* ---- extents to leave the card ---- */

static bool may_go(const struct gpu *g, const struct extent *e)
{
        return e->state == EXTENT_RESIDENT && !e->exported && !e->block->dying &&
               extent_is_free(e) && (!e->managed || home_answer(&g->home) == HOME_LEAVES);
}

/* Forget the remembered extents, so that the next walk also finds the restored extents at higher
 * addresses. The same extents should be evicted each time, because the host has copies of them. */
void choose_arrived(struct gpu *g)
{
        g->swap->resident.count = 0;
}

struct extent *choose_evict(struct gpu *g, uint64_t missing)
{
        struct choice *c = &g->swap->resident;
        struct heap_cursor cursor = {0};
        struct extent *e, *best = NULL;
        uint64_t largest = 0;

        /* The remembered extents are as large as the largest of the last walk. Take one that is not
         * larger than the missing bytes. */
        for (; (e = last(c, g)); drop_last(c))
                if (may_go(g, e) && e->live && e->bytes <= missing)
                        return e;
        begin_choice(c, g);
        while ((e = heap_walk(&g->heap, &cursor))) {
                if (!may_go(g, e))
                        continue;
                if (e->bytes > largest)
                        begin_choice(c, g);
                largest = MAX(largest, e->bytes);
                if (e->bytes == largest)
                        remember(c, e);
                if (best && !best->live != !e->live) {
                        best = e->live ? best : e;
                        continue;
                }
                if (!best ||
                    (best->bytes < missing ? e->bytes >= best->bytes
                                           : e->bytes >= missing && e->bytes <= best->bytes))
                        best = e;
        }
        /* An extent without allocations needs no copy. Remember no other extents, so that the next
         * walk finds the next extent without allocations. */
        if (best && !best->live)
                begin_choice(c, g);
        return best;
}
