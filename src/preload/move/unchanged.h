/* unchanged.h: asks the GPU whether an extent has to be copied out at all.
 *
 * A fingerprint of what lies on the card is compared with that of the copy which the host still has
 * from the last eviction; zero means that the memory is all zero. It costs a hundredth of the
 * copy's time, beside the copies of other extents; where it is not at least ten times as fast as
 * they are, nobody is asked.
 *
 * For the agent's thread, with the context that the copies run in current. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/heap/fingerprint.h"

struct extent;
struct unchanged;

#define UNCHANGED_SLOTS 8u

struct unchanged *unchanged_new(void); /* NULL: no memory, or not wanted; the others take that */

/* Begin to ask about what is to be kept of an extent, mapped at `at` until the answer. False:
 * not asked. */
bool unchanged_ask(struct unchanged *u, unsigned slot, const struct extent *e, CUdeviceptr at);

enum unchanged_answer {
        UNCHANGED_WAIT, /* look again */
        UNCHANGED_TOLD,
        UNCHANGED_FAILED, /* no answer will come: copy, or find that the context is dead */
};
enum unchanged_answer unchanged_answer(struct unchanged *u, unsigned slot,
                                       struct fingerprint *ret_print);

/* So many bytes were copied out in this time: what asking is compared with. */
void unchanged_copied(struct unchanged *u, uint64_t bytes, uint64_t ns);

/* The context is about to go: wait for what was asked, which can still be answered, and let go of
 * what is in the context; unchanged_forget() then ends what was asked. */
void unchanged_settle(struct unchanged *u);
void unchanged_forget(struct unchanged *u);
/* Nothing is asked any more: leave what is in the context to its end. */
void unchanged_leave(struct unchanged *u);
