/* capture.c: records the work of capturing streams into graphs. Must never leave a stream capturing
 * when its capture has ended. */
#include "sim/queue/capture.h"

#include <stdlib.h>

#include "sim/queue/graph.h"

CUresult capture_add(CUstream s, struct work *w)
{
        struct capture *k = s->capture;
        CUgraphNode n;
        CUresult r;

        if (k->status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
                work_clear(w);
                return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        r = graph_add(k->graph, graph_type_of(w), w, s->tail, s->tails, &n);
        if (r != CUDA_SUCCESS) {
                capture_invalidate(k);
                return r;
        }
        s->tails = 0;
        if (nodes_union(&s->tail, &s->tails, &n, 1) < 0) {
                capture_invalidate(k);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return CUDA_SUCCESS;
}

CUresult capture_record_event(CUstream s, CUevent event)
{
        struct capture *k = s->capture;

        if (k->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
                return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        capture_forget_event(event);
        if (nodes_union(&event->tail, &event->tails, s->tail, s->tails) < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        event->capture = k;
        event->capture_id = k->id;
        event->recorded = false;
        event->point = (struct point){0};
        return CUDA_SUCCESS;
}

CUresult capture_join(CUstream s, CUevent event)
{
        struct capture *held = capture_of_event(event), *k = held ? held : s->capture;

        if (!held && event->capture)
                return CUDA_ERROR_INVALID_VALUE; /* the event belongs to an ended capture */
        if (!held && !event->recorded)
                return CUDA_SUCCESS; /* an event that was never recorded counts as reached */
        if (k->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
                return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (!held) {
                capture_invalidate(k);
                return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        if (s->capture && s->capture != k) {
                capture_invalidate(k);
                capture_invalidate(s->capture);
                return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        }
        if (s->legacy) {
                capture_invalidate(k);
                return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        if (nodes_union(&s->tail, &s->tails, event->tail, event->tails) < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        s->capture = k;
        return CUDA_SUCCESS;
}

void capture_stream_gone(CUstream s)
{
        struct capture *k = s->capture;

        if (k->origin != s) {
                capture_leave(s);
                return;
        }
        /* Only the origin stream could have ended the capture, and the origin is gone now. */
        capture_ends(k);
        if (!k->graph_is_given)
                graph_free(k->graph);
        free(k);
}
