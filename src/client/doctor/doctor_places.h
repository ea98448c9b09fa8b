/* doctor_places.h: what doctor finds out about where daemons of this user are. */
#pragma once

#include "base/daemon_paths.h"
#include "client/talk/control_order.h"

/* Reports where a private daemon is if XDG_RUNTIME_DIR does not say it. */
void places_look_at_runtime(void);
/* Reports the daemons of this user beside the one in dir. Does nothing if the target names the
 * daemon: then doctor was asked about that one alone. */
void places_look_at_others(const struct target *target, const char *dir, enum paths_kind kind);
