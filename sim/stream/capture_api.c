/* capture_api.c: the entry points of stream capture. Must never leave a stream capturing when its
 * capture has ended. */
#include "sim/queue/capture.h"

#include <stdlib.h>
#include <string.h>

#include "sim/queue/graph.h"
#include "sim/queue/stream.h"

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
                capture_begins(k);
                stream->capture = k;
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

/* Marks the nodes and all their predecessors. */
static void mark_before(CUgraphNode const *nodes, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (!nodes[i]->mark) {
                        nodes[i]->mark = 1;
                        mark_before(nodes[i]->after, nodes[i]->afters);
                }
}

/* True if every stream that joined the capture has been joined to its origin again. */
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
        struct capture *k;
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
        capture_ends(k);
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

        if (r != CUDA_SUCCESS)
                return r;
        if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
                return CUDA_ERROR_INVALID_VALUE;
        *mode = capture_exchange_mode(*mode);
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
        r = capture_conflicts(stream, false); /* a query invalidates no capture */
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
                if (flags == 1) /* replace the dependencies, do not add to them */
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
