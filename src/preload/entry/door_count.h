/* door_count.h: records which doors a program has used, for the library that tests watch. Each door
 * is named once, in the file that SUBLET_DOOR_COUNT names. libsublet.so contains none of it. */
#pragma once

#include "preload/entry/doors.h"

#ifdef SUBLET_WATCHED
void door_count(enum door_row row);
#else
static inline void door_count(enum door_row row)
{
}
#endif
