/* capture.h: streams that record into a graph instead of running. All of it under sim.lock but
 * capture_unsafe(). */
#pragma once

#include "sim/api/objects.h"
#include "sim/stream/work.h"

/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the captures in question invalidated, where a capture
 * going on forbids this thread calls that cannot be captured. */
CUresult capture_unsafe(void);
CUresult capture_unsafe_locked(void);

/* What the stream captures into. */
CUgraph capture_graph(CUstream s);
/* A node for the work (taken over) after what the stream has captured so far. */
CUresult capture_add(CUstream s, struct work *w);
/* Before work or waiting on a stream that does not capture: the legacy stream may not be used while
 * a blocking stream of its context captures. */
CUresult capture_implicit(CUstream s);
/* The stream may not be asked or waited for while it captures. */
CUresult capture_refuses_sync(CUstream s);
/* Nothing of the context may be waited for while any of its streams captures. */
CUresult capture_refuses_context(CUcontext c);

CUresult capture_record_event(CUstream s, CUevent event);
/* The stream waits for an event that was recorded in a capture: it joins. */
CUresult capture_join(CUstream s, CUevent event);
/* The event was last recorded in a capture. Not success: it can be neither asked nor waited for; a
 * capture that goes on is invalidated by it. */
CUresult capture_refuses_event(CUevent event);
void capture_forget_event(CUevent event);
void capture_stream_gone(CUstream s);
