/* freeze.h: a program stands still on its GPUs, and goes on.
 *
 * To freeze is to take all channels of the process off the hardware (rm.h): kernels stop between
 * two instructions, copies between two pieces. Freezing is used only where a test has shown that it
 * works: a kernel of ours counts, is frozen, stands, goes on. The test runs once a driver and GPU;
 * its result is kept in a file of the user's.
 *
 * Functions are the agent's, with core_lock held, unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "wire/wire.h"
#include "preload/process/lock.h"

struct gpu;
struct freeze_answer;

/* Once, before the first context. */
void freeze_setup(void);

/* The most that the machine's owner allows. */
void freeze_allow(enum wire_freeze most);
/* What may be done to this process: what SUBLET_FREEZE says, within what is allowed, unless
 * freezing is off. */
enum wire_freeze freeze_mode(void);
/* Why freezing is off, a sentence without its end; "": it is not. */
const char *freeze_off(void);
/* The test has shown that freezing works, or there is no context yet. */
bool freeze_is_ready(void);
/* Test where that has not been done, on a GPU with a context: in mode "park" when first needed, in
 * mode "move" in advance. True: call again soon. */
bool freeze_prepare(bool needed) UNLOCKS(core_lock);

/* Take the program off all its GPUs. True: it stands. False: nothing is frozen; freeze_mode() tells
 * whether another try is worth it. */
bool freeze_begin(void) UNLOCKS(core_lock);
/* Let the program go on: only when every byte of its memory is back, or none has left. */
void freeze_end(void);
bool freeze_stands(void);

/* Do all calls that the mover needs, tried on 2 MiB, end while the program stands? If not, it is
 * thawed for a moment and frozen again, a few times. False: as freeze_begin(). Memory may leave
 * only after this has returned true. */
bool freeze_confirm(void) UNLOCKS(core_lock);

/* A context of the program's has failed. If that comes soon after a freeze, freezing is off on this
 * driver and GPU until `sublet doctor` has tested again. */
void freeze_blame(const struct gpu *g, CUresult why);

/* A call of the program's has failed. True: it may have looked up memory that was away, and is
 * worth repeating once the program goes on. Any thread, without the lock. */
bool freeze_call_again(CUresult r, bool *again);

/* For FROZEN. */
struct freeze_figures {
        uint64_t for_ns, times, lost_ns, took_ns;
};
struct freeze_figures freeze_figures(void);

/* For `sublet doctor`, which calls it in a process of its own that has
 * SUBLET_FREEZE=FREEZE_TEST_ONLY and a context (base/freeze_known.h). Without the lock. */
int sublet_freeze_test(unsigned gpu, struct freeze_answer *ret)
        __attribute__((visibility("default")));
