/* caches.h: has frameworks in this process give back GPU memory that they hold and do not use.
 *
 * PyTorch keeps what tensors have freed, to hand it out again. At an eviction that is copied for
 * nothing, so its own torch.cuda.empty_cache() is called first, by a thread of ours that holds no
 * lock of ours, and takes Python's interpreter lock as any thread may. The lock may be held by
 * somebody who waits at the gate, and so may the allocator's: the eviction waits a moment for the
 * call to get on, and no longer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

/* Once, by a thread of the program: is there a Python in this process, and is it wanted? */
void caches_setup(void);

/* Would it be asked at an eviction? Then it is better drained than frozen, for what it is to free
 * waits for its work. core_lock held. */
bool caches_may_answer(void);
/* The agent's, in each round of its loop; core_lock held. Whether an eviction that could begin
 * shall wait; `may_evict`: it could. */
bool caches_hold(bool may_evict, uint64_t now) REQUIRES(core_lock);
