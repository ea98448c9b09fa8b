/* fault.h: errors on demand. SIMCUDA_FAIL="cuMemCreate:3:2,cuMemMap:1:kill": the third cuMemCreate
 * of the process returns CUresult 2, its first cuMemMap kills it (SIGKILL). Names with or without
 * their version suffix. "cuMemCreate:3+:2": the third and every later one. */
#pragma once

#include "cuda/cuda_abi.h"

/* 0, -EINVAL: malformed (said on stderr). */
int fault_setup(void);
CUresult fault_check(const char *function);
