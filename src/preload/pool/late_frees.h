/* late_frees.h: memory that the program has freed while submitted work may still use it: during a
 * capture, or by cuMemFreeAsync. Until the memory is released, it counts as allocated and moves
 * like other memory. core_lock is held in all functions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;
struct heap_place;
struct pool_stream;

/* Free the allocation once a call of the program has waited for the free in the order of stream s,
 * as the driver does. s NULL: once all work that was submitted so far is done. */
CUresult late_free(struct gpu *g, const struct heap_place *p, const struct pool_stream *s)
        UNLOCKS(core_lock);
/* Does for late frees what pool_awaited() (pool.h) does for pools. */
bool late_awaited(const struct pool_stream *s, uint64_t frees) REQUIRES(core_lock);
/* The stream is about to be destroyed: its handle may later name another stream. */
void late_stream_dies(CUstream stream);
/* True if the program has already freed the allocation. */
bool late_is(const struct heap_place *p);
/* Release the memory that can be released now, so that the program reads as much free memory as the
 * driver would report. True: some memory was released. */
bool late_settle(void) UNLOCKS(core_lock);
/* Release freed memory that no work uses any more, unless a capture is in progress. Returns in how
 * many ns to call again; UINT64_MAX: when the agent is woken next. For the agent. */
uint64_t late_tend(uint64_t now_ns) UNLOCKS(core_lock);
