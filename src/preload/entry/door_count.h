/* door_count.h: which doors a program has come through, for the library that tests watch: each is
 * named once, in the file that SUBLET_DOOR_COUNT names. In libsublet.so there is nothing of it. */
#pragma once

#include "preload/entry/doors.h"

#ifdef SUBLET_WATCHED
void door_count(enum door_row row);
#else
static inline void door_count(enum door_row row)
{
}
#endif
