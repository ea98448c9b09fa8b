/* sched_shrink.h: reduces a world with a fault to a smaller world with the same fault. */
#pragma once

#include "sched_world.h"

struct shrunk {
        struct world_choice *list; /* owned by the caller, who frees it */
        unsigned n, runs;
        char text[256]; /* the fault in the small world */
};

/* Compares two faults, ignoring the process and the time. */
bool shrink_same(const char *a, const char *b);

/* text: the fault from world_step(); until_ns: its time. false: playing the choices again does not
 * show the fault, so it depends on something else, which is a defect of the world. */
bool shrink(const struct world_options *o, const struct world_choice *list, unsigned n,
            const char *text, uint64_t until_ns, struct shrunk *ret);
/* Prints every message of that world to stderr. */
void shrink_print(const struct world_options *o, const struct shrunk *s);
