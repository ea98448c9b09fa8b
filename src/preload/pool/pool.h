/* pool.h: stream-ordered memory: what cuMemAllocAsync gives out, served from the heap.
 *
 * The driver's own pool object stays, for its handle and for what is captured into graphs; its
 * memory is ours. What is freed on a stream may be used again at once by the same stream; by
 * another one when the free is known to be reached, or when it is made to wait for it. Freed memory
 * is kept up to the pool's release threshold, and holds nothing that would have to be moved: when
 * memory must go, it goes first and is not copied.
 *
 * Below: core_lock held. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct block;
struct gpu;
struct pool;

/* What the driver's pools grow by: a limit is rounded up to it, and an address is told to be part
 * of a mapping of that size. */
#define POOL_STEP (UINT64_C(32) << 20)

/* A stream by a name that lasts: a default stream by its context, or by a thread in it. */
struct pool_stream {
        CUstream handle;   /* never NULL */
        CUcontext context; /* the context of a default stream; else NULL */
        uint64_t thread;   /* the thread of CU_STREAM_PER_THREAD */
};

/* The pool of a handle; NULL: the driver serves it, or there is none. */
struct pool *pool_find(CUmemoryPool handle);
/* The program has just made a pool: serve it ourselves if possible. */
void pool_born(CUmemoryPool handle, const CUmemPoolProps *props);
/* The pool is destroyed; what is allocated from it lives until it is freed. The driver may already
 * have reused the handle for a new pool. */
void pool_dies(CUmemoryPool handle, bool handed_over);
/* Another GPU gets access to its memory: from now on the driver serves it. */
void pool_hand_over(struct pool *p);
struct gpu *pool_gpu(const struct pool *p);

/* Addresses now, memory at the next pass of the gate. CUDA_ERROR_NOT_SUPPORTED: the GPU has failed;
 * let the driver answer. */
CUresult pool_allocate(struct pool *p, const struct pool_stream *s, uint64_t bytes,
                       CUdeviceptr *ret_address) UNLOCKS(core_lock);
/* Free the allocation that begins at an address of a POOL block, in stream order; stream NULL: no
 * work uses it any more. */
CUresult pool_free(const struct block *b, CUdeviceptr address, const struct pool_stream *s)
        REQUIRES(core_lock);
/* The calling thread has recorded an event on its own default stream after a free. */
void pool_mark(const struct block *b, const struct pool_stream *s) UNLOCKS(core_lock);

/* The attributes that we know: memory reserved and used. False: the driver answers. */
bool pool_get(struct pool *p, CUmemPool_attribute which, cuuint64_t *ret_value) UNLOCKS(core_lock);
/* The driver has accepted the value. */
void pool_set(struct pool *p, CUmemPool_attribute which, const void *value);
/* Give back free memory until at most so many bytes are held. */
void pool_trim(struct pool *p, uint64_t keep) UNLOCKS(core_lock);
/* Give back up to so many bytes of unused memory in any pool of the GPU. True: something was given
 * back. */
bool pool_reclaim(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock);

/* The program is frozen: work that stands still may use what was freed in stream order, so that
 * counts as allocated until the program goes on. */
void pool_hold(void) UNLOCKS(core_lock);
void pool_let(void) REQUIRES(core_lock);

/* For the pointer attributes. */
CUmemoryPool pool_handle(const struct block *b);

/* A capture is about to begin and is counted (quiesce.h): wait for events that are being recorded,
 * which would else become part of it. */
void pool_await_records(void) UNLOCKS(core_lock);

/* A stream is about to be destroyed; a context is gone. */
void pool_stream_dies(CUstream stream) UNLOCKS(core_lock);
void pool_context_dies(CUcontext context) UNLOCKS(core_lock);

/* Give back what pools hold over their threshold and have not used for a while. Returns in how many
 * ns to call again; UINT64_MAX: when kicked. For the agent. */
uint64_t pool_tend(uint64_t now_ns) UNLOCKS(core_lock);
