/* tell.h: with SUBLET_LOG=debug, the log has a line for each call of the driver: its result and its
 * caller, which is a file of the library or the program. Any thread. */
#pragma once

#include "preload/driver/real.h"

/* If calls are logged, puts logging functions into the table, and returns another table with the
 * functions that they replaced. Otherwise returns the table itself. Call it once, before any other
 * thread can read the table. */
struct real_driver *tell_begin(struct real_driver *table);
