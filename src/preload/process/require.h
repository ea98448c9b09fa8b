/* require.h: whether this program may run without sharing, and who forbids it.
 *
 * The user forbids it by SUBLET_REQUIRE=1, the machine's owner by `require = yes` in
 * REQUIRE_FILE. A daemon cannot tell the second: it may be dead. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUIRE_FILE "/etc/sublet/subletd.conf"

/* True if the program waits for a daemon instead of running without one. SUBLET_REQUIRE=0 does not
 * outweigh the owner's word. */
bool require_daemon(void);
/* What forbids to run without sharing, as the beginning of a sentence: as require_daemon(), and a
 * memory cap in the environment, which only a daemon keeps. NULL: nothing does. */
const char *require_sharing(void);
/* Reads that cap. 0, and 0 bytes: there is none; -EINVAL: it is malformed. */
int require_cap(uint64_t *ret_bytes);

/* True if the text of the file has `require = yes` under [daemon]; the last such key counts. */
bool require_says_yes(const char *text, size_t n);
