/* sums.c: owns the moments when the books and the driver must agree. Must never tell a figure while
 * somebody is about to change it: who compares takes it for exact. */
#include "preload/sums.h"

#include "preload/core.h"
#include "preload/trace.h"

/* Nobody makes or releases memory of the heap. *ret_managed: what is managed of it. */
static bool at_rest(struct gpu *g, uint64_t *ret_managed)
{
        struct heap_cursor c = {0};
        const struct extent *e;

        *ret_managed = 0;
        while ((e = heap_walk(&g->heap, &c))) {
                if (!extent_is_free(e))
                        return false;
                *ret_managed += e->managed && e->state == EXTENT_RESIDENT ? e->bytes : 0;
        }
        return g->heap.backed == g->heap.resident;
}

/* Grows with all that has to do with memory of the heap. */
static uint64_t events(const struct gpu *g)
{
        return g->heap.next_id + g->heap.buried + g->moved_out + g->moved_in + g->spared_out +
               g->spared_in;
}

static void tell(struct gpu *g, bool last)
{
        static struct told {
                uint64_t created, on_card, events;
        } told[CORE_GPUS_MAX];
        uint64_t on_card = g->heap.backed - g->pin_ghosts, managed;
        struct told now = {on_card + g->fixed_handles, on_card + g->fixed - g->fixed_room,
                           events(g)};
        struct told *before = &told[g->index];

        if (!last && now.created == before->created && now.on_card == before->on_card &&
            now.events == before->events)
                return;
        if (!at_rest(g, &managed))
                return;
        *before = now;
        trace_event("created", g->index, now.created - managed);
        trace_event("on_card", g->index, now.on_card - managed);
}

void sums_tell(bool last)
{
        if (!trace_is_on() || core.unbooked)
                return;
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].managed)
                        tell(&core.gpus[i], last);
}
