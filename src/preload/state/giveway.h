/* giveway.h: randomized backoff for programs that no daemon schedules. A daemon of another release
 * refuses all of them. If several are then caught half restored, none may have room for the rest,
 * and each would wait for the others. So a process without progress evicts its memory and tries
 * again later. Pure: the caller passes the times and the random numbers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* All zero: restored, and nothing measured yet. */
struct giveway {
        bool out, waits;
        unsigned times;    /* it was evicted and has come back */
        uint64_t bytes;    /* as last seen ... */
        uint64_t until_ns; /* ... and until when they may stay unchanged; 0: not measured yet */
};

/* For a process that lacks memory. bytes: resident bytes while in, backed bytes while out. waits:
 * one of its threads waits for the rest. If none waits, it stays evicted; it is restored when the
 * first one does. Returns whether all of it shall leave the card or stay away; w->until_ns: when to
 * call again if nothing changes. */
bool giveway_step(struct giveway *w, bool waits, uint64_t bytes, uint64_t now_ns, uint32_t random);
