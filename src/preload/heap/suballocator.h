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
        uint64_t number;                      /* free: when, as counted by the lane's owner */
        struct suballocation *next, **link;   /* free: in its bin; live: in its bucket */
        struct suballocation *older, *newer;  /* free: of its lane */
};

struct lane {
        struct suballocation *bins[SUBALLOCATOR_BINS];
        uint64_t filled[SUBALLOCATOR_BINS / 64];
        struct suballocation *oldest, *newest; /* by number */
        uint64_t bytes;
};

struct suballocator {
        struct chunk *chunks; /* one for each block of the heap */
        struct lane common;
        struct suballocation **buckets; /* live ones by address */
        uint64_t bucket_count, live;
};

struct chunk {
        struct chunk *next;
        struct suballocator *suballocator;
        struct block *block;
        uint64_t *starts;             /* one bit a unit: set where a live suballocation begins */
        struct suballocation *lowest; /* of all its suballocations */
};

/* Add a block: its address space becomes one common suballocation. 0, -ENOMEM. */
int suballocator_add(struct suballocator *p, struct block *b);
/* Forget a block and what is live in it. */
void suballocator_remove(struct suballocator *p, struct chunk *c);
/* Free what is left when there are no blocks. */
void suballocator_clear(struct suballocator *p);

/* The bin for suballocations of so many bytes; larger ones are in the same or a higher bin. */
unsigned suballocator_bin(uint64_t bytes);

/* The smallest free suballocation of a lane that holds so many bytes, or nearly the smallest; NULL:
 * none. in_use_only: only one whose use leaves heap.allocated as it is. */
struct suballocation *suballocator_fit(const struct lane *l, uint64_t bytes, bool in_use_only);
/* Join a lane's suballocation with common neighbours until it holds so many bytes. NULL: none can.
 */
struct suballocation *suballocator_join(struct suballocator *p, struct lane *l, uint64_t bytes,
                                        bool in_use_only);

/* Make the low end of a free suballocation live. NULL: no host memory. */
struct suballocation *suballocator_take(struct suballocator *p, struct suballocation *from,
                                        uint64_t bytes);
/* Free a live suballocation. number: not less than any other in the lane. */
void suballocator_give(struct suballocator *p, struct suballocation *dead, struct lane *l,
                       uint64_t number);
/* Move what the lane got up to this number to another lane, with its number there. */
void suballocator_pass(struct lane *from, uint64_t up_to, struct lane *to, uint64_t number);

/* The live suballocation that begins at an address; NULL: none. */
struct suballocation *suballocator_at(const struct suballocator *p, CUdeviceptr address);
/* The live suballocation of a chunk around an address; NULL: none. */
struct suballocation *suballocator_around(const struct chunk *c, CUdeviceptr address);
