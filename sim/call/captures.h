/* captures.h: the captures that go on, and what they forbid meanwhile. All of it under sim.lock but
 * capture_unsafe() and capture_exchange_mode(). */
#pragma once

#include "sim/call/objects.h"

struct capture {
        uint64_t id;
        CUgraph graph;
        bool graph_is_given; /* cuStreamBeginCaptureToGraph: the program's own */
        CUstreamCaptureMode mode;
        CUstreamCaptureStatus status;
        CUstream origin;
        pthread_t thread;
        struct capture *next;
};

/* The capture begins; sets id and next. */
void capture_begins(struct capture *k);
/* None of its streams captures any more. The caller frees its graph and it. */
void capture_ends(struct capture *k);
/* One of its streams, not the origin, is destroyed: the capture is invalidated. */
void capture_leave(CUstream s);
static inline void capture_invalidate(struct capture *k)
{
        k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}
/* The mode of the calling thread; returns the one it had. */
CUstreamCaptureMode capture_exchange_mode(CUstreamCaptureMode mode);

/* If a capture forbids this thread calls that cannot be captured:
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and those captures are invalidated. */
CUresult capture_unsafe(void);
CUresult capture_unsafe_locked(void);

/* The legacy stream would have to wait for a stream of its context that captures. */
CUresult capture_conflicts(CUstream s, bool invalidate);
/* Before work or waiting on a stream that does not capture: the legacy stream may not be used while
 * a blocking stream of its context captures. */
CUresult capture_implicit(CUstream s);
/* The stream must not be queried or waited for while it captures. */
CUresult capture_refuses_sync(CUstream s);
/* The context must not be waited for while any of its streams captures. */
CUresult capture_refuses_context(CUcontext c);

/* The capture that the event was recorded in, while it goes on; NULL: none. */
struct capture *capture_of_event(const struct CUevent_st *event);
/* Not success if the event was last recorded in a capture: it can be neither queried nor waited
 * for, and a capture in progress is invalidated. */
CUresult capture_refuses_event(CUevent event);
void capture_forget_event(CUevent event);
