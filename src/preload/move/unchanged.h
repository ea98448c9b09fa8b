/* unchanged.h: asks the GPU whether an extent has to be copied out at all.
 *
 * A fingerprint of the memory on the card is compared with that of the host copy from the last
 * eviction; a fingerprint of zero means that the memory is all zero. Asking takes a hundredth of
 * the time of a copy, and goes on beside the copies of other extents. If asking is less than ten
 * times as fast as copying, the GPU is not asked.
 *
 * For the agent's thread; the context of the copies must be current. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/heap/fingerprint.h"

struct extent;
struct unchanged;

#define UNCHANGED_SLOTS 8u

/* NULL: no memory, or the user wants no fingerprints. All other functions accept NULL. */
struct unchanged *unchanged_new(void);

/* Begin to ask about the pages e->kept of an extent. The caller keeps them mapped at `at` until the
 * answer has come. False: the GPU is not asked. */
bool unchanged_ask(struct unchanged *u, unsigned slot, const struct extent *e, CUdeviceptr at);

enum unchanged_answer {
        UNCHANGED_WAIT, /* no answer yet */
        UNCHANGED_TOLD,
        UNCHANGED_FAILED, /* no answer will come: copy, which fails if the context is lost */
};
enum unchanged_answer unchanged_answer(struct unchanged *u, unsigned slot,
                                       struct fingerprint *ret_print);

/* Report that `bytes` were copied out in `ns`, for comparison with asking. */
void unchanged_copied(struct unchanged *u, uint64_t bytes, uint64_t ns);

/* The context is about to end: unchanged_settle() waits for answers that can still come; after that
 * unchanged_forget() destroys our objects in the context. */
void unchanged_settle(struct unchanged *u);
void unchanged_forget(struct unchanged *u);
/* While no answer is awaited: forget our objects in the context. They end with the context. */
void unchanged_leave(struct unchanged *u);
