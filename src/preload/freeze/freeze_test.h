/* freeze_test.h: does freezing work here? A kernel of ours counts, is frozen, stands, goes on. */
#pragma once

#include "cuda/cuda_abi.h"

enum freeze_result {
        FREEZE_TEST_PASSED,
        FREEZE_TEST_BUSY,        /* other work keeps the kernel from beginning: try again */
        FREEZE_TEST_NO_KERNEL,   /* it cannot be loaded or launched */
        FREEZE_TEST_NO_CHANNEL,  /* the kernel runs, and no channel of the process is known */
        FREEZE_TEST_REFUSED,     /* by rm_freeze(); ret_error: what it returned */
        FREEZE_TEST_RAN_ON,      /* it did not stand */
        FREEZE_TEST_STOOD_STILL, /* it did not go on */
};

/* In a context of the program's, all of whose channels are frozen for some milliseconds. The
 * agent's thread, core_lock not held. */
enum freeze_result freeze_test(CUcontext context, int *ret_error);
/* The context is about to end, and what the test left in it. */
void freeze_test_forget(CUcontext context);
