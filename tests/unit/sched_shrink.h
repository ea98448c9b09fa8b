/* sched_shrink.h: reduces a world with a fault to a smaller world with the same fault. */
#pragma once

#include "sched_world.h"

struct shrunk {
        struct world_choice *list; /* the caller frees it */
        unsigned n, runs;
        char text[256]; /* the fault in the small world */
};

/* True if two faults differ at most in the process and the time. */
bool shrink_same(const char *a, const char *b);

/* Searches for a shorter list with the same fault. text: the fault from world_step(); until_ns: its
 * time. False: a replay does not show the fault, which is a defect of the world. */
bool shrink(const struct world_options *o, const struct world_choice *list, unsigned n,
            const char *text, uint64_t until_ns, struct shrunk *ret);
/* Plays the shrunk world and prints every message to stderr. */
void shrink_print(const struct world_options *o, const struct shrunk *s);
