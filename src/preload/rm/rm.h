/* rm.h: the process's channels at the kernel driver's resource manager (RM), and the RM control
 * that takes them off the GPU.
 *
 * The wrapper of ioctl() (rm_door.c) passes every request of libcuda to rm_saw(). Thread-safe. No
 * function calls libcuda or takes core_lock, so core_lock may be held. rm_freeze() and rm_thaw()
 * take as long as RM does: about a millisecond, and up to 0.3 s while GPU page faults are
 * outstanding. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/rm/channels.h"

/* Calls the ioctl() that libcuda would have called without us (real.h). */
int rm_forward(int fd, unsigned long request, void *argument);

/* Record a request. Call it after each successful request of type 'F'. */
void rm_saw(int fd, unsigned long request, const void *argument);
/* Handle a request that switches channels or frees them, so that it cannot thaw a frozen program.
 * True: the request is answered, with *ret_r; do not pass it on. */
bool rm_holds_back(int fd, unsigned long request, void *argument, int *ret_r);

/* Set the owner of the channels that the calling thread makes from now on. */
void rm_make_for(enum channels_owner owner);

/* Take all channels of the program off its GPUs. 0: none of them runs, and channels made later will
 * not run either. After an error some may be stopped, so call rm_thaw(). -EPROTO: the driver's
 * layouts are not known; -EOVERFLOW: the ledger does not hold all channels; -EPERM,
 * -EOPNOTSUPP, -ETIMEDOUT: the error of RM or the kernel; -EIO: another error of RM. */
int rm_freeze(void);
/* Enable the channels again; retries for 0.1 s if RM refuses. 0, or an error of rm_freeze(): some
 * channels may stay disabled. */
int rm_thaw(void);
bool rm_is_frozen(void);
/* True while the program is frozen, or the hand has taken it off the GPU. */
bool rm_stands_still(void);
/* Disable the frozen channels once more, or undo that. For the self-test: RM must count. */
void rm_freeze_more(bool more);

/* Set how long the hardware runs the program before another one; 0: as long as the driver has set.
 * The driver sets its own value a moment after it has made a group, so call this again when
 * rm_groups_made() has changed. */
void rm_slice(uint64_t usec);
/* Counts the groups of channels that the program has made. */
unsigned rm_groups_made(void);

/* Returns the kernel driver's version, for example "580.159.04"; empty: not read yet. */
const char *rm_driver(void);
/* Returns the number of channels in the ledger. */
unsigned rm_channels(void);

/* The daemon offers its hand (wire/hand_page.h): the page and a socket to the hand. Takes both
 * descriptors over. The hand gets the names of the program's channels. */
void rm_offer_hand(int page, int line);
/* Say whether freezing is known to work, so that the hand may act. */
void rm_hand_ready(bool ready);
/* For the hand's thread (rm_hand.c): the hand asks for a proof, or is gone. */
void rm_hand_asks(void);
void rm_hand_is_gone(void);

/* Stop recording. Called in the child after fork, which has no channels. */
void rm_forget(void);
