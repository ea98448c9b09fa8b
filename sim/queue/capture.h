/* capture.h: streams that record into a graph instead of running. All of it under sim.lock. */
#pragma once

#include "sim/call/captures.h"
#include "sim/queue/work.h"

/* Add a node for the work (taken over) after the nodes that the stream has captured so far. */
CUresult capture_add(CUstream s, struct work *w);
CUresult capture_record_event(CUstream s, CUevent event);
/* The stream waits for an event that was recorded in a capture: it joins. */
CUresult capture_join(CUstream s, CUevent event);
void capture_stream_gone(CUstream s);
