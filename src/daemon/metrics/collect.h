/* collect.h: the daemon's state as metrics. */
#pragma once

#include <stdbool.h>

#include "daemon/metrics/exposition.h"

struct server;

/* Returns all samples, or NULL if there is no memory. names: include what tells about users and
 * their programs, as `sublet status` shows it to the owner. */
struct exposition *collect(struct server *s, bool names);
