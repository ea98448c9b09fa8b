/* slab.h: small allocations packed into one block. Bookkeeping only; offsets are bytes from the
 * block's start. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct slab;

struct slab *slab_new(uint64_t bytes); /* NULL: no memory */
void slab_delete(struct slab *s);      /* NULL is a no-op */

/* A quick guess. False: the slab has no room; true: slab_allocate() is worth a try. */
bool slab_may_fit(const struct slab *s, uint64_t bytes);
/* Returns 0, or -ENOSPC. A thorough search always finds room if there is any; if it fails,
 * slab_may_fit() returns false for this size until enough is freed. A search that is not thorough
 * gives up soon. */
int slab_allocate(struct slab *s, uint64_t bytes, bool thorough, uint64_t *ret_offset);
uint64_t slab_used(const struct slab *s); /* bytes in use */

/* Returns the number of free bytes around an offset, and where they begin. Returns 0 if the offset
 * is in use. */
uint64_t slab_hole(const struct slab *s, uint64_t offset, uint64_t *ret_start);
/* Allocate at an offset that is known to be free. */
void slab_fill(struct slab *s, uint64_t offset, uint64_t bytes);
/* Find the allocation around offset. *ret_bytes: its requested size. False: there is none. */
bool slab_find(const struct slab *s, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes);
/* Each allocation has a mark: one bit for the caller to set and clear, clear at first. start: the
 * start of the allocation. */
void slab_mark(struct slab *s, uint64_t start, bool on);
bool slab_marked(const struct slab *s, uint64_t start);
void slab_free(struct slab *s, uint64_t start);
bool slab_empty(const struct slab *s);
