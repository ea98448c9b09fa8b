/* program.h: an instantiated graph as work. Reference-counted: launches in progress hold one. */
#pragma once

#include "sim/queue/work.h"

CUresult program_run(CUcontext c, struct program *p);
void program_release(struct program *p);
struct program *program_retain(struct program *p);
