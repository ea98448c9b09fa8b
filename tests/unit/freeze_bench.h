/* freeze_bench.h: an agent that freezes its program. The bench checks that the agent never thaws a
 * program with evicted memory, and never opens the gate of a paused or frozen program. */
#pragma once

#include "agent_bench.h"
#include "fakes/freeze.h"

extern struct context context; /* the program's context on the GPU */

/* Begins before the first context, with freezing fully allowed. */
void begin_freezer(enum wire_freeze mode);
/* Begins with a program that has its turn, a context, and, in mode MOVE, a mover. */
void begin_frozen(enum wire_freeze mode);
void pause_program(bool paused);
