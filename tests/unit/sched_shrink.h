/* sched_shrink.h: from a world in which something breaks, one as small as can be in which the same
 * breaks. */
#pragma once

#include "sched_world.h"

struct shrunk {
        struct world_choice *list; /* the caller frees it */
        unsigned n, runs;
        char text[256]; /* what breaks in the small one */
};

/* What breaks, without the process and the time. */
bool shrink_same(const char *a, const char *b);

/* text: what world_step() said; until_ns: when. false: it does not happen again, so it depends on
 * something that is not a choice, which is a mistake of the world's. */
bool shrink(const struct world_options *o, const struct world_choice *list, unsigned n,
            const char *text, uint64_t until_ns, struct shrunk *ret);
/* Every message of that world, on stderr. */
void shrink_print(const struct world_options *o, const struct shrunk *s);
