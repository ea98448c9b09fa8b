/* unevictable.h: the list of unevictable memory whose size and lifetime the library knows: arrays.
 * Each entry is found by the driver's handle. Room is requested from the daemon before the memory
 * is made, and returned after it is gone.
 *
 * Memory of unknown size (code, stacks, heaps, print buffers) is not listed here: the daemon
 * measures it on the card (src/daemon/ledger/card_figures.c).
 *
 * core_lock is held in all functions. They accept NULL, which stands for no memory. */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct unevictable;
struct gpu;

/* Requests room and waits for it; the lock is given up during the wait. NULL: there is no room. */
struct unevictable *unevictable_ask(struct gpu *g, CUcontext owner, uint64_t bytes)
        UNLOCKS(core_lock);
/* Put a handle on the list: the room belongs to it from now on. */
void unevictable_list(struct unevictable *f, const void *handle);
/* Take the handle off the list before it is destroyed: afterwards the driver may give it out again.
 * NULL: it is not listed. */
struct unevictable *unevictable_unlist(const void *handle);
/* Return the room to the daemon. */
void unevictable_return(struct unevictable *f) REQUIRES(core_lock);
/* A context and all its objects are about to end: take them off the list. Returns their room, which
 * the caller returns to the daemon when the context has ended. */
uint64_t unevictable_forget_context(CUcontext owner);

/* Requests room for a call that is repeated because the driver lacked memory, and waits for it; the
 * lock is given up during the wait. The driver does not say how much it lacks, so *room grows from
 * try to try. Returns 0, or -ENOMEM. */
int unevictable_ask_room(struct gpu *g, uint64_t *room) UNLOCKS(core_lock);
/* Return the room, because the call failed even with all of it. After a success unevictable_tend()
 * returns the room. */
void unevictable_return_room(struct gpu *g, uint64_t *room) REQUIRES(core_lock);
/* Give room back to the daemon, once it has measured on the card what the call has used. Returns in
 * how many ns to call again; UINT64_MAX: there is no such room. For the agent. */
uint64_t unevictable_tend(uint64_t now_ns) REQUIRES(core_lock);
