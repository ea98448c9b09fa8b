/* capture.h: streams that record work into a graph instead of running it. All functions need
 * sim.lock. */
#pragma once

#include "sim/call/captures.h"
#include "sim/queue/work.h"

/* Adds a node for the work after the nodes that the stream has captured so far. Takes over the
 * work. */
CUresult capture_add(CUstream s, struct work *w);
CUresult capture_record_event(CUstream s, CUevent event);
/* Makes a stream that waits for a captured event join the event's capture. */
CUresult capture_join(CUstream s, CUevent event);
void capture_stream_gone(CUstream s);
