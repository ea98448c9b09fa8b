/* order_trace.h: the order `trace`: the last records of what happened. */
#pragma once

#include <stddef.h>

#include <jansson.h>

struct peer;
struct server;

/* Returns a new answer without the records; NULL: no memory. */
json_t *trace_answer(struct server *s, json_t *order, const struct peer *viewer);
/* Returns the bytes that follow the answer's line, and completes the answer: arrays of programs and
 * of records (wire/wire_history.h). The caller frees them. NULL: this daemon keeps no records. */
void *trace_bytes(struct server *s, const struct peer *viewer, json_t *answer, size_t *ret_size);
