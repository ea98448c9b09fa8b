/* status_jobs.h: the table of the jobs that sublet submit has brought. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/* Prints nothing if there are none. */
void status_jobs_print(const json_t *status, FILE *out);
