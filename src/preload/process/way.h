/* way.h: makes the program use MPS, if its user asks for that (SUBLET_WAY=shared).
 *
 * The driver decides in cuInit(), by two variables of the environment. So the daemon is asked for
 * an MPS server before that, on a connection of its own that ends with the answer. */
#pragma once

#include <stdbool.h>

/* Ask the daemon, wait for its answer for at most 12 s, and set the variables. Does nothing if
 * SUBLET_WAY is not "shared", or if the user has named another control daemon. Called once, before
 * cuInit(). If MPS cannot be used, warns, and removes the name of an MPS server of ours. */
void way_join(void);
/* Call it if the driver could not use the server: warns, and restores the variables. False:
 * way_join() has set no variables. */
bool way_leave(int error);
