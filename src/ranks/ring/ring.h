/* ring.h: the memory that the ranks of a communicator share.
 *
 * Each rank has a ring, which it alone writes and all others read. The rings are on the card if all
 * ranks use the same card, else in host memory. The flags are 32-bit words in host memory. A rank's
 * stream sets a flag of another rank, whose stream waits for the flag, clears it, and goes on. The
 * CPU reads flags to see whether a rank waits (ring_waits()). A small part at the end of each ring
 * is for that rank alone: the table of its sends and receives.
 *
 * A process exports at most RING_MOST bytes of rings, fewer on a small card. So the rings of later
 * communicators are smaller. All functions need the communicator's context to be current, except
 * those marked "any thread". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "ranks/meet/meet.h"

#define RING_MOST  (UINT64_C(256) << 20)
#define RING_LEAST (UINT64_C(2) << 20)
/* The rings are also at most this part of the card (1 / 64), because several ranks share it. */
#define RING_CARD_PART 64
#define RING_PARTS     2 /* a rank fills one while others read the other */
/* The table has this part of a ring (1 / 32). */
#define RING_TABLE_PART 32

/* The messages that a flag carries from one rank to another. Each part of a ring has its own. */
enum ring_flag {
        RING_FILLED, /* my ring holds what you are to read */
        RING_RESULT, /* my ring holds the result, and I have read yours */
        RING_READ,   /* I have read your ring */
        RING_SENT,   /* like RING_FILLED, but for one receiver */
        RING_TAKEN,  /* like RING_READ, but for one sender */
        RING_FLAGS
};

/* A stream can wait for one word. So each rank has a word with RING_BELLS bells, which are bytes. A
 * rank that sets RING_SENT or RING_TAKEN for another rank then sets its bell there. Ranks share a
 * bell if there are more ranks than bells. */
#define RING_BELLS     8
#define RING_ALL_BELLS UINT64_C(0x0101010101010101)
static inline unsigned ring_bell_of(int rank)
{
        return (unsigned)rank % RING_BELLS;
}

struct ring {
        int rank, n;
        bool on_host;
        uint64_t bytes; /* size of each rank's ring */
        CUdeviceptr of[MEET_RANKS_MAX];
        CUmemGenericAllocationHandle handles[MEET_RANKS_MAX];
        void *host; /* all rings, if they are in host memory */
        uint32_t *flags;
        CUdeviceptr flags_device;
        size_t flags_bytes, host_bytes;
        uint64_t counted; /* its part of RING_MOST */
        struct ring *next;
};

/* Returns how large a ring this process can have now; ring_make() gets the least of all ranks'. */
uint64_t ring_room(uint64_t card_bytes);
/* Returns half of a ring's bytes, but not less than RING_LEAST. */
uint64_t ring_half(uint64_t bytes);
/* Make the rings of a communicator, together with the other ranks. All ranks get the same result.
 * 0; -errno of meet_all(); -ENOMEM: there is no memory, on this or another rank; -EIO: CUDA refuses
 * for another reason (ret_error: CUDA's error here, or CUDA_SUCCESS). */
int ring_make(struct meet *m, int rank, int n, uint64_t bytes, bool on_host, struct ring *ret,
              CUresult *ret_error);
/* Call it when nothing in flight uses the rings any more. */
void ring_free(struct ring *r);

/* Returns the address of a flag for the GPU, from one rank to another. Any thread. */
CUdeviceptr ring_flag(const struct ring *r, enum ring_flag flag, unsigned part, int from, int to);
/* Returns the address of a rank's bells for the GPU. Any thread. */
CUdeviceptr ring_bells(const struct ring *r, int rank);
/* Returns the address of the word that says what this rank's stream waits for: ring_waiting_for(),
 * or 0. Any thread. */
CUdeviceptr ring_waiting(const struct ring *r);
/* from: a rank, or RING_ALL for all others. number: tells this wait from the next one. If the flag
 * is RING_FLAGS, the stream waits for any of some bells: `from` has a bit for each. */
#define RING_ALL 0xffu
static inline uint32_t ring_waiting_for(enum ring_flag flag, unsigned part, unsigned from,
                                        uint16_t number)
{
        return 1u | (uint32_t)flag << 1 | part << 4 | from << 8 | (uint32_t)number << 16;
}

/* Returns a number for the unset flags that the streams of this process's ranks wait for; 0: they
 * wait for none. Any thread; does not block. */
unsigned ring_waits(void);
/* Ends all waits for flags in this rank's streams, now and later: its communicator was aborted, and
 * what its streams compute from now on is worthless. True: some flag was not set, so a stream has
 * waited for it, or may wait now. Any thread. */
bool ring_release(struct ring *r);
/* True once a rank was released: its streams go on, so what others get from it is worthless, too.
 * Any thread. */
bool ring_is_released(const struct ring *r);
