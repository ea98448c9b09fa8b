/* home.h: does managed memory leave the card when it is sent to the host?
 *
 * Some drivers keep its pages on the card (580 on an H200 does). Forcing them off means to
 * oversubscribe managed memory, which can hang the card. No attribute tells which drivers do this.
 * So a test sends a piece to the host and reads the card's free bytes. Other processes change that
 * number too, so one answer must lead the other by several tests; otherwise it is "not known", and
 * the test is repeated. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gpu;

enum home_answer { HOME_NOT_KNOWN, HOME_LEAVES, HOME_STAYS };

/* The tests on one GPU. */
struct home {
        enum home_answer answer;
        _Atomic bool trying; /* a thread is testing */
        int lead;            /* tests with the result HOME_LEAVES, less those with HOME_STAYS */
        unsigned noes;       /* rounds of tests that ended with HOME_STAYS */
        unsigned rests;
        uint64_t again_ns; /* after tests without an answer: the time of the next test */
};

/* Run some tests, unless the answer is known, the last tests are too recent, or another thread is
 * testing. Each test makes a few driver calls and waits for a small fill and copy. The calling
 * thread has a context of this GPU; core_lock not held. */
void home_find_out(struct gpu *g);

/* Returns the answer so far. Any thread, with or without core_lock. */
static inline enum home_answer home_answer(const struct home *h)
{
        return __atomic_load_n(&h->answer, __ATOMIC_ACQUIRE);
}
