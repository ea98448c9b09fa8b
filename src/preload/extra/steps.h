/* steps.h: where a program's work repeats itself, found in what it submits.
 *
 * Programs do the same again and again: a step of a training, a token, a round. Nobody tells us
 * where one begins, but some kind of work (a kernel, a graph, a sort of copy; gate.h) comes once in
 * each. Of the kinds that come again after about the same number of submissions the rarest is taken
 * for the begin of a step. As long as only a part of the first step has been seen, something inside
 * it may look like one (the layers of a model): so looking goes on, and who asks is told when a
 * rarer kind has come up.
 *
 * Pure: no clock, no allocation, no lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define STEPS_KINDS 1024u /* a power of two; kinds beyond it are ignored */

struct steps_kind {
        uint64_t work, last; /* when it came last, in submissions; 0: the slot is free */
        uint64_t gap;        /* since the one before, on average */
        unsigned seen;       /* so often */
        unsigned stable;     /* ... and so often in a row after about that many */
};

struct steps {
        uint64_t submissions;
        uint64_t begin,
                gap; /* the work that a step begins with, and its submissions; gap 0: not known */
        unsigned used;
        struct steps_kind kind[STEPS_KINDS];
};

/* Forget everything: the program has begun something else. */
void steps_reset(struct steps *s);

/* This work is about to be submitted. True: from now on a step is known to begin with it, and was
 * not known, or was thought shorter. */
bool steps_look(struct steps *s, uint64_t work);

/* The work that began a step has not come for so long that the program must do something else now.
 */
bool steps_lost(const struct steps *s);
