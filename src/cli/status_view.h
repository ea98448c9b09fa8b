/* status_view.h: the daemon's state as a table of at most 100 columns.
 *
 * A pure function of the daemon's JSON object, so that it can be tested without a daemon. What the
 * daemon does not know (null, or a field that is not there) is shown as N/A, never as 0. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#define STATUS_COLUMNS 100

void status_view_print(const json_t *status, FILE *out);
