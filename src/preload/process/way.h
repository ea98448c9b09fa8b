/* way.h: taking part in MPS, if the program's user asks for it (SUBLET_WAY=shared).
 *
 * The driver decides in cuInit(), by two variables of the environment. So the daemon is asked for
 * an MPS server before that, on a connection of its own that ends with the answer. */
#pragma once

#include <stdbool.h>

/* Ask the daemon, wait for its answer for at most 12 s, and set the variables. Does nothing unless
 * SUBLET_WAY is "shared", or if the user has named another control daemon. Called once, before
 * cuInit(); if MPS cannot be used, warns and leaves the variables alone. */
void way_join(void);
/* The driver could not use the server: warn, and take the variables back. False: way_join() has set
 * none. */
bool way_leave(int error);
