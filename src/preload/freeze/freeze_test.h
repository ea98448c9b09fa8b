/* freeze_test.h: does freezing work here? A kernel of ours counts, is frozen, must stand, and must
 * go on. */
#pragma once

#include "cuda/cuda_abi.h"

enum freeze_result {
        FREEZE_TEST_PASSED,
        FREEZE_TEST_BUSY,        /* other work keeps the kernel from beginning: try again */
        FREEZE_TEST_NO_KERNEL,   /* it cannot be loaded or launched */
        FREEZE_TEST_NO_CHANNEL,  /* the kernel runs, and no channel of the process is known */
        FREEZE_TEST_REFUSED,     /* rm_freeze() failed; ret_error: its result */
        FREEZE_TEST_RAN_ON,      /* it did not stand */
        FREEZE_TEST_STOOD_STILL, /* it did not go on */
};

/* Run the test in a context of the program's, all of whose channels are frozen for some
 * milliseconds. For the agent's thread, core_lock not held. */
enum freeze_result freeze_test(CUcontext context, int *ret_error);
/* The context is about to end, and with it the test's objects in it. */
void freeze_test_forget(CUcontext context);
