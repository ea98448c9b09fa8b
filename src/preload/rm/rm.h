/* rm.h: the process's channels at the kernel driver's resource manager (RM), and the control that
 * takes them off the GPU.
 *
 * The door of ioctl() (rm_door.c) shows every request of libcuda's here. Thread-safe. No function
 * calls libcuda or takes core_lock, so all of them may be called with it held; rm_freeze() and
 * rm_thaw() take as long as RM does: about a millisecond, and up to 0.3 s while page faults of the
 * GPU are outstanding. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/rm/channels.h"

/* The ioctl() that libcuda would have called without us (real.h). */
int rm_forward(int fd, unsigned long request, void *argument);

/* Call it after each successful request of type 'F'. */
void rm_saw(int fd, unsigned long request, const void *argument);
/* A request that would thaw a frozen program is not passed on. True: it was answered here. */
bool rm_holds_back(int fd, unsigned long request, void *argument, int *ret_r);

/* Whose channels the calling thread makes from now on. */
void rm_make_for(enum channels_owner owner);

/* Take all channels of the program off all its GPUs; when it returns 0, none of them runs, and none
 * that is made later does; where none is known, there is nothing to stop. Otherwise some may have
 * stopped: thaw. -EPROTO: a driver whose layouts are not known; -EOVERFLOW: more channels than the
 * ledger holds; -EAGAIN: what another thread frees did not go within 0.1 s; -EPERM, -EOPNOTSUPP,
 * -ETIMEDOUT: as RM or the kernel say; -EIO: RM says anything else. */
int rm_freeze(void);
/* Enable them again; retried for 0.1 s if RM refuses. 0, or as above: some may stay disabled. */
int rm_thaw(void);
bool rm_is_frozen(void);

/* The kernel driver's version, "580.159.04"; empty: not read yet. */
const char *rm_driver(void);
/* Channels of the program that are known. */
unsigned rm_channels(void);

/* In the child after fork: it has no channels. */
void rm_forget(void);
