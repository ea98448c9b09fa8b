/* fault.h: faults on demand. SIMCUDA_FAIL="cuMemCreate:3:2,cuMemMap@after:1:kill": the third
 * cuMemCreate of the process returns CUresult 2, and after its first cuMemMap has done its work the
 * process is killed. Names with or without their version suffix; "@after" for those of
 * fault_points.def. "cuMemCreate:3+:2": the third and every later one. Actions: a CUresult; kill,
 * stop (the signals); lost (the card vanishes, for every process of the session and for NVML). */
#pragma once

#include "cuda/cuda_abi.h"

/* 0, -EINVAL: malformed (said on stderr). */
int fault_setup(void);
/* Before a call. Other than success: what it returns. */
CUresult fault_check(const char *function);
/* After a call, whatever it returned. */
void fault_after(const char *const *function);
#define FAULT_AFTER(function) \
        __attribute__((cleanup(fault_after), unused)) const char *const fault_here = (function)
