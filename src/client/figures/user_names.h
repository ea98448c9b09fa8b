/* user_names.h: the names of those whose programs run. */
#pragma once

#include <stdint.h>

#include <jansson.h>

/* Adds "user" to each client of a status, and to each process outside of the daemon; to clients
 * also "tenant": the pod, or the Slurm job. The daemon reports users by number, because looking up
 * a name may have to wait for a directory service. Each name is looked up once in this process. */
void users_name(json_t *status);
/* Returns the name of a uid, as a daemon tells it, until the next call. Another number than a uid
 * is another user, whom the viewer may not know. */
const char *users_text(uint64_t uid);
