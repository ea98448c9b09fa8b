/* slab.h: small allocations packed into one block. Books only; offsets in bytes from the block's
 * start. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct slab;

struct slab *slab_new(uint64_t bytes); /* NULL: no memory */
void slab_delete(struct slab *s);      /* NULL is a no-op */

/* A cheap guess: false is certain, true means slab_allocate() is worth a try. */
bool slab_may_fit(const struct slab *s, uint64_t bytes);
/* 0, -ENOSPC. A thorough search finds what there is, and its failure makes slab_may_fit() say no to
 * this size until something is freed that makes room for it; another one soon gives up. */
int slab_allocate(struct slab *s, uint64_t bytes, bool thorough, uint64_t *ret_offset);
uint64_t slab_used(const struct slab *s); /* bytes */

/* The free bytes around an offset, and where they begin; 0: it is in use. */
uint64_t slab_hole(const struct slab *s, uint64_t offset, uint64_t *ret_start);
/* An allocation where a hole is known to be. */
void slab_fill(struct slab *s, uint64_t offset, uint64_t bytes);
/* The allocation around offset; false where nothing is. bytes: its size as it was asked for. */
bool slab_find(const struct slab *s, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes);
/* A mark of an allocation, by its start; a new one has none. */
void slab_mark(struct slab *s, uint64_t start, bool on);
bool slab_marked(const struct slab *s, uint64_t start);
void slab_free(struct slab *s, uint64_t start);
bool slab_empty(const struct slab *s);
