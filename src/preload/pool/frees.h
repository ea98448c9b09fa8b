/* frees.h: frees in stream order, and what the program has waited for.
 *
 * In the driver, memory that was freed in stream order is free again once a call of the program has
 * waited for the free. It is not enough that the stream has reached the free. So frees are
 * numbered, and each call that waits tells pools (pool.h) and late frees (late_frees.h) the number
 * of the last free before the call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

/* A lasting name of a stream. A per-thread default stream is named also by its thread. */
struct pool_stream {
        CUstream handle;   /* NULL only for a wait for all streams of the context */
        CUcontext context; /* set for a default stream; may be NULL for other streams */
        uint64_t thread;   /* the thread of CU_STREAM_PER_THREAD */
};

/* True if a wait for the first stream covers the work of the second, whose context is known. */
static inline bool frees_covers(const struct pool_stream *wait, const struct pool_stream *of)
{
        if (!wait->handle)
                return wait->context == of->context;
        if (wait->handle != of->handle)
                return false;
        return (uintptr_t)of->handle > (uintptr_t)CU_STREAM_PER_THREAD ||
               (wait->context == of->context && wait->thread == of->thread);
}

/* Returns the number of the next free. core_lock held. */
uint64_t frees_next(void) REQUIRES(core_lock);
/* Returns the number of the last free. 0: calls have waited for all frees. Needs no lock. */
uint64_t frees_open(void);
/* Calls have waited for all frees up to this number. core_lock held. */
void frees_settled(uint64_t number) REQUIRES(core_lock);
