/* fault.h: faults on demand. SIMCUDA_FAIL="cuMemCreate:3:2,cuMemMap@after:1:kill": the third
 * cuMemCreate of the process returns CUresult 2, and after its first cuMemMap has done its work the
 * process is killed. Names with or without their version suffix; "@after" for those of
 * fault_points.def. Which calls: "3", the third; "3+", the third and every later one; "3-5", the
 * third to the fifth.
 *
 * Actions: a CUresult; kill, stop (the signals); hang (the call never returns); lost (the card
 * vanishes, for every process of the session and for NVML); slow=MS (it takes so long, then goes
 * on); frozen (it goes on when no channel of the process is off the card: as if libcuda held a lock
 * that waits for them). The driver and NVML each count the calls of their own functions.
 *
 * "freeze" and "thaw" are the controls that take channels off a card and let them on. Their number
 * is the resource manager's status (freeze:1:0x1b), and they have actions of their own: forbid
 * (ioctl() fails with EPERM, as under seccomp); idle (OK, and nothing is done); part=N (only the
 * first N channels, then the status of a time-out). */
#pragma once

#include <stdbool.h>

/* The effects of a fault in the library that it happens in. */
struct fault_acts {
        void (*lose_card)(void); /* the card that the caller uses vanishes */
        void (*await_thaw)(
                void); /* until no channel of the process is off the card; NULL: it has none */
};

/* 0, -EINVAL: malformed; stderr says where. */
int fault_setup(const struct fault_acts *acts);
/* Before a call. Other than 0: what it returns. */
int fault_check(const char *function);
/* After a call, whatever it returned. */
void fault_after(const char *const *function);
#define FAULT_AFTER(function) \
        __attribute__((cleanup(fault_after), unused)) const char *const fault_here = (function)

/* Before a control of channels: how it ends without the resource manager, or what it may do. */
enum fault_control { CONTROL_WHOLE, CONTROL_REFUSED, CONTROL_FORBIDDEN, CONTROL_PART };
/* ret_value: the status of a refusal, or the number of channels of a part. */
enum fault_control fault_control(bool disable, unsigned *ret_value);
