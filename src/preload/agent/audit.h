/* audit.h: traces the accounts of what this process has on the cards (trace.h) whenever no memory
 * is being made or released. Tests compare them with the driver's own figures:
 *
 * "created": bytes of memory made by cuMemCreate or received from another process, and not released
 * yet. This figure is exact. "on_card": the same bytes and all known unevictable bytes. Neither
 * figure includes managed memory. */
#pragma once

#include <stdbool.h>

#include "preload/process/lock.h"

/* The agent calls it before it sleeps, core_lock held. last: trace even if nothing has happened
 * since the last trace. */
void audit_tell(bool last) REQUIRES(core_lock);
