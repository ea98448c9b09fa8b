/* doctor_processes.h: what doctor says of other processes. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

/* Reports the programs that are stopped, those that run without sharing, and those whose memory
 * stays on the card. status: the daemon's; NULL: there is none. The other parameters are those of
 * programs_look(). */
void processes_look(const json_t *status, const char *folder, bool simulated);
