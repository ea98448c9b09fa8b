/* trace_view.h: a trace for people: a table, and the JSON that Perfetto and chrome://tracing read.
 */
#pragma once

#include <stdio.h>

#include <jansson.h>

#include "client/trace/trace_model.h"

struct trace_view {
        const struct trace_input *in;
        const struct trace *trace;
        const json_t *answer; /* the daemon's: GPUs, release, the time of day */
};

/* Returns the pod or the Slurm job of a program; NULL: it runs in none, or the viewer may not know.
 */
const char *trace_tenant(const struct trace_view *v, uint16_t track);
/* Prints one line for each event, except those of TRACE_MEMORY. */
void trace_print(const struct trace_view *v, FILE *out);
/* Returns a new object; NULL: no memory. GPUs are processes, programs are threads. */
json_t *trace_json(const struct trace_view *v);
