/* graph_api.c: graphs and their nodes, built by hand. exec.c makes programs from the graphs. */
#include "sim/graph/node.h"
#include "sim/queue/graph.h"

#include <stdlib.h>
#include <string.h>

#include "sim/stream/copy.h"
#include "sim/kernel/launch.h"
#include "sim/memory/graph_memory.h"
#include "sim/memory/memory.h"
#include "sim/queue/stream.h"

static CUresult graph_enter(const char *function, CUgraph g)
{
        CUresult r = api_enter(function, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        return g && g->magic == MAGIC_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphCreate(CUgraph *ret_graph, unsigned int flags)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_graph || flags)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        *ret_graph = graph_new();
        pthread_mutex_unlock(&sim.lock);
        return *ret_graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
        CUresult r = graph_enter(__func__, graph);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        graph_free(graph);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

static CUresult node_add(CUgraph graph, CUgraphNodeType type, struct work *w,
                         const CUgraphNode *dependencies, size_t count, CUgraphNode *ret_node)
{
        CUresult r;

        if (!ret_node) {
                work_clear(w);
                return CUDA_ERROR_INVALID_VALUE;
        }
        pthread_mutex_lock(&sim.lock);
        r = graph_add(graph, type, w, dependencies, count, ret_node);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

CUresult graph_kernel_work(const CUDA_KERNEL_NODE_PARAMS *p, struct work *ret_work)
{
        CUcontext c;
        CUfunction f;
        CUresult r;

        if (!p)
                return CUDA_ERROR_INVALID_VALUE;
        r = context_check(p->func ? NULL : p->ctx, &c);
        if (r == CUDA_SUCCESS)
                r = function_resolve(c, p->func ? p->func : (CUfunction)(void *)p->kern, &f);
        if (r != CUDA_SUCCESS)
                return r;
        const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
        const unsigned block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};

        return launch_prepare(f, grid, block, p->sharedMemBytes, p->kernelParams, p->extra,
                              ret_work);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *ret_node, CUgraph graph,
                                        const CUgraphNode *dependencies, size_t dependency_count,
                                        const CUDA_KERNEL_NODE_PARAMS *node_params)
{
        struct work w;
        CUresult r = graph_enter(__func__, graph);

        if (r == CUDA_SUCCESS)
                r = graph_kernel_work(node_params, &w);
        return r != CUDA_SUCCESS ? r
                                 : node_add(graph, CU_GRAPH_NODE_TYPE_KERNEL, &w, dependencies,
                                            dependency_count, ret_node);
}

static CUDA_KERNEL_NODE_PARAMS params_of_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
        return (CUDA_KERNEL_NODE_PARAMS){.func = p->func,
                                         .gridDimX = p->gridDimX,
                                         .gridDimY = p->gridDimY,
                                         .gridDimZ = p->gridDimZ,
                                         .blockDimX = p->blockDimX,
                                         .blockDimY = p->blockDimY,
                                         .blockDimZ = p->blockDimZ,
                                         .sharedMemBytes = p->sharedMemBytes,
                                         .kernelParams = p->kernelParams,
                                         .extra = p->extra};
}

EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *ret_node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t dependency_count,
                                     const CUDA_KERNEL_NODE_PARAMS_v1 *node_params)
{
        CUDA_KERNEL_NODE_PARAMS p;

        if (!node_params)
                return CUDA_ERROR_INVALID_VALUE;
        p = params_of_v1(node_params);
        return cuGraphAddKernelNode_v2(ret_node, graph, dependencies, dependency_count, &p);
}

EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                              const CUDA_KERNEL_NODE_PARAMS *node_params)
{
        struct work w;
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_KERNEL, node_params);

        if (r == CUDA_SUCCESS)
                r = graph_kernel_work(node_params, &w);
        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        work_clear(&node->work);
        node->work = w;
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v1 *node_params)
{
        CUDA_KERNEL_NODE_PARAMS p;

        if (!node_params)
                return CUDA_ERROR_INVALID_VALUE;
        p = params_of_v1(node_params);
        return cuGraphKernelNodeSetParams_v2(node, &p);
}

EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *ret_node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t dependency_count,
                                     const CUDA_MEMCPY3D *copy_params, CUcontext ctx)
{
        struct work w = {.kind = WORK_COPY};
        CUresult r = graph_enter(__func__, graph);

        if (r != CUDA_SUCCESS)
                return r;
        if (!copy_params)
                return CUDA_ERROR_INVALID_VALUE;
        r = copy_from_3d(copy_params, &w.copy);
        if (r == CUDA_SUCCESS)
                r = copy_check(&w.copy, true);
        return r != CUDA_SUCCESS ? r
                                 : node_add(graph, CU_GRAPH_NODE_TYPE_MEMCPY, &w, dependencies,
                                            dependency_count, ret_node);
}

EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *node_params)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_MEMCPY, node_params);

        if (r != CUDA_SUCCESS)
                return r;
        copy_to_3d(&node->work.copy, node_params);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *node_params)
{
        struct work_copy w;
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_MEMCPY, node_params);

        if (r != CUDA_SUCCESS)
                return r;
        r = copy_from_3d(node_params, &w);
        if (r == CUDA_SUCCESS)
                r = copy_check(&w, true);
        if (r == CUDA_SUCCESS)
                node->work.copy = w;
        return r;
}

CUresult graph_set_work(const CUDA_MEMSET_NODE_PARAMS *p, struct work *ret_work)
{
        if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) ||
            p->dst % p->elementSize)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_work = (struct work){
                .kind = WORK_SET,
                .set = {p->dst, p->pitch, p->width, p->height, p->value, p->elementSize}};
        return set_check(&ret_work->set, true);
}

/* True if the driver knows the context of a node that fills this memory: the program names a
 * context, or a context owns the memory. No context owns mapped memory, or memory of a pool. */
static bool has_context(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext named)
{
        const struct block *b;
        bool ok;

        if (named || !p || !space_is_device(p->dst) || graph_memory_holds(p->dst, 1))
                return true;
        space_lock_shared();
        b = memory_block(p->dst);
        ok = b && b->context;
        space_unlock();
        return ok;
}

EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *ret_node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t dependency_count,
                                     const CUDA_MEMSET_NODE_PARAMS *memset_params, CUcontext ctx)
{
        struct work w;
        CUresult r = graph_enter(__func__, graph);

        if (r == CUDA_SUCCESS && !has_context(memset_params, ctx))
                r = CUDA_ERROR_INVALID_VALUE;
        if (r == CUDA_SUCCESS)
                r = graph_set_work(memset_params, &w);
        return r != CUDA_SUCCESS ? r
                                 : node_add(graph, CU_GRAPH_NODE_TYPE_MEMSET, &w, dependencies,
                                            dependency_count, ret_node);
}

EXPORT CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *node_params)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_MEMSET, node_params);
        const struct work_set *s;

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params)
                return CUDA_ERROR_INVALID_VALUE;
        s = &node->work.set;
        *node_params = (CUDA_MEMSET_NODE_PARAMS){.dst = s->to,
                                                 .pitch = s->pitch,
                                                 .value = s->value,
                                                 .elementSize = s->element,
                                                 .width = s->width,
                                                 .height = s->height};
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddHostNode(CUgraphNode *ret_node, CUgraph graph,
                                   const CUgraphNode *dependencies, size_t dependency_count,
                                   const CUDA_HOST_NODE_PARAMS *node_params)
{
        struct work w = {.kind = WORK_HOST};
        CUresult r = graph_enter(__func__, graph);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params || !node_params->fn)
                return CUDA_ERROR_INVALID_VALUE;
        w.host.fn = node_params->fn;
        w.host.data = node_params->userData;
        return node_add(graph, CU_GRAPH_NODE_TYPE_HOST, &w, dependencies, dependency_count,
                        ret_node);
}

EXPORT CUresult cuGraphAddEmptyNode(CUgraphNode *ret_node, CUgraph graph,
                                    const CUgraphNode *dependencies, size_t dependency_count)
{
        struct work w = {.kind = WORK_EMPTY};
        CUresult r = graph_enter(__func__, graph);

        return r != CUDA_SUCCESS ? r
                                 : node_add(graph, CU_GRAPH_NODE_TYPE_EMPTY, &w, dependencies,
                                            dependency_count, ret_node);
}

/* Copies a graph with every node and child graph. Needs sim.lock. */
static CUresult graph_copy(CUgraph from, CUgraph *ret_graph)
{
        CUgraph g = graph_new();

        if (!g)
                return CUDA_ERROR_OUT_OF_MEMORY;
        for (size_t i = 0; i < from->nodes; i++) {
                CUgraphNode o = from->node[i], n;
                struct work w;
                CUresult r = work_clone(&o->work, &w);

                if (r == CUDA_SUCCESS)
                        r = graph_add(g, o->type, &w, NULL, 0, &n);
                if (r == CUDA_SUCCESS && o->child)
                        r = graph_copy(o->child, &n->child);
                if (r == CUDA_SUCCESS)
                        n->runs = o->runs;
                if (r != CUDA_SUCCESS) {
                        graph_free(g);
                        return r;
                }
                o->mark = (unsigned)i;
        }
        for (size_t i = 0; i < from->nodes; i++) {
                CUgraphNode o = from->node[i], n = g->node[i];

                for (size_t k = 0; k < o->afters; k++)
                        if (nodes_union(&n->after, &n->afters, &g->node[o->after[k]->mark], 1) <
                            0) {
                                graph_free(g);
                                return CUDA_ERROR_OUT_OF_MEMORY;
                        }
        }
        *ret_graph = g;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphClone(CUgraph *ret_graph_clone, CUgraph original_graph)
{
        CUresult r = graph_enter(__func__, original_graph);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_graph_clone)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        for (size_t i = 0; i < original_graph->nodes && r == CUDA_SUCCESS; i++)
                if (original_graph->node[i]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
                        r = CUDA_ERROR_NOT_SUPPORTED;
        if (r == CUDA_SUCCESS)
                r = graph_copy(original_graph, ret_graph_clone);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode *ret_node, CUgraph graph,
                                         const CUgraphNode *dependencies, size_t dependency_count,
                                         CUgraph child_graph)
{
        struct work w = {.kind = WORK_EMPTY};
        CUgraph copy;
        CUresult r = graph_enter(__func__, graph);

        if (r != CUDA_SUCCESS)
                return r;
        if (!child_graph || child_graph->magic != MAGIC_GRAPH || child_graph == graph || !ret_node)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = graph_copy(child_graph, &copy);
        if (r == CUDA_SUCCESS) {
                r = graph_add(graph, CU_GRAPH_NODE_TYPE_GRAPH, &w, dependencies, dependency_count,
                              ret_node);
                if (r == CUDA_SUCCESS)
                        (*ret_node)->child = copy;
                else
                        graph_free(copy);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *ret_graph)
{
        CUresult r = graph_node_enter(__func__, node, CU_GRAPH_NODE_TYPE_GRAPH, ret_graph);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node->child)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_graph = node->child;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                       const CUgraphNode *to, size_t dependency_count)
{
        CUresult r = graph_enter(__func__, graph);

        if (r != CUDA_SUCCESS)
                return r;
        for (size_t i = 0; i < dependency_count; i++)
                if (!from || !to || !from[i] || !to[i] || from[i]->graph != graph ||
                    to[i]->graph != graph || from[i] == to[i])
                        return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        for (size_t i = 0; i < dependency_count && r == CUDA_SUCCESS; i++)
                if (nodes_union(&to[i]->after, &to[i]->afters, &from[i], 1) < 0)
                        r = CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node || node->magic != MAGIC_NODE || !type)
                return CUDA_ERROR_INVALID_VALUE;
        *type = node->type;
        return CUDA_SUCCESS;
}

/* Returns a list as the driver does: only the count if out is NULL; otherwise as many entries as
 * there is room for, and NULL in the unused ones. */
static void list_out(CUgraphNode const *list, size_t count, CUgraphNode *out, size_t *room)
{
        if (!out) {
                *room = count;
                return;
        }
        for (size_t i = 0; i < *room; i++)
                out[i] = i < count ? list[i] : NULL;
        if (count < *room)
                *room = count;
}

EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *node_count)
{
        CUresult r = graph_enter(__func__, graph);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_count)
                return CUDA_ERROR_INVALID_VALUE;
        list_out(graph->node, graph->nodes, nodes, node_count);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *root_nodes, size_t *root_node_count)
{
        CUgraphNode *roots = NULL;
        size_t count = 0;
        CUresult r = graph_enter(__func__, graph);

        if (r != CUDA_SUCCESS)
                return r;
        if (!root_node_count)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < graph->nodes; i++)
                if (graph->node[i]->afters == 0 &&
                    nodes_union(&roots, &count, &graph->node[i], 1) < 0)
                        return CUDA_ERROR_OUT_OF_MEMORY;
        list_out(roots, count, root_nodes, root_node_count);
        free(roots);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies,
                                           size_t *dependency_count)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node || node->magic != MAGIC_NODE || !dependency_count)
                return CUDA_ERROR_INVALID_VALUE;
        list_out(node->after, node->afters, dependencies, dependency_count);
        return CUDA_SUCCESS;
}
