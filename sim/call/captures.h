/* captures.h: the captures in progress, and the calls that they forbid. All functions need
 * sim.lock, except capture_unsafe() and capture_exchange_mode(). */
#pragma once

#include "sim/call/objects.h"

struct capture {
        uint64_t id;
        CUgraph graph;
        bool graph_is_given; /* the program passed the graph to cuStreamBeginCaptureToGraph */
        CUstreamCaptureMode mode;
        CUstreamCaptureStatus status;
        CUstream origin;
        pthread_t thread;
        struct capture *next;
};

/* Adds a new capture to the list, and sets its id and next. */
void capture_begins(struct capture *k);
/* Stops all streams of the capture from capturing. The caller frees the capture and its graph. */
void capture_ends(struct capture *k);
/* Takes a stream that is being destroyed out of its capture, and invalidates the capture. The
 * stream must not be the origin. */
void capture_leave(CUstream s);
static inline void capture_invalidate(struct capture *k)
{
        k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}
/* Sets the mode of the calling thread, and returns the previous mode. */
CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode);

/* Must precede a call that cannot be captured. Returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if
 * captures forbid such calls to this thread, and invalidates those captures. */
CUresult capture_unsafe(void);
CUresult capture_unsafe_locked(void);

/* Returns an error if s is a legacy stream that would have to wait for a capturing stream of its
 * context. invalidate: also invalidates the capture of that stream. */
CUresult capture_conflicts(CUstream s, bool invalidate);
/* Checks a stream that does not capture, before work or a wait: a legacy stream may not be used
 * while a blocking stream of its context captures. */
CUresult capture_implicit(CUstream s);
/* Returns an error if s captures: then it must not be queried or waited for. */
CUresult capture_refuses_sync(CUstream s);
/* Returns an error if a stream of c captures: then the context must not be waited for. */
CUresult capture_refuses_context(CUcontext c);

/* Returns the capture in progress in which the event was recorded; NULL: none. */
struct capture *capture_of_event(const struct CUevent_st *event);
/* Returns an error if the event was last recorded in a capture: it must not be queried or waited
 * for. Invalidates that capture if it is in progress. */
CUresult capture_refuses_event(CUevent event);
void capture_forget_event(CUevent event);
