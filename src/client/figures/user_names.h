/* user_names.h: the names of the users whose programs run. */
#pragma once

#include <stdint.h>

#include <jansson.h>

/* Adds "user" to each client of a status, and to each process outside of the daemon; to clients
 * also "tenant": the pod, or the Slurm job. The daemon reports users by number, because looking up
 * a name may have to wait for a directory service. Each name is looked up once in this process. */
void users_name(json_t *status);
/* Returns the name of a uid from a daemon's answer; the text is valid until the next call. A number
 * that is no uid stands for another user, whom the viewer may not know. */
const char *users_text(uint64_t uid);
