/* graph_edit.c: reading and changing an existing graph: parameters, edges, nodes. */
#include <stdlib.h>
#include <string.h>

#include "sim/graph/node.h"
#include "sim/stream/copy.h"
#include "sim/queue/graph.h"
#include "sim/kernel/launch.h"

static CUresult node_enter(const char *function, CUgraphNode n)
{
        CUresult r = api_enter(function, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        return n && n->magic == MAGIC_NODE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- parameters ---- */

EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                              CUDA_KERNEL_NODE_PARAMS *node_params)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_KERNEL, node_params);
        const struct work_kernel *k;

        if (r != CUDA_SUCCESS)
                return r;
        k = &node->work.kernel;
        if (!node->params) {
                unsigned n = k->function->info->parameters;

                node->params = calloc(n ? n : 1, sizeof(*node->params));
                if (!node->params)
                        return CUDA_ERROR_OUT_OF_MEMORY;
        }
        /* The pointers lead into the node. As with the driver, they are valid until the node is
         * changed or destroyed. */
        for (unsigned i = 0; i < k->function->info->parameters; i++)
                node->params[i] = (uint8_t *)k->parameters + k->function->info->parameter[i].offset;
        *node_params = (CUDA_KERNEL_NODE_PARAMS){.func = k->function,
                                                 .gridDimX = k->grid[0],
                                                 .gridDimY = k->grid[1],
                                                 .gridDimZ = k->grid[2],
                                                 .blockDimX = k->block[0],
                                                 .blockDimY = k->block[1],
                                                 .blockDimZ = k->block[2],
                                                 .sharedMemBytes = k->shared,
                                                 .kernelParams = node->params,
                                                 .ctx = k->function->module->context};
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node,
                                           CUDA_KERNEL_NODE_PARAMS_v1 *node_params)
{
        CUDA_KERNEL_NODE_PARAMS p;
        CUresult r = cuGraphKernelNodeGetParams_v2(node, &p);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params)
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(node_params, &p,
               sizeof(*node_params)); /* the newer struct begins with the older one */
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemsetNodeSetParams(CUgraphNode node,
                                           const CUDA_MEMSET_NODE_PARAMS *node_params)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_MEMSET, node_params);

        return r != CUDA_SUCCESS ? r : graph_set_work(node_params, &node->work);
}

EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *node_params)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_HOST, node_params);

        if (r == CUDA_SUCCESS)
                *node_params = (CUDA_HOST_NODE_PARAMS){node->work.host.fn, node->work.host.data};
        return r;
}

EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *node_params)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_HOST, node_params);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params->fn)
                return CUDA_ERROR_INVALID_VALUE;
        node->work.host.fn = node_params->fn;
        node->work.host.data = node_params->userData;
        return CUDA_SUCCESS;
}

/* ---- edges ---- */

static void edge_remove(CUgraphNode to, CUgraphNode from)
{
        for (size_t i = 0; i < to->afters; i++)
                if (to->after[i] == from) {
                        to->afters--;
                        memmove(&to->after[i], &to->after[i + 1],
                                (to->afters - i) * sizeof(to->after[0]));
                        return;
                }
}

EXPORT CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                          const CUgraphNode *to, size_t dependency_count)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (dependency_count && (!from || !to))
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        for (size_t i = 0; i < dependency_count; i++)
                if (to[i] && to[i]->magic == MAGIC_NODE)
                        edge_remove(to[i], from[i]);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphDestroyNode(CUgraphNode node)
{
        CUresult r = node_enter(__func__, node);
        CUgraph g;

        if (r != CUDA_SUCCESS)
                return r;
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
                return CUDA_ERROR_NOT_SUPPORTED;
        pthread_mutex_lock(&sim.lock);
        g = node->graph;
        for (size_t i = 0; i < g->nodes;) {
                edge_remove(g->node[i], node);
                if (g->node[i] != node) {
                        i++;
                        continue;
                }
                g->nodes--;
                memmove(&g->node[i], &g->node[i + 1], (g->nodes - i) * sizeof(g->node[0]));
        }
        graph_node_free(node);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                size_t *edge_count)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        size_t n = 0;

        if (r != CUDA_SUCCESS)
                return r;
        if (!graph || graph->magic != MAGIC_GRAPH || !edge_count || !from != !to)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < graph->nodes; i++)
                for (size_t k = 0; k < graph->node[i]->afters; k++, n++)
                        if (from && n < *edge_count) {
                                from[n] = graph->node[i]->after[k];
                                to[n] = graph->node[i];
                        }
        if (!from || n < *edge_count)
                *edge_count = n;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependent_nodes,
                                             size_t *dependent_node_count)
{
        CUresult r = node_enter(__func__, node);
        size_t n = 0;

        if (r != CUDA_SUCCESS)
                return r;
        if (!dependent_node_count)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < node->graph->nodes; i++) {
                CUgraphNode o = node->graph->node[i];

                for (size_t k = 0; k < o->afters; k++)
                        if (o->after[k] == node) {
                                if (dependent_nodes && n < *dependent_node_count)
                                        dependent_nodes[n] = o;
                                n++;
                        }
        }
        if (!dependent_nodes || n < *dependent_node_count)
                *dependent_node_count = n;
        return CUDA_SUCCESS;
}
