/* caches.h: makes frameworks in this process give back GPU memory that they hold and do not use.
 *
 * PyTorch keeps memory that tensors have freed, to hand it out again. An eviction would copy that
 * memory for nothing, so PyTorch's own torch.cuda.empty_cache() is called first. A thread of the
 * library makes this call. It holds no lock of the library, and takes Python's interpreter lock
 * like any other thread. A program's thread that waits at the gate may hold the interpreter lock or
 * the allocator's lock. So the eviction waits only for a moment. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

/* Called once, by a thread of the program. Finds out whether this process runs Python and whether
 * the user wants these calls. */
void caches_setup(void);

/* True if an eviction would call Python. Then it is better to drain the program than to freeze it,
 * because freeing memory waits for the program's work. core_lock held. */
bool caches_may_answer(void);
/* The agent calls it in each round of its loop, core_lock held. True: an eviction has to wait.
 * may_evict: an eviction could begin now. */
bool caches_hold(bool may_evict, uint64_t now) REQUIRES(core_lock);
