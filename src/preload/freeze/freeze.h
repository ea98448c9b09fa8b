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

/* The most that the owner of the machine allows. */
void freeze_allow(enum wire_freeze most);
/* What may be done to this process: as SUBLET_FREEZE says, and no more than is allowed, unless
 * something speaks against it. */
enum wire_freeze freeze_mode(void);
/* What speaks against it, a sentence without its end; "": nothing. */
const char *freeze_off(void);
/* The test has shown that it works, or there is no context yet. */
bool freeze_is_ready(void);
/* Test it where it has not been, on a GPU with a context: when it is needed, and where it replaces
 * the drain, before. True: look again soon. The lock is given up meanwhile. */
bool freeze_prepare(bool needed) REQUIRES(core_lock);

/* Take the program off all its GPUs. True: it stands. False: nothing is frozen, and whether it may
 * be tried again freeze_mode() says. The lock is given up meanwhile. */
bool freeze_begin(void) REQUIRES(core_lock);
/* Let it go on: every byte of its memory is back, or none has left. */
void freeze_end(void);
bool freeze_stands(void);

/* All calls of the mover's on 2 MiB: do they end while the program stands? If not, it is let go for
 * a moment and frozen again, a few times. False: as freeze_begin(). Memory of the program may leave
 * only after this. The lock is given up meanwhile. */
bool freeze_confirm(void) REQUIRES(core_lock);

/* A context of the program's has failed. Was it because it was frozen? Then nothing is on this
 * driver and GPU any more, until `sublet doctor` has tried again. */
void freeze_blame(const struct gpu *g, CUresult why);

/* A call of the program's has failed. True: it may have looked at memory that was away, and is
 * worth repeating once the program goes on. Any thread, without the lock. */
bool freeze_call_again(CUresult r, bool *again);

/* For FROZEN. */
struct freeze_figures {
        uint64_t for_ns, times, lost_ns, took_ns;
};
struct freeze_figures freeze_figures(void);

/* What `sublet doctor` calls in a process of its own, whose SUBLET_FREEZE is FREEZE_TEST_ONLY and
 * which has a context there (base/freeze_known.h). Without the lock. */
int sublet_freeze_test(unsigned gpu, struct freeze_answer *ret)
        __attribute__((visibility("default")));
