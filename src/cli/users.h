/* users.h: the names of those whose programs run. */
#pragma once

#include <jansson.h>

/* Adds "user" to each client of a status, and "tenant": its pod, or its Slurm job. The daemon
 * reports users by number, because looking up a name may have to wait for a directory service. Each
 * name is looked up once in this process. */
void users_name(json_t *status);
