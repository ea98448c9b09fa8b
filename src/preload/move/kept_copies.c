/* kept_copies.c: owns the decision which kept copy is dropped. Must never drop the only copy. */
#include "preload/move/kept_copies.h"

#include <errno.h>

void kept_forget(struct arena *a, struct extent *e)
{
        arena_give(a, &e->host);
        e->known = false;
}

#define LOOK_MOST 4096u /* extents that a sweep checks before giving up the lock */

/* Copies at low addresses are dropped first: choose_evict() begins at high addresses, so these
 * copies are needed last. */
bool kept_drop(struct gpu *g, struct arena *a, struct kept_sweep *s, uint64_t bytes)
{
        bool more = true;
        uint64_t dropped = 0;

        lock_acquire(&core_lock);
        for (unsigned n = 0; n < LOOK_MOST && dropped < bytes; n++) {
                struct extent *e = heap_walk(&g->heap, &s->at);

                if (!e) { /* begin again at the start, where copies may have appeared */
                        more = s->found;
                        *s = (struct kept_sweep){0};
                        break;
                }
                if (e->busy || e->state != EXTENT_RESIDENT || !e->host.count)
                        continue;
                dropped += extent_pages_bytes(e->kept);
                kept_forget(a, e);
                s->found = true;
        }
        lock_release(&core_lock);
        return more;
}

int kept_take(struct gpu *g, struct arena *a, struct extent *e)
{
        uint64_t bytes = extent_pages_bytes(e->kept);
        struct kept_sweep s = {0};

        int r = 0;

        while (!e->host.count && (r = arena_take(a, bytes, &e->host)) < 0)
                if (r != -ENOMEM || !kept_drop(g, a, &s, bytes))
                        return r;
        return 0;
}
