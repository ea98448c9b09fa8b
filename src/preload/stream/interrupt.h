/* interrupt.h: Ctrl-C, or a notebook's interrupt, while a Python program waits for its turn.
 *
 * Python's handler of SIGINT only takes a note; KeyboardInterrupt is raised when the main thread is
 * back in the interpreter. A call that waits for a turn keeps it from there for seconds. So the
 * call ends with CUDA_ERROR_OPERATING_SYSTEM and without having submitted anything, but only where
 * Python would then raise KeyboardInterrupt: SIGINT has its default handler of Python's, and no
 * exception is under way. A program without Python keeps waiting, and so does one with a handler of
 * its own.
 *
 * A thread other than the main one is interrupted where the main thread sleeps in a call and does
 * not come back for the signal: it may wait for that thread, as PyTorch's does in backward().
 * Calls that begin before the interpreter could act on the signal end, too.
 * Thread-safe; nothing is allocated that Python does not allocate. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"

/* One wait of one thread; zero at first. */
struct interrupt_wait {
        uint32_t seen;    /* interrupts that are none of its business */
        uint32_t returns; /* of the main thread to the interpreter, when that was asked */
        uint64_t look_ns; /* when to look whether it has returned; 0: not asked */
};

/* Once, when the program calls the driver first. */
void interrupt_setup(void);
/* A thread is about to wait: from now on interrupts are heard. Not with core_lock. */
void interrupt_begin(struct interrupt_wait *w);
/* True: the call that waits is to end. Otherwise how long it may wait before it has to ask again;
 * an interrupt rings core.changed. */
bool interrupt_ends(struct interrupt_wait *w, uint64_t *ret_timeout_ns) UNLOCKS(core_lock);
