/* suballocator.h: the memory of a pool, cut into suballocations: some live, the others free.
 *
 * A free suballocation lies in a lane: that of the stream it was freed on, which may use it again
 * at once, or the common one of what every stream may use. Neighbours of one lane are one
 * suballocation. Books only: no driver call is made, and the caller holds core_lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

struct block;
struct chunk;
struct lane;

#define SUBALLOCATOR_BINS                                                             \
        384 /* eight sizes for each power of two: what is found fits within an eighth \
             */

struct suballocation {
        CUdeviceptr address;
        uint64_t bytes;     /* a multiple of HEAP_SMALL_ALIGN */
        uint64_t requested; /* live: what the program asked for */
        struct chunk *chunk;
        struct suballocation *lower, *higher; /* neighbours in the block */
        struct lane *lane;                    /* NULL: live */
        uint64_t number;                      /* free: when, as the lane's owner counts */
        struct suballocation *next, **link;   /* free: of its bin; live: of its bucket */
        struct suballocation *older, *newer;  /* free: of its lane */
};

struct lane {
        struct suballocation *bins[SUBALLOCATOR_BINS];
        uint64_t filled[SUBALLOCATOR_BINS / 64];
        struct suballocation *oldest, *newest; /* by number */
        uint64_t bytes;
};

struct suballocator {
        struct chunk *chunks; /* one a block of the heap */
        struct lane common;
        struct suballocation **buckets; /* live ones by address */
        uint64_t bucket_count, live;
};

struct chunk {
        struct chunk *next;
        struct suballocator *suballocator;
        struct block *block;
        uint64_t *starts;             /* one bit a unit: a live suballocation begins here */
        struct suballocation *lowest; /* of all its suballocations */
};

/* All of a block's address space becomes one common suballocation. 0, -ENOMEM. */
int suballocator_add(struct suballocator *p, struct block *b);
/* Forget a block, with what is live in it, too. */
void suballocator_remove(struct suballocator *p, struct chunk *c);
/* ... and what is left when there are no more. */
void suballocator_clear(struct suballocator *p);

/* The bin that suballocations of so many bytes are in; larger ones are not in lower bins. */
unsigned suballocator_bin(uint64_t bytes);

/* The smallest free suballocation of a lane that holds so many bytes, or nearly; NULL: none.
 * in_use_only: where using it leaves heap.allocated as it is. */
struct suballocation *suballocator_fit(const struct lane *l, uint64_t bytes, bool in_use_only);
/* Joins a lane's suballocation with common neighbours, as far as it takes to hold so many bytes.
 * NULL: none is enough. */
struct suballocation *suballocator_join(struct suballocator *p, struct lane *l, uint64_t bytes,
                                        bool in_use_only);

/* The low end of a free suballocation comes alive. NULL: no memory for the books. */
struct suballocation *suballocator_take(struct suballocator *p, struct suballocation *from,
                                        uint64_t bytes);
/* A live suballocation is freed. number: no less than any that the lane has. */
void suballocator_give(struct suballocator *p, struct suballocation *dead, struct lane *l,
                       uint64_t number);
/* What the lane got up to this number goes to another one, with its number there. */
void suballocator_pass(struct lane *from, uint64_t up_to, struct lane *to, uint64_t number);

/* The live suballocation that begins at an address; NULL: none. */
struct suballocation *suballocator_at(const struct suballocator *p, CUdeviceptr address);
/* The live suballocation of a chunk around an address; NULL: none. */
struct suballocation *suballocator_around(const struct chunk *c, CUdeviceptr address);
