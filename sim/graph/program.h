/* program.h: an instantiated graph as work. Launches in progress hold a reference to it. */
#pragma once

#include "sim/queue/work.h"

CUresult program_run(CUcontext c, struct program *p);
void program_release(struct program *p);
struct program *program_retain(struct program *p);
