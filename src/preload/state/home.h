/* home.h: whether managed memory that is sent home, to the host, leaves the card.
 *
 * A driver may keep the card's pages for memory that it has moved to the host (580 on an H200
 * does), and to have it take them back for others is to oversubscribe managed memory, which can
 * hang such a card. No attribute says which it is, so it is tried, within free memory: the card's
 * free memory follows or does not. Others come and go meanwhile, so one try may say nothing, or the
 * wrong thing: an answer has to be ahead by some. Until then it is not known, which is not a no: it
 * is tried again as long as somebody needs to know. */
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
        int lead;            /* tries that saw it leave, less those that saw it stay */
        unsigned noes;       /* rounds of tries that ended with no */
        unsigned rests;
        uint64_t again_ns; /* not tried before, after tries that said nothing */
};

/* Find out, unless it is known, has just been tried in vain, or another thread is at it: some
 * tries, of a few driver calls each, that wait for a small fill and a small copy. The calling
 * thread has a context of this GPU; core_lock not held. */
void home_find_out(struct gpu *g);

/* Any thread, with or without core_lock. */
static inline enum home_answer home_answer(const struct home *h)
{
        return __atomic_load_n(&h->answer, __ATOMIC_ACQUIRE);
}
