/* doctor_configuration.h: what doctor says of the daemon's configuration. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

/* Reports a mistake in the files of the daemon in `dir`, and what the daemon goes on with.
 * on_demand: a program starts a private daemon there if there is none. status: that of the daemon;
 * NULL: no daemon answers. False: there is a mistake. */
bool configuration_look(const char *dir, bool on_demand, const json_t *status);
