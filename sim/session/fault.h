/* fault.h: injected faults, which SIMCUDA_FAIL names as FUNCTION[@after]:CALLS:ACTION,...
 *
 * With "cuMemCreate:3:2,cuMemMap@after:1:kill" the third cuMemCreate of the process returns
 * CUresult 2, and the first cuMemMap kills the process after its work. FUNCTION is a name with or
 * without version suffix; fault_points.def lists the names that "@after" may follow. CALLS is "3"
 * (the third call), "3+" (also every later call) or "3-5" (the third to the fifth call).
 *
 * ACTION is a CUresult, or kill or stop (the signals), hang (the call never returns), lost (the
 * card vanishes, for every process of the session and for NVML), slow=MS (the call starts later),
 * frozen (the call waits while a channel of the process is off the card, as if libcuda held a lock
 * that waits for it). The driver and NVML each count the calls of their own functions.
 *
 * "freeze" and "thaw" as FUNCTION are the controls that take channels off a card and put them back.
 * A number as ACTION is their status (freeze:1:0x1b). They have actions of their own: forbid
 * (ioctl() fails with EPERM, as under seccomp), idle (the control returns OK and does nothing),
 * part=N (only the first N channels change, and the status is a time-out). */
#pragma once

#include <stdbool.h>

/* Effects of a fault that only the library with the fault can cause. */
struct fault_acts {
        void (*lose_card)(void); /* makes the caller's card vanish */
        /* Waits until no channel of the process is off the card. NVML has no channels: NULL. */
        void (*await_thaw)(void);
};

/* Reads SIMCUDA_FAIL. Returns 0, or -EINVAL after a message on stderr if it is malformed. */
int fault_setup(const struct fault_acts *acts);
/* Must precede a call's work. Returns the call's result if a fault determines it; otherwise 0. */
int fault_check(const char *function);
/* Must follow a call's work, whatever the result. */
void fault_after(const char *const *function);
#define FAULT_AFTER(function) \
        __attribute__((cleanup(fault_after), unused)) const char *const fault_here = (function)

/* The effect of a fault on a control of channels. CONTROL_WHOLE: there is no fault. */
enum fault_control { CONTROL_WHOLE, CONTROL_REFUSED, CONTROL_FORBIDDEN, CONTROL_PART };
/* Must precede a control. *ret_value: the status of a refusal, or the number of channels. */
enum fault_control fault_control(bool disable, unsigned *ret_value);
