/* unevictable.h: device memory that cannot be moved and whose size and end we know, by the handle
 * that the driver gave for it (arrays). Room for it is asked for before it is made and given back
 * after it is gone.
 *
 * What is not here, because its size cannot be known (code, stacks, heaps, print buffers), the
 * daemon sees on the card (src/daemon/ledger/measure.c).
 *
 * All functions: core_lock held. A pointer that is NULL is nothing to count. */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct unevictable;
struct gpu;

/* Ask for room, waiting for it; the lock is given up meanwhile. NULL: there is none. */
struct unevictable *unevictable_ask(struct gpu *g, CUcontext owner, uint64_t bytes)
        UNLOCKS(core_lock);
/* It is this handle's from now on. */
void unevictable_list(struct unevictable *f, const void *handle);
/* Before the handle is destroyed, after which the driver may give it to somebody else: off the
 * list. NULL: not known. */
struct unevictable *unevictable_unlist(const void *handle);
/* The room is given back. */
void unevictable_return(struct unevictable *f) REQUIRES(core_lock);
/* A context is about to end, and all that belongs to it: off the list. Returns the room that the
 * caller gives back when it has ended. */
uint64_t unevictable_forget_context(CUcontext owner);

/* Room for a call that is made once more because the driver itself lacked memory: how much, it does
 * not say, so *room grows from time to time. Waits for it; the lock is given up meanwhile. 0,
 * -ENOMEM. It goes back when all of it was not enough, or else when the daemon has seen on the card
 * what came of it. */
int unevictable_ask_room(struct gpu *g, uint64_t *room) UNLOCKS(core_lock);
void unevictable_return_room(struct gpu *g, uint64_t *room) REQUIRES(core_lock);
/* Returns when to look again, in ns; UINT64_MAX: nothing is to go back. The agent. */
uint64_t unevictable_tend(uint64_t now_ns) REQUIRES(core_lock);
