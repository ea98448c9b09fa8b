/* pool.h: stream-ordered memory (cuMemAllocAsync), served from the heap.
 *
 * The driver's own pool object stays, for its handle and for allocations that are captured into
 * graphs; all other memory is ours. The stream that freed memory may use it again at once. Another
 * stream may use it once the first stream is known to have reached the free. Otherwise sublet can
 * make the other stream wait for the free. As in the driver, freed memory is kept up to the pool's
 * release threshold. Beyond it, memory is kept until a call of the program has waited for the free.
 * Freed memory has no contents: when memory must leave the card, freed memory leaves first and is
 * not copied. core_lock is held in all functions below, unless they say otherwise. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/pool/frees.h"
#include "preload/process/lock.h"

struct block;
struct gpu;
struct pool;

/* The driver's pools grow in such steps. A pool's limit is rounded up to a step, and an address is
 * reported to be part of a mapping of that size. */
#define POOL_STEP (UINT64_C(32) << 20)

/* Returns the pool of a handle; NULL: the driver serves the pool, or there is none. */
struct pool *pool_find(CUmemoryPool handle);
/* The program has just made a pool: serve it ourselves if possible. */
void pool_born(CUmemoryPool handle, const CUmemPoolProps *props);
/* The pool is destroyed; memory allocated from it lives until it is freed. The driver may already
 * have given the handle to a new pool. handed_over: whether the driver served the destroyed
 * pool. */
void pool_dies(CUmemoryPool handle, bool handed_over);
/* Another GPU gets access to the pool's memory: from now on the driver serves the pool. */
void pool_hand_over(struct pool *p);
struct gpu *pool_gpu(const struct pool *p);

/* Returns an address; it gets memory at the next pass of the gate. CUDA_ERROR_NOT_SUPPORTED: the
 * GPU has failed; let the driver answer. */
CUresult pool_allocate(struct pool *p, const struct pool_stream *s, uint64_t bytes,
                       CUdeviceptr *ret_address) UNLOCKS(core_lock);
/* Free the allocation that begins at an address of a POOL block, in stream order. s NULL: cuMemFree
 * has freed it, so the program promises that no work uses it any more. The pool's used size then
 * counts it for ever, as in the driver. */
CUresult pool_free(const struct block *b, CUdeviceptr address, const struct pool_stream *s)
        REQUIRES(core_lock);
/* The calling thread has recorded an event on its own default stream after a free. */
void pool_mark(const struct block *b, const struct pool_stream *s) UNLOCKS(core_lock);

/* A call of the program has waited for the work that a stream had when frees_open() returned this
 * number. s NULL: the call has waited for an event of an unknown stream, so all frees that streams
 * have reached count as waited for. True: calls have waited for all frees. */
bool pool_awaited(const struct pool_stream *s, uint64_t frees) UNLOCKS(core_lock);

/* Returns an attribute that counts reserved or used memory. False: the driver has to answer. */
bool pool_get(struct pool *p, CUmemPool_attribute which, cuuint64_t *ret_value) UNLOCKS(core_lock);
/* The driver has accepted a new value of an attribute. */
void pool_set(struct pool *p, CUmemPool_attribute which, const void *value);
/* Give back free memory until the pool holds at most `keep` bytes. */
void pool_trim(struct pool *p, uint64_t keep) UNLOCKS(core_lock);
/* The program asks how much of the GPU is free: give back what the driver's pools would have given
 * back by now. Returns the bytes that the program still sees in pools, but that heap.allocated does
 * not count. */
uint64_t pool_settle(const struct gpu *g) UNLOCKS(core_lock);
/* Give back up to `bytes` of unused memory in any pool of the GPU. True: some memory was given
 * back. */
bool pool_reclaim(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock);

/* The program is frozen. Its frozen work may use memory that was freed in stream order, so such
 * memory counts as allocated until pool_let(). */
void pool_hold(void) UNLOCKS(core_lock);
void pool_let(void) REQUIRES(core_lock);

/* Returns the pool of an allocation, for pointer attributes. */
CUmemoryPool pool_handle(const struct block *b);

/* A capture is about to begin and is counted (quiesce.h): wait for events that are being recorded,
 * which would otherwise become part of the capture. */
void pool_await_records(void) UNLOCKS(core_lock);

/* The stream is about to be destroyed. */
void pool_stream_dies(CUstream stream) UNLOCKS(core_lock);
/* The context is gone, or about to be destroyed. */
void pool_context_dies(CUcontext context) UNLOCKS(core_lock);

/* Give back memory that pools hold beyond their threshold and have not used for a while. Returns in
 * how many ns to call again; UINT64_MAX: when the agent is woken next. For the agent. */
uint64_t pool_tend(uint64_t now_ns) UNLOCKS(core_lock);
