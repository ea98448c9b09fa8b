/* door_count.h: the test build of the library writes each door that a program uses, once, to the
 * file that SUBLET_DOOR_COUNT names. libsublet.so itself does not. */
#pragma once

#include "preload/entry/doors.h"

#ifdef SUBLET_WATCHED
void door_count(enum door_row row);
#else
static inline void door_count(enum door_row row)
{
}
#endif
