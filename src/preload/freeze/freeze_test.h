/* freeze_test.h: tests whether freezing works on this driver and GPU. A kernel of ours counts; it
 * must stop while frozen, and count on after the thaw. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"

enum freeze_result {
        FREEZE_TEST_PASSED,
        FREEZE_TEST_BUSY,        /* other work keeps the kernel from beginning: try again */
        FREEZE_TEST_NO_KERNEL,   /* the kernel cannot be loaded or launched */
        FREEZE_TEST_NO_CHANNEL,  /* the kernel runs, and no channel of the process is known */
        FREEZE_TEST_REFUSED,     /* rm_freeze() failed; ret_error: its result */
        FREEZE_TEST_RAN_ON,      /* the kernel counted while frozen */
        FREEZE_TEST_STOOD_STILL, /* the kernel did not count on after the thaw */
};

/* Run the test in a context of the program. All channels of the program are frozen for some
 * milliseconds. *ret_counts, after a passed test: the kernel driver counts how often a channel was
 * disabled, so that the daemon's hand and the library can do so independently. For the agent's
 * thread, core_lock not held. */
enum freeze_result freeze_test(CUcontext context, int *ret_error, bool *ret_counts);
/* Forget the test's objects in a context that is about to end, because they end with it. */
void freeze_test_forget(CUcontext context);
