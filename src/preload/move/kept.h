/* kept.h: what the host still has of extents that are on the card.
 *
 * The copy of an evicted extent whose fingerprint is known is kept when the extent comes back, so
 * that the next eviction may find it unchanged. It is never worth more than the memory: whoever
 * needs that gets it. */
#pragma once

#include "preload/state/core.h"

/* The host's copy is of no use any more. core_lock held, or the extent marked busy. */
void kept_forget(struct arena *a, struct extent *e);
/* Room in the host's memory for what is kept of an extent that is marked busy: its own, new, or
 * what was kept of others. 0, or -ENOMEM. core_lock not held. */
int kept_take(struct gpu *g, struct arena *a, struct extent *e);
/* The host's memory is short: hold at most so many bytes, as far as what is evicted allows. It
 * takes its time; core_lock not held. */
void kept_trim(struct gpu *g, struct arena *a, uint64_t bytes);
