/* capture.c: stream capture: who captures, what may not be called meanwhile, how it ends. Must
 * never leave a stream capturing when its capture is over. */
#include "sim/stream/capture.h"

#include <stdlib.h>
#include <string.h>

#include "sim/graph/graph.h"
#include "sim/stream/stream.h"

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

static struct capture *captures;
static uint64_t last_id;
/* A look without the lock: calls outside captures pay one load. */
static _Atomic unsigned capture_count;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void capture_invalidate(struct capture *k)
{
        k->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

static bool capture_forbids(const struct capture *k)
{
        if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
            k->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
                return false;
        if (pthread_equal(k->thread, pthread_self()))
                return k->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        return k->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
               thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_unsafe_locked(void)
{
        CUresult r = CUDA_SUCCESS;

        for (struct capture *k = captures; k; k = k->next)
                if (capture_forbids(k)) {
                        capture_invalidate(k);
                        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                }
        return r;
}

CUresult capture_unsafe(void)
{
        CUresult r;

        if (atomic_load_explicit(&capture_count, memory_order_relaxed) == 0)
                return CUDA_SUCCESS;
        pthread_mutex_lock(&sim.lock);
        r = capture_unsafe_locked();
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* The legacy stream would have to wait for a stream that captures. */
static CUresult capture_conflicts(CUstream s, bool invalidate)
{
        CUresult r = CUDA_SUCCESS;

        if (!s->legacy || !captures)
                return CUDA_SUCCESS;
        for (CUstream o = s->context->streams; o; o = o->next_of_context)
                if (o->capture && !(o->flags & CU_STREAM_NON_BLOCKING)) {
                        if (invalidate)
                                capture_invalidate(o->capture);
                        r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
                }
        return r;
}

CUresult capture_implicit(CUstream s)
{
        return capture_conflicts(s, true);
}

CUresult capture_refuses_sync(CUstream s)
{
        if (!s->capture)
                return capture_implicit(s);
        capture_invalidate(s->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_refuses_context(CUcontext c)
{
        CUresult r = CUDA_SUCCESS;

        for (CUstream s = captures ? c->streams : NULL; s; s = s->next_of_context)
                if (s->capture) {
                        capture_invalidate(s->capture);
                        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                }
        return r;
}

CUgraph capture_graph(CUstream s)
{
        return s->capture->graph;
}

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

/* ---- events ---- */

/* The capture that the event was recorded in, while it goes on. */
static struct capture *capture_of_event(const struct CUevent_st *event)
{
        for (struct capture *k = captures; event->capture && k; k = k->next)
                if (k == event->capture && k->id == event->capture_id)
                        return k;
        return NULL;
}

CUresult capture_refuses_event(CUevent event)
{
        struct capture *k = capture_of_event(event);

        if (!event->capture)
                return CUDA_SUCCESS;
        if (!k)
                return CUDA_ERROR_INVALID_VALUE;
        capture_invalidate(k);
        return CUDA_ERROR_CAPTURED_EVENT;
}

void capture_forget_event(CUevent event)
{
        free(event->tail);
        event->tail = NULL;
        event->tails = 0;
        event->capture = NULL;
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
                return CUDA_ERROR_INVALID_VALUE; /* of a capture that is over */
        if (!held && !event->recorded)
                return CUDA_SUCCESS; /* an event never recorded is over */
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

/* ---- beginning and end ---- */

static void stream_uncapture(CUstream s)
{
        free(s->tail);
        s->tail = NULL;
        s->tails = 0;
        s->capture = NULL;
}

void capture_stream_gone(CUstream s)
{
        capture_invalidate(s->capture);
        if (s->capture->origin != s) {
                stream_uncapture(s);
                return;
        }
        /* Nobody can end it any more. */
        struct capture *k = s->capture, **p = &captures;

        for (CUstream o = s->context->streams; o; o = o->next_of_context)
                if (o->capture == k)
                        stream_uncapture(o);
        while (*p != k)
                p = &(*p)->next;
        *p = k->next;
        atomic_fetch_sub(&capture_count, 1);
        if (!k->graph_is_given)
                graph_free(k->graph);
        free(k);
}

static CUresult capture_begin(const char *function, CUstream stream, CUstreamCaptureMode mode,
                              CUgraph given, const CUgraphNode *after, size_t afters)
{
        struct capture *k;
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
                return CUDA_ERROR_INVALID_VALUE;
        if (stream->legacy)
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        k = calloc(1, sizeof(*k));
        if (!k)
                return CUDA_ERROR_OUT_OF_MEMORY;
        k->graph_is_given = given != NULL;
        k->mode = mode;
        k->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        k->origin = stream;
        k->thread = pthread_self();
        pthread_mutex_lock(&sim.lock);
        k->graph = given ? given : graph_new();
        if (!k->graph) {
                r = CUDA_ERROR_OUT_OF_MEMORY;
        } else if (stream->capture) {
                r = CUDA_ERROR_ILLEGAL_STATE;
        } else if (nodes_union(&stream->tail, &stream->tails, after, afters) < 0) {
                r = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
                k->id = ++last_id;
                k->next = captures;
                captures = k;
                stream->capture = k;
                atomic_fetch_add(&capture_count, 1);
        }
        if (r != CUDA_SUCCESS) {
                if (k->graph && !given)
                        graph_free(k->graph);
                free(k);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
        return capture_begin(__func__, stream, mode, NULL, NULL, 0);
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
        return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                            const CUgraphNode *dependencies,
                                            const CUgraphEdgeData *dependency_data,
                                            size_t dependency_count, CUstreamCaptureMode mode)
{
        if (!graph || graph->magic != MAGIC_GRAPH)
                return CUDA_ERROR_INVALID_VALUE;
        return capture_begin(__func__, stream, mode, graph, dependencies, dependency_count);
}

/* Mark everything the nodes come after, and themselves. */
static void mark_before(CUgraphNode const *nodes, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (!nodes[i]->mark) {
                        nodes[i]->mark = 1;
                        mark_before(nodes[i]->after, nodes[i]->afters);
                }
}

/* Every stream that joined has been joined to the origin again. */
static bool capture_joined(const struct capture *k)
{
        for (size_t i = 0; i < k->graph->nodes; i++)
                k->graph->node[i]->mark = 0;
        mark_before(k->origin->tail, k->origin->tails);
        for (CUstream s = k->origin->context->streams; s; s = s->next_of_context)
                for (size_t i = 0; s->capture == k && i < s->tails; i++)
                        if (!s->tail[i]->mark)
                                return false;
        return true;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret_graph)
{
        struct capture *k, **p = &captures;
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_graph)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        k = stream->capture;
        if (!k) {
                r = CUDA_ERROR_ILLEGAL_STATE;
                goto unlock;
        }
        if (k->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
            !pthread_equal(k->thread, pthread_self())) {
                r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
                goto unlock;
        }
        if (k->origin != stream) {
                capture_invalidate(k);
                r = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
                goto unlock;
        }
        if (k->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
                r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else if (!capture_joined(k))
                r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        for (CUstream s = stream->context->streams; s; s = s->next_of_context)
                if (s->capture == k)
                        stream_uncapture(s);
        while (*p != k)
                p = &(*p)->next;
        *p = k->next;
        atomic_fetch_sub(&capture_count, 1);
        *ret_graph = r == CUDA_SUCCESS ? k->graph : NULL;
        if (r != CUDA_SUCCESS && !k->graph_is_given)
                graph_free(k->graph);
        free(k);
unlock:
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* ---- questions ---- */

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        CUstreamCaptureMode old = thread_mode;

        if (r != CUDA_SUCCESS)
                return r;
        if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
                return CUDA_ERROR_INVALID_VALUE;
        thread_mode = *mode;
        *mode = old;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *ret_status,
                                          cuuint64_t *ret_id, CUgraph *ret_graph,
                                          const CUgraphNode **ret_dependencies,
                                          const CUgraphEdgeData **ret_edge_data,
                                          size_t *ret_num_dependencies)
{
        struct capture *k;
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_status)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = capture_conflicts(stream, false); /* asking harms nobody */
        k = stream->capture;
        *ret_status = k ? k->status : CU_STREAM_CAPTURE_STATUS_NONE;
        if (k && k->status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
                if (ret_id)
                        *ret_id = k->id;
                if (ret_graph)
                        *ret_graph = k->graph;
                if (ret_dependencies)
                        *ret_dependencies = stream->tail;
                if (ret_num_dependencies)
                        *ret_num_dependencies = stream->tails;
                if (ret_edge_data)
                        *ret_edge_data = NULL;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *ret_status,
                                          cuuint64_t *ret_id, CUgraph *ret_graph,
                                          const CUgraphNode **ret_dependencies,
                                          size_t *ret_num_dependencies)
{
        return cuStreamGetCaptureInfo_v3(stream, ret_status, ret_id, ret_graph, ret_dependencies,
                                         NULL, ret_num_dependencies);
}

EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *ret_status,
                                       cuuint64_t *ret_id)
{
        return cuStreamGetCaptureInfo_v3(stream, ret_status, ret_id, NULL, NULL, NULL, NULL);
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
        return cuStreamGetCaptureInfo_v3(stream, ret_status, NULL, NULL, NULL, NULL, NULL);
}

EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *dependencies,
                                                  size_t dependency_count, unsigned int flags)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (flags > 1 || (dependency_count && !dependencies))
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        if (!stream->capture) {
                r = CUDA_ERROR_ILLEGAL_STATE;
        } else {
                if (flags == 1) /* set, not add */
                        stream->tails = 0;
                if (nodes_union(&stream->tail, &stream->tails, dependencies, dependency_count) < 0)
                        r = CUDA_ERROR_OUT_OF_MEMORY;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                                     const CUgraphEdgeData *dependency_data,
                                                     size_t dependency_count, unsigned int flags)
{
        return cuStreamUpdateCaptureDependencies(stream, dependencies, dependency_count, flags);
}
