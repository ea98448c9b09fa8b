/* trace.h: SUBLET_TRACE=FILE writes one JSON line for each episode of the swap engine, for
 * benchmarks and bug reports:
 * {"t_ns":…,"pid":…,"event":"evict_begin","gpu":0,"bytes":…}; events evict_begin/_end,
 * restore_begin/_end, drain_begin/_end, and those of audit.h. t_ns is CLOCK_MONOTONIC; bytes, in
 * _end events, are those that the episode moved. Only the agent's thread writes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool trace_is_on(void);
void trace_event(const char *event, unsigned gpu, uint64_t bytes);
