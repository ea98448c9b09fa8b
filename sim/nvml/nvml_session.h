/* nvml_session.h: how other files of the simulated NVML join the session. */
#pragma once

#include "sim/session/session.h"

/* Joins the session, if this process has not joined it yet. Returns 0, -errno. */
int nvml_join(struct session **ret_session);
