/* locked.h: calls of the driver that wait because the process is locked for a checkpoint. */
#pragma once

#include "sim/process/sim.h"

/* While the process is locked, each call waits at its beginning. A call that has begun goes on. */
void calls_lock(bool locked);
void calls_await_unlock(void);
