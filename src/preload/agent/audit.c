/* audit.c: owns the moments at which the accounts and the driver must agree. Must never trace a
 * figure while it is being changed: tests compare it exactly. */
#include "preload/agent/audit.h"

#include "preload/state/core.h"
#include "preload/freeze/mover.h"
#include "preload/process/trace.h"

static bool block_at_rest(const struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++)
                if (!extent_is_free(&b->extents[i]))
                        return false;
        return true;
}

/* True if no memory of the heap is being made or released, including memory that the program has
 * freed. */
static bool at_rest(const struct heap *h)
{
        for (size_t i = 0; i < h->count; i++)
                if (!block_at_rest(h->blocks[i]))
                        return false;
        for (size_t i = 0; i < h->handle_count; i++)
                if (!block_at_rest(h->handles[i]))
                        return false;
        return h->backed == h->resident;
}

/* Returns the managed part of the resident memory. A block that the program has freed counts until
 * it leaves the accounts. */
static uint64_t managed_resident(const struct heap *h)
{
        uint64_t bytes = 0;

        for (size_t i = 0; i < h->count; i++)
                for (unsigned n = 0; h->blocks[i]->managed && n < h->blocks[i]->extent_count; n++)
                        if (h->blocks[i]->extents[n].state == EXTENT_RESIDENT)
                                bytes += h->blocks[i]->extents[n].bytes;
        return bytes;
}

/* Returns a number that grows with every event that concerns memory of the heap. */
static uint64_t events(const struct gpu *g) REQUIRES(core_lock)
{
        return g->heap.next_id + g->heap.buried + g->moved_out + g->moved_in + g->spared_out +
               g->spared_in;
}

static void tell(struct gpu *g, bool last) REQUIRES(core_lock)
{
        static struct told {
                uint64_t created, on_card, events;
        } told[GPUS_MAX];
        uint64_t on_card = g->heap.backed - g->export_ghosts, managed;
        uint64_t unused = g->unevictable_room + (g->mover ? 0 : g->mover_room);
        struct told now = {on_card + g->unevictable_handles +
                                   (g->mover ? mover_bytes(g->mover) : 0),
                           on_card + g->unevictable - unused, events(g)};
        struct told *before = &told[g->index];

        if (!last && now.created == before->created && now.on_card == before->on_card &&
            now.events == before->events)
                return;
        if (!at_rest(&g->heap))
                return;
        managed = managed_resident(&g->heap);
        *before = now;
        trace_event("created", g->index, now.created - managed);
        trace_event("on_card", g->index, now.on_card - managed);
}

void audit_tell(bool last)
{
        if (!trace_is_on() || core.unbooked)
                return;
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].managed)
                        tell(&core.gpus[i], last);
}
