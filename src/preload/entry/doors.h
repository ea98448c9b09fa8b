/* doors.h: the exported driver functions (doors.c), for the modules that return their addresses
 * (dl.c, resolve.c). Any thread. */
#pragma once

#include "preload/hooks/hooks.h"
#include "preload/driver/rows.h"

/* Returns our function for a row; NULL: the function is not intercepted. */
void *doors_wrapper(enum door_row row);
