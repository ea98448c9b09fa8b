/* fault.h: faults on demand. SIMCUDA_FAIL="cuMemCreate:3:2,cuMemMap@after:1:kill": the third
 * cuMemCreate of the process returns CUresult 2, and after its first cuMemMap has done its work the
 * process is killed. Names with or without their version suffix; "@after" for those of
 * fault_points.def. "cuMemCreate:3+:2": the third and every later one. Actions: a CUresult; kill,
 * stop (the signals); hang (the call never returns); lost (the card vanishes, for every process of
 * the session and for NVML). The driver and NVML each count the calls of their own functions. */
#pragma once

/* 0, -EINVAL: malformed (said on stderr). */
int fault_setup(void);
/* Before a call. Other than 0: what it returns. */
int fault_check(const char *function);
/* After a call, whatever it returned. */
void fault_after(const char *const *function);
#define FAULT_AFTER(function) \
        __attribute__((cleanup(fault_after), unused)) const char *const fault_here = (function)

/* Of each library that has faults: the card that the caller uses vanishes. */
void fault_lose_card(void);
