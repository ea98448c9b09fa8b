/* home.h: whether managed memory that is sent to the host leaves the card.
 *
 * Some drivers keep the card's pages for it (580 on an H200 does). Making them take the pages back
 * oversubscribes managed memory, which can hang the card. No attribute tells, so it is tested
 * within free memory: the card's free memory follows or does not. Other processes change it
 * meanwhile, so an answer needs a lead of several tests. Until then the answer is "not known", and
 * the test is repeated while somebody needs it. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gpu;

enum home_answer { HOME_NOT_KNOWN, HOME_LEAVES, HOME_STAYS };

/* Of one GPU. */
struct home {
        enum home_answer answer;
        _Atomic bool trying; /* a thread is at it */
        int lead;            /* tests that saw it leave, less those that saw it stay */
        unsigned noes;       /* rounds that ended with a no */
        unsigned rests;
        uint64_t again_ns; /* no new test before, after tests without an answer */
};

/* Run some tests, unless the answer is known, a test has just failed to tell, or another thread
 * runs one. Each test makes a few driver calls and waits for a small fill and copy. The calling
 * thread has a context of this GPU; core_lock not held. */
void home_find_out(struct gpu *g);

/* Any thread, with or without core_lock. */
static inline enum home_answer home_answer(const struct home *h)
{
        return __atomic_load_n(&h->answer, __ATOMIC_ACQUIRE);
}
