/* fault.h: injected faults, which SIMCUDA_FAIL names as FUNCTION[@after]:CALLS:ACTION,...
 *
 * With "cuMemCreate:3:2,cuMemMap@after:1:kill" the third cuMemCreate of the process returns
 * CUresult 2, and the first cuMemMap kills the process after its work. FUNCTION is a name with or
 * without version suffix; fault_points.def lists the names that "@after" may follow. CALLS is "3"
 * (the third call), "3+" (also every later call) or "3-5" (the third to the fifth call). The
 * driver and NVML each count the calls of their own functions. ACTION is one of:
 *
 *   a number    the call returns this CUresult, and does nothing
 *   kill, stop  the process gets SIGKILL or SIGSTOP
 *   hang        the call never returns
 *   lost        the card vanishes, for every process of the session and for NVML
 *   slow=MS     the call waits MS milliseconds, and then does its work
 *   frozen      the call waits while a channel of the process is off the card, as if libcuda held a
 *               lock until the channel is back
 *
 * The FUNCTIONs "freeze" and "thaw" stand for the controls that take channels off a card and put
 * them back. For these two, a number is the status that the control returns (freeze:1:0x1b). Both
 * have three more actions:
 *
 *   forbid      ioctl() fails with EPERM, as under seccomp
 *   idle        the control returns OK, and does nothing
 *   part=N      only the first N channels change, and the status is a time-out */
#pragma once

#include <stdbool.h>

/* Effects that fault.c cannot cause itself. The simulated driver and NVML each provide theirs. */
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
/* Must precede a control. *ret_value: the status to return (CONTROL_REFUSED), or the number of
 * channels to change (CONTROL_PART). */
enum fault_control fault_control(bool disable, unsigned *ret_value);
