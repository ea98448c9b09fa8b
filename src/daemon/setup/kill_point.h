/* kill_point.h: named points (kill_points.def) where the test build of the daemon, subletd-test,
 * can be killed or stopped: SUBLET_KILL_POINT="handled.USAGE:3:kill", the third time; kill or stop.
 * In subletd there is nothing of it. */
#pragma once

#ifdef SUBLET_KILL_POINTS
void kill_point(const char *name);
/* message: its type in wire.h */
void kill_point_message(const char *name, unsigned message);
#else
static inline void kill_point(const char *name)
{
}

static inline void kill_point_message(const char *name, unsigned message)
{
}
#endif
