/* require.h: whether this program may run without sharing, and who forbids it.
 *
 * The user forbids it by SUBLET_REQUIRE=1, the machine's owner by `require = yes` (owner.h). Any
 * thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/settings.h"

/* True if the program waits for a daemon instead of running without one. SUBLET_REQUIRE=0 does not
 * outweigh the owner's word. */
bool require_daemon(void);
/* Ignore the owner from now on: this process serves `sublet doctor`, and joins no daemon. */
void require_nothing(void);
/* Returns what forbids this program to run without sharing, as the beginning of a sentence: the
 * owner, SUBLET_REQUIRE, or a memory cap, which only a daemon keeps. NULL: nothing does. */
const char *require_sharing(void);
/* Reads the memory cap. 0 with 0 bytes: there is none; -EINVAL: it is malformed. */
int require_cap(uint64_t *ret_bytes);
/* Returns the setting that would limit this program but is malformed: the memory cap, or a share
 * that may have a maximum. SETTING_COUNT: there is none. */
enum setting require_malformed(void);
