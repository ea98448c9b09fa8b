/* interrupt.h: Ctrl-C, or a notebook's interrupt, while a Python program waits for its turn.
 * await.h has the waits for the GPU's work.
 *
 * Python raises KeyboardInterrupt only when the main thread is back in the interpreter. A call that
 * waits for a turn keeps that thread away for seconds. So the call ends with
 * CUDA_ERROR_OPERATING_SYSTEM, without having submitted anything, but only if Python would raise
 * KeyboardInterrupt: its default handler of SIGINT is set, and no exception is under way. Otherwise
 * the call keeps waiting.
 *
 * A call of another thread ends only if the main thread sleeps in a call and does not return for
 * the signal. The main thread may wait for that other thread, as in PyTorch's backward().
 * Thread-safe. Only Python allocates memory in here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

/* One wait of one thread. Initialise it with zeros. */
struct interrupt_wait {
        uint32_t seen;    /* interrupts up to this count do not concern this wait */
        uint32_t returns; /* how often the main thread had returned when last asked */
        uint64_t look_ns; /* when to check whether the main thread has returned; 0: it was not asked
                             to return */
};

/* Call it once, when the program first calls the driver. */
void interrupt_setup(void);
/* True in the main thread of a Python program. */
bool interrupt_may_come(void);
/* Call it before a thread waits, without core_lock: from now on interrupts are noticed. */
void interrupt_begin(struct interrupt_wait *w);
/* True: the waiting call must end. False: *ret_timeout_ns is how long it may wait before it asks
 * again; an interrupt rings core.changed. */
bool interrupt_ends(struct interrupt_wait *w, uint64_t *ret_timeout_ns) UNLOCKS(core_lock);
