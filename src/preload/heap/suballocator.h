/* suballocator.h: the memory of a pool, cut into suballocations, which are live or free.
 *
 * A free suballocation is in one free list. The free list of a stream holds what this stream has
 * freed, and only this stream may use it. Every stream may use the common free list. Neighbours in
 * the same free list are merged. The suballocator only keeps accounts: it calls no driver. The
 * caller holds core_lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

struct block;
struct chunk;
struct free_list;

#define SUBALLOCATOR_BINS \
        384 /* eight bins for each power of two: sizes in a bin differ by an eighth at most */

struct suballocation {
        CUdeviceptr address;
        uint64_t bytes;     /* a multiple of HEAP_SMALL_ALIGN */
        uint64_t requested; /* live: bytes that the program asked for */
        struct chunk *chunk;
        struct suballocation *lower, *higher; /* neighbours in the block */
        struct free_list *free_list;          /* the list that contains it; NULL: it is live */
        uint64_t number; /* free: `number` of suballocator_give() or suballocator_pass() */
        struct suballocation *next, **link;  /* free: chain of its bin; live: chain of its bucket */
        struct suballocation *older, *newer; /* free: neighbours by age in its list */
};

struct free_list {
        struct suballocation *bins[SUBALLOCATOR_BINS];
        uint64_t filled[SUBALLOCATOR_BINS / 64];
        struct suballocation *oldest, *newest; /* ends of the chain by age */
        uint64_t bytes;
};

struct suballocator {
        struct chunk *chunks; /* one for each block of the heap */
        struct free_list common;
        struct suballocation **buckets; /* hash table of the live suballocations, by address */
        uint64_t bucket_count, live;
};

struct chunk {
        struct chunk *next;
        struct suballocator *suballocator;
        struct block *block;
        uint64_t *starts; /* one bit for each unit: set where a live suballocation begins */
        struct suballocation *lowest; /* the suballocation with the lowest address */
};

/* Add a block: its address space becomes one suballocation in the common list. Returns 0, or
 * -ENOMEM. */
int suballocator_add(struct suballocator *p, struct block *b);
/* Forget a block and all suballocations in it. */
void suballocator_remove(struct suballocator *p, struct chunk *c);
/* Free the suballocator's own memory, once it has no blocks. */
void suballocator_clear(struct suballocator *p);

/* Returns the bin for suballocations of this size; larger ones are in the same or a higher bin. */
unsigned suballocator_bin(uint64_t bytes);

/* Returns nearly the smallest suballocation of a free list that has this many bytes, or NULL.
 * in_use_only: consider only memory that heap.allocated counts already. */
struct suballocation *suballocator_fit(const struct free_list *l, uint64_t bytes, bool in_use_only);
/* Enlarge a suballocation of a free list to this many bytes, by bytes of neighbours that are in the
 * common list. NULL: no suballocation has large enough neighbours there. */
struct suballocation *suballocator_join(struct suballocator *p, struct free_list *l, uint64_t bytes,
                                        bool in_use_only);

/* Make this many bytes at the low end of a free suballocation live. NULL: no host memory. */
struct suballocation *suballocator_take(struct suballocator *p, struct suballocation *from,
                                        uint64_t bytes);
/* Free a live suballocation into a free list. number: must not be less than any number in that
 * list. */
void suballocator_give(struct suballocator *p, struct suballocation *dead, struct free_list *l,
                       uint64_t number);
/* Move the suballocations with numbers up to `up_to` to another list, where they get `number`. */
void suballocator_pass(struct free_list *from, uint64_t up_to, struct free_list *to,
                       uint64_t number);

/* Returns the live suballocation that begins at an address, or NULL. */
struct suballocation *suballocator_at(const struct suballocator *p, CUdeviceptr address);
/* Returns the live suballocation of a chunk that contains this address, or NULL. */
struct suballocation *suballocator_around(const struct chunk *c, CUdeviceptr address);
