/* graph_node.c: one entry point for nodes of any type, which calls the entry point of the node's
 * type. Conditional nodes have no other entry point. Nodes for batches of memory operations and
 * events are not supported. */
#include <string.h>

#include "sim/queue/graph.h"

/* True if no edge has a port or a type: only kernels of newer cards use those. */
static bool edges_are_plain(const CUgraphEdgeData *data, size_t count)
{
        static const CUgraphEdgeData plain;

        for (size_t i = 0; data && i < count; i++)
                if (memcmp(&data[i], &plain, sizeof(plain)) != 0)
                        return false;
        return true;
}

static CUDA_MEMSET_NODE_PARAMS memset_of(const CUgraphNodeParams *p)
{
        return (CUDA_MEMSET_NODE_PARAMS){.dst = p->memset.dst,
                                         .pitch = p->memset.pitch,
                                         .value = p->memset.value,
                                         .elementSize = p->memset.elementSize,
                                         .width = p->memset.width,
                                         .height = p->memset.height};
}

/* Kernels cannot set conditions here. So each keeps its default value, and a handle is that value
 * with a bit that tells it from 0. */
#define HANDLE_BIT (UINT64_C(1) << 32)

EXPORT CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *ret_handle, CUgraph graph,
                                               CUcontext ctx, unsigned int default_launch_value,
                                               unsigned int flags)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_handle || !graph || graph->magic != MAGIC_GRAPH ||
            (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT))
                return CUDA_ERROR_INVALID_VALUE;
        *ret_handle = HANDLE_BIT | (flags ? default_launch_value : 0);
        return CUDA_SUCCESS;
}

/* Adds a node that runs its body, an empty graph to begin with, once or never. */
static CUresult add_conditional(CUgraphNode *ret_node, CUgraph graph,
                                const CUgraphNode *dependencies, size_t dependency_count,
                                CUDA_CONDITIONAL_NODE_PARAMS *p)
{
        struct work w = {.kind = WORK_EMPTY};
        CUgraph body;
        CUresult r;

        if (!graph || graph->magic != MAGIC_GRAPH || !(p->handle & HANDLE_BIT))
                return CUDA_ERROR_INVALID_VALUE;
        if (p->type != CU_GRAPH_COND_TYPE_IF || p->size != 1)
                return CUDA_ERROR_NOT_SUPPORTED;
        pthread_mutex_lock(&sim.lock);
        body = graph_new();
        r = body ? graph_add(graph, CU_GRAPH_NODE_TYPE_CONDITIONAL, &w, dependencies,
                             dependency_count, ret_node)
                 : CUDA_ERROR_OUT_OF_MEMORY;
        if (r == CUDA_SUCCESS) {
                (*ret_node)->child = body;
                (*ret_node)->runs = (uint32_t)p->handle != 0;
                p->phGraph_out = &(*ret_node)->child;
        } else if (body) {
                graph_free(body);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *ret_node, CUgraph graph,
                                  const CUgraphNode *dependencies,
                                  const CUgraphEdgeData *dependency_data, size_t dependency_count,
                                  CUgraphNodeParams *node_params)
{
        CUDA_MEMSET_NODE_PARAMS set;
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params || !ret_node)
                return CUDA_ERROR_INVALID_VALUE;
        if (!edges_are_plain(dependency_data, dependency_count))
                return CUDA_ERROR_NOT_SUPPORTED;
        switch (node_params->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
                return cuGraphAddKernelNode_v2(ret_node, graph, dependencies, dependency_count,
                                               &node_params->kernel);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
                return cuGraphAddMemcpyNode(ret_node, graph, dependencies, dependency_count,
                                            &node_params->memcpy.copyParams,
                                            node_params->memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET:
                set = memset_of(node_params);
                return cuGraphAddMemsetNode(ret_node, graph, dependencies, dependency_count, &set,
                                            node_params->memset.ctx);
        case CU_GRAPH_NODE_TYPE_HOST:
                return cuGraphAddHostNode(ret_node, graph, dependencies, dependency_count,
                                          &node_params->host);
        case CU_GRAPH_NODE_TYPE_EMPTY:
                return cuGraphAddEmptyNode(ret_node, graph, dependencies, dependency_count);
        case CU_GRAPH_NODE_TYPE_GRAPH:
                r = cuGraphAddChildGraphNode(ret_node, graph, dependencies, dependency_count,
                                             node_params->graph.graph);
                if (r == CUDA_SUCCESS)
                        (void)cuGraphChildGraphNodeGetGraph(*ret_node, &node_params->graph.graph);
                return r;
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
                return cuGraphAddMemAllocNode(ret_node, graph, dependencies, dependency_count,
                                              &node_params->alloc);
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
                return cuGraphAddMemFreeNode(ret_node, graph, dependencies, dependency_count,
                                             node_params->free.dptr);
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
                return add_conditional(ret_node, graph, dependencies, dependency_count,
                                       &node_params->conditional);
        default:
                return CUDA_ERROR_NOT_SUPPORTED;
        }
}

EXPORT CUresult cuGraphAddNode(CUgraphNode *ret_node, CUgraph graph,
                               const CUgraphNode *dependencies, size_t dependency_count,
                               CUgraphNodeParams *node_params)
{
        return cuGraphAddNode_v2(ret_node, graph, dependencies, NULL, dependency_count,
                                 node_params);
}

EXPORT CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *node_params)
{
        CUDA_MEMSET_NODE_PARAMS set;
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params)
                return CUDA_ERROR_INVALID_VALUE;
        switch (node_params->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
                return cuGraphKernelNodeSetParams_v2(node, &node_params->kernel);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
                return cuGraphMemcpyNodeSetParams(node, &node_params->memcpy.copyParams);
        case CU_GRAPH_NODE_TYPE_MEMSET:
                set = memset_of(node_params);
                return cuGraphMemsetNodeSetParams(node, &set);
        case CU_GRAPH_NODE_TYPE_HOST:
                return cuGraphHostNodeSetParams(node, &node_params->host);
        default:
                return CUDA_ERROR_NOT_SUPPORTED;
        }
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                         CUgraphNodeParams *node_params)
{
        CUDA_MEMSET_NODE_PARAMS set;
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params)
                return CUDA_ERROR_INVALID_VALUE;
        switch (node_params->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
                return cuGraphExecKernelNodeSetParams_v2(exec, node, &node_params->kernel);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
                return cuGraphExecMemcpyNodeSetParams(exec, node, &node_params->memcpy.copyParams,
                                                      node_params->memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET:
                set = memset_of(node_params);
                return cuGraphExecMemsetNodeSetParams(exec, node, &set, node_params->memset.ctx);
        case CU_GRAPH_NODE_TYPE_HOST:
                return cuGraphExecHostNodeSetParams(exec, node, &node_params->host);
        default:
                return CUDA_ERROR_NOT_SUPPORTED;
        }
}
