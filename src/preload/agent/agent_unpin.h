/* agent_unpin.h: a program that runs gives host memory back that another program's eviction lacks.
 *
 * The driver unpins memory only when no work is in flight. So the program is drained for a moment,
 * and keeps its turn. A part of the library (part.h); core_lock is held unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "preload/process/lock.h"
#include "preload/state/part.h"

/* Begin a drain if the daemon has asked, and the program would not stand still soon by itself. */
void agent_unpin_step(uint64_t now_ns) REQUIRES(core_lock);
uint64_t agent_unpin_next_ns(void) REQUIRES(core_lock);
/* Unpin a part; core_lock not held. True: call again. */
bool agent_unpin_move(void);
enum own_drain agent_unpin_own(void);
bool agent_unpin_drained(void);
bool agent_unpin_drain_failed(void) REQUIRES(core_lock);
void agent_unpin_cancel(void) REQUIRES(core_lock);
