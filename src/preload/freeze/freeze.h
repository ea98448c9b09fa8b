/* freeze.h: freezes a program on its GPUs, and thaws it.
 *
 * To freeze is to take all channels of the process off the hardware (rm.h): kernels stop between
 * two instructions, copies between two pieces. A test must have shown that freezing works: a kernel
 * of ours counts, is frozen, stops, is thawed and counts on. The test runs once for each driver and
 * GPU; a file of the user keeps the result.
 *
 * The agent calls these functions, with core_lock held, unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "wire/wire.h"
#include "preload/process/lock.h"

struct gpu;
struct freeze_answer;

/* Called once, before the program's first context. */
void freeze_setup(void);

/* A GPU comes into use. If the program takes part in MPS, turn freezing off. */
void freeze_look(struct gpu *g);

/* Set the highest mode that the machine's owner allows. */
void freeze_allow(enum wire_freeze most);
/* Returns the mode of this process: that of SUBLET_FREEZE or the highest allowed one, whichever is
 * lower; WIRE_FREEZE_OFF if freezing is turned off. */
enum wire_freeze freeze_mode(void);
/* Returns why freezing is off, as a sentence without a full stop; "": freezing is not off. After a
 * failure that may pass it is off for a while only. */
const char *freeze_off(void);
/* True if freezing is on and known to work on all GPUs that have a context. */
bool freeze_is_ready(void);
/* True if, besides, the daemon's hand may freeze the program: the driver counts. */
bool freeze_is_shared(void);
/* Test each GPU that has a context and is not tested yet: in mode "park" only if `needed`, in mode
 * "move" in advance. True: call again soon. */
bool freeze_prepare(bool needed) UNLOCKS(core_lock);

/* Freeze the program on all its GPUs. True: it is frozen. False: no channel is frozen; another try
 * is useful unless freeze_mode() is WIRE_FREEZE_OFF. */
bool freeze_begin(void) UNLOCKS(core_lock);
/* Thaw the program. All of its memory must be on the card. */
void freeze_end(void);
bool freeze_stands(void);

/* Check that the driver calls which move memory neither block nor fail while the program is frozen.
 * The calls are tried on 2 MiB. If one blocks or fails, the program is thawed for a moment and
 * frozen again, a few times. True: memory may be evicted. False: as for freeze_begin(). */
bool freeze_confirm(void) UNLOCKS(core_lock);

/* Report that a context of the program has failed. If the program was frozen shortly before,
 * freezing is off on this driver and GPU until `sublet doctor` has tested again. */
void freeze_blame(const struct gpu *g, CUresult why);

/* True if a failed call of the program is to be repeated: it may have looked up an address whose
 * memory was evicted during a freeze. Sets *again, so that the call is repeated only once. Any
 * thread, without the lock. */
bool freeze_call_again(CUresult r, bool *again);

/* The figures of a FROZEN message. */
struct freeze_figures {
        uint64_t for_ns, times, lost_ns, took_ns;
};
struct freeze_figures freeze_figures(void);

/* Runs the test for `sublet doctor`, which starts a process with SUBLET_FREEZE=FREEZE_TEST_ONLY and
 * a context to call this (base/freeze_known.h). Without the lock. */
int sublet_freeze_test(unsigned gpu, struct freeze_answer *ret)
        __attribute__((visibility("default")));
