/* work_steps.h: where a program's work repeats itself, found in what it submits.
 *
 * Programs repeat their work: a step of a training, a token, a round. Nobody tells us where a step
 * begins, but some kind of work (a kernel, a graph, a sort of copy; gate.h) comes once in each. Of
 * the kinds that come again after about the same number of submissions, the rarest is assumed to
 * begin a step. Before a whole step was seen, a part of it may look like one (the layers of a
 * model). So the search goes on, and the caller is told when a rarer kind has come up.
 *
 * Pure: no clock, no allocation, no lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define STEPS_KINDS 1024u /* a power of two; kinds beyond it are ignored */

struct steps_kind {
        uint64_t work,   /* the kind of work */
                last;    /* number of the submission when it came last; 0: the slot is free */
        uint64_t gap;    /* average number of submissions from one to the next */
        unsigned seen;   /* how many times the work came */
        unsigned stable; /* how many times in a row the work came after about `gap` submissions */
};

struct steps {
        uint64_t submissions;
        uint64_t begin, /* the work that a step begins with */
                gap;    /* submissions in a step; 0: no step is known */
        unsigned used;
        struct steps_kind kind[STEPS_KINDS];
};

/* Forget everything: the program has begun something else. */
void steps_reset(struct steps *s);

/* Call it for each piece of work before it is submitted. True: the search has found that a step
 * begins with this work; it is the first step found, or longer than the one known before. */
bool steps_look(struct steps *s, uint64_t work);

/* True if the work that begins a step has not come for so long that the program must be doing
 * something else. */
bool steps_lost(const struct steps *s);
