/* trace.h: SUBLET_TRACE=FILE writes one JSON line for each event, for benchmarks and bug reports.
 * docs/operations.md (Trace) lists the events. Only the agent's thread writes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool trace_is_on(void);
void trace_event(const char *event, unsigned gpu, uint64_t bytes);
