/* doctor_processes.h: what doctor says of other processes. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

/* Reports the programs whose memory stays on the card, and those that run without sublet.
 * Parameters as for programs_look(). */
void processes_look(const char *folder, bool simulated);
/* Reports the programs of a daemon's status that are stopped. */
void processes_stopped(const json_t *status);
