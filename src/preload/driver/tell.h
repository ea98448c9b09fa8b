/* tell.h: with SUBLET_LOG=debug, the log has a line for each call of the driver: its result, and
 * for whom it was made, a file of the library or the program. Any thread. */
#pragma once

#include "preload/driver/real.h"

/* If calls are told, puts functions into the table that tell, and returns another table, with the
 * functions that were there. Otherwise returns the table itself. Call it once, before any other
 * thread can read the table. */
struct real_driver *tell_begin(struct real_driver *table);
