/* orders.h: which orders every user may give a shared daemon, for the user's own programs. All
 * others are for the daemon's own user and root (docs/protocol.md, "Orders"). Pure. */
#pragma once

#include <stdbool.h>

/* True if every user may give the order. name NULL: false. */
bool order_is_public(const char *name);
