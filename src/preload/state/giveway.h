/* giveway.h: who has the card where nobody decides it. A daemon of another release refuses all; of
 * the programs that this meets half moved in none may have room for the rest, and each would wait
 * for the others. So who gets no further for a while moves out again, and tries later: randomized
 * backoff, as on a shared wire. Pure; the times are drawn with what the caller hands in. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All zero: in, and nothing seen yet. */
struct giveway {
        bool out, waits;
        unsigned times;    /* it was out and came back in */
        uint64_t bytes;    /* as last seen ... */
        uint64_t until_ns; /* ... and how long they may stay what they are; 0: nothing seen yet */
};

/* For a process that lacks memory. bytes: of what it has, what is there for good: resident while
 * in, backed while out. waits: one of its threads waits for the rest; with none it stays out, once
 * it is, and with the first it comes in at once. Returns whether all shall leave the card, or stay
 * away from it; w->until_ns says when to look again if nothing changes. */
bool giveway_step(struct giveway *w, bool waits, uint64_t bytes, uint64_t now_ns, uint32_t random);
