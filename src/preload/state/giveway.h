/* giveway.h: randomized backoff for programs that no daemon schedules.
 *
 * A daemon of another release refuses all programs. Several programs that are half restored may
 * leave no room for any of them, and each would wait for the others. So a process whose restore
 * makes no progress evicts its memory and tries again later. Pure: the caller passes the times and
 * the random numbers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Begins as all zero: memory is restored (out is false), and nothing is measured yet. */
struct giveway {
        bool out, waits;
        unsigned times;    /* how often its memory was evicted and came back */
        uint64_t bytes;    /* the argument `bytes` when it last changed */
        uint64_t until_ns; /* time until which `bytes` may stay unchanged; 0: not measured yet */
};

/* Decides for a process that lacks memory. bytes: resident bytes, or backed bytes if w->out. waits:
 * a thread waits for the missing memory. If none does, evicted memory stays evicted. True: all
 * memory is to leave the card or to stay off it. w->until_ns: when to call again if nothing
 * changes. */
bool giveway_step(struct giveway *w, bool waits, uint64_t bytes, uint64_t now_ns, uint32_t random);
