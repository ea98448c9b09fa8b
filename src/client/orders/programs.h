/* programs.h: the programs that a person names: by number, by name, or all of the person's own. */
#pragma once

#include <stddef.h>

#include "client/talk/control_order.h"

#define PROGRAMS_MAX 1024

struct programs {
        int pid[PROGRAMS_MAX];
        size_t n;
};

/* Adds the programs that each word names. A number names that process, whether or not the daemon
 * knows it. A name stands for the programs that status shows with it: the person's own, or, if
 * there are none, all. Asks the daemon once at most. CLI_OK, or an exit status after a message. */
int programs_add(struct programs *p, const struct target *target, const char *const *words,
                 size_t n);
/* Adds all programs; mine: only the caller's own. CLI_OK, or an exit status after a message. */
int programs_add_all(struct programs *p, const struct target *target, int mine);
