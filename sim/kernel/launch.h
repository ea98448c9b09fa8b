/* launch.h: turns the program's launch parameters into work that can be queued. */
#pragma once

#include "sim/kernel/module.h"
#include "sim/queue/work.h"

/* Checks the shape of the grid and copies the parameters (params, or the buffer in extra). */
CUresult launch_prepare(CUfunction f, const unsigned grid[3], const unsigned block[3],
                        unsigned shared, void **params, void **extra, struct work *ret_work);
CUresult launch_run(CUcontext c, const struct work_kernel *w);
/* Returns the size of a kernel's parameters. */
size_t function_parameter_bytes(CUfunction f);
