/* kill_point.h: named points (kill_points.def) where the test build of the daemon, subletd-test,
 * can be killed or stopped: SUBLET_KILL_POINT="handled.USAGE:3:kill" kills it at the third USAGE
 * that it has handled. In subletd these functions do nothing. */
#pragma once

#ifdef SUBLET_KILL_POINTS
void kill_point(const char *name);
/* message: the enum wire_type of the message that is part of the point's name. */
void kill_point_message(const char *name, unsigned message);
#else
static inline void kill_point(const char *name)
{
}

static inline void kill_point_message(const char *name, unsigned message)
{
}
#endif
