/* kept.h: copies on the host of extents that are on the card.
 *
 * The copy of an evicted extent with a known fingerprint is kept when the extent is restored: the
 * next eviction may find the extent unchanged. A kept copy is dropped as soon as host memory is
 * needed for anything else. */
#pragma once

#include "preload/state/core.h"

/* Drop the host copy, because it is out of date or not needed. core_lock held, or the extent marked
 * busy. */
void kept_forget(struct arena *a, struct extent *e);
/* Takes host memory for an extent that is marked busy: the memory of its own kept copy, new memory,
 * or the memory of other kept copies. Returns 0, or -ENOMEM. core_lock not held. */
int kept_take(struct gpu *g, struct arena *a, struct extent *e);
