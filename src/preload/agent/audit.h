/* audit.h: what the accounts say this process has on the cards, told in the trace (trace.h)
 * whenever nothing comes or goes, so that it can be held against the driver's own figures:
 *
 * "created": bytes of the memory that was made by cuMemCreate or came from another process, and was
 * not released: exactly. "on_card": with what is known to be unevictable, all but managed memory.
 */
#pragma once

#include <stdbool.h>

#include "preload/process/lock.h"

/* The agent's, before it sleeps. last: whether anything has happened since or not. core_lock held.
 */
void audit_tell(bool last) REQUIRES(core_lock);
