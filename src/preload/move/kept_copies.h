/* kept_copies.h: copies on the host of extents that are on the card.
 *
 * The copy of an evicted extent with a known fingerprint is kept when the extent is restored: the
 * next eviction may find the extent unchanged. A kept copy is dropped as soon as host memory is
 * needed for anything else. */
#pragma once

#include "preload/state/core.h"

/* How far a walk over the kept copies has come; {0}: it begins. */
struct kept_sweep {
        struct heap_cursor at;
        bool found; /* a copy was found since the walk began at the start of the heap */
};

/* Drop the host copy, because it is out of date or not needed. core_lock held, or the extent marked
 * busy. */
void kept_forget(struct arena *a, struct extent *e);
/* Takes host memory for an extent that is marked busy: the memory of its own kept copy, new memory,
 * or the memory of other kept copies. Returns 0; -EAGAIN, as from arena_take(); or -ENOMEM.
 * core_lock not held. */
int kept_take(struct gpu *g, struct arena *a, struct extent *e);
/* Drops kept copies in the next part of the heap, until `bytes` are dropped. False: no kept copy is
 * left. core_lock not held. */
bool kept_drop(struct gpu *g, struct arena *a, struct kept_sweep *s, uint64_t bytes);
