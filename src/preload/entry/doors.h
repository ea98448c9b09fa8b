/* doors.h: the exported driver functions (doors.c), for the modules that hand them out (dl.c,
 * resolve.c). Any thread. */
#pragma once

#include "preload/hooks/hooks.h"
#include "preload/driver/rows.h"

/* Our function for a row; NULL: not caught. */
void *doors_wrapper(enum door_row row);
