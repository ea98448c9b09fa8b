/* unevictable.h: device memory that cannot be moved and whose size and end are known, by the handle
 * that the driver gave for it (arrays). Room for it is asked for before it is made and given back
 * after it is gone.
 *
 * Memory of unknown size (code, stacks, heaps, print buffers) is not listed here: the daemon
 * measures it on the card (src/daemon/ledger/measure.c).
 *
 * All functions: core_lock held. They accept NULL, which counts as nothing. */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct unevictable;
struct gpu;

/* Ask for room, and wait for it; the lock is given up meanwhile. NULL: there is none. */
struct unevictable *unevictable_ask(struct gpu *g, CUcontext owner, uint64_t bytes)
        UNLOCKS(core_lock);
/* The room belongs to this handle from now on. */
void unevictable_list(struct unevictable *f, const void *handle);
/* Take the handle off the list before it is destroyed: afterwards the driver may give it out again.
 * NULL: it is not listed. */
struct unevictable *unevictable_unlist(const void *handle);
/* Give the room back. */
void unevictable_return(struct unevictable *f) REQUIRES(core_lock);
/* A context and all its objects are about to end: take them off the list. Returns the room, which
 * the caller gives back when the context has ended. */
uint64_t unevictable_forget_context(CUcontext owner);

/* Room for a call that is repeated because the driver lacked memory. The driver does not say how
 * much it lacks, so *room grows from try to try. Waits for it; the lock is given up meanwhile. 0,
 * -ENOMEM. The room goes back when all of it was not enough, or when the daemon has seen on the
 * card how much was used. */
int unevictable_ask_room(struct gpu *g, uint64_t *room) UNLOCKS(core_lock);
void unevictable_return_room(struct gpu *g, uint64_t *room) REQUIRES(core_lock);
/* Returns when to call again, in ns; UINT64_MAX: no room is to go back. The agent. */
uint64_t unevictable_tend(uint64_t now_ns) REQUIRES(core_lock);
