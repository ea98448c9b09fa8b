/* parcels.h: the memory of a pool, cut into parcels: some live, the others free.
 *
 * A free parcel lies in a lane: that of the stream it was freed on, which may use it again at once,
 * or the common one of what every stream may use. Neighbours of one lane are one parcel. Books
 * only: no driver call is made, and the caller holds core_lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

struct block;
struct chunk;
struct lane;

#define PARCEL_BINS                                                                   \
        384 /* eight sizes for each power of two: what is found fits within an eighth \
             */

struct parcel {
        CUdeviceptr address;
        uint64_t bytes;     /* a multiple of HEAP_SMALL_ALIGN */
        uint64_t requested; /* live: what the program asked for */
        struct chunk *chunk;
        struct parcel *lower, *higher; /* neighbours in the block */
        struct lane *lane;             /* NULL: live */
        uint64_t number;               /* free: when, as the lane's owner counts */
        struct parcel *next, **link;   /* free: of its bin; live: of its bucket */
        struct parcel *older, *newer;  /* free: of its lane */
};

struct lane {
        struct parcel *bins[PARCEL_BINS];
        uint64_t filled[PARCEL_BINS / 64];
        struct parcel *oldest, *newest; /* by number */
        uint64_t bytes;
};

struct parcels {
        struct chunk *chunks; /* one a block of the heap */
        struct lane common;
        struct parcel **buckets; /* live ones by address */
        uint64_t bucket_count, live;
};

struct chunk {
        struct chunk *next;
        struct parcels *parcels;
        struct block *block;
        uint64_t *starts;      /* one bit a unit: a live parcel begins here */
        struct parcel *lowest; /* of all its parcels */
};

/* All of a block's address space becomes one common parcel. 0, -ENOMEM. */
int parcels_add(struct parcels *p, struct block *b);
/* Forget a block, with what is live in it, too. */
void parcels_remove(struct parcels *p, struct chunk *c);
/* ... and what is left when there are no more. */
void parcels_clear(struct parcels *p);

/* The bin that parcels of so many bytes are in; larger ones are not in lower bins. */
unsigned parcels_bin(uint64_t bytes);

/* The smallest free parcel of a lane that holds so many bytes, or nearly; NULL: none.
 * in_use_only: where using it leaves heap.allocated as it is. */
struct parcel *parcels_fit(const struct lane *l, uint64_t bytes, bool in_use_only);
/* Joins a lane's parcel with common neighbours, as far as it takes to hold so many bytes. NULL:
 * none is enough. */
struct parcel *parcels_join(struct parcels *p, struct lane *l, uint64_t bytes, bool in_use_only);

/* The low end of a free parcel comes alive. NULL: no memory for the books. */
struct parcel *parcels_take(struct parcels *p, struct parcel *from, uint64_t bytes);
/* A live parcel is freed. number: no less than any that the lane has. */
void parcels_give(struct parcels *p, struct parcel *dead, struct lane *l, uint64_t number);
/* What the lane got up to this number goes to another one, with its number there. */
void parcels_pass(struct lane *from, uint64_t up_to, struct lane *to, uint64_t number);

/* The live parcel that begins at an address; NULL: none. */
struct parcel *parcels_at(const struct parcels *p, CUdeviceptr address);
/* The live parcel of a chunk around an address; NULL: none. */
struct parcel *parcels_around(const struct chunk *c, CUdeviceptr address);
