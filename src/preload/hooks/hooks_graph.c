/* hooks_graph.c: nodes of graphs that fill memory. If the program names no context, the driver
 * takes the one that owns the memory. It refuses mapped memory, which no context owns (measured).
 * Our memory is mapped, so these hooks name the owner. Must never change the program's own
 * parameters, nor let a node leave an allocation (bounds.h). */
#include "cuda/cuda_abi.h"
#include "preload/driver/rows.h"
#include "preload/hooks/bounds.h"
#include "preload/hooks/hooks.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"

#define WORK gate_work(DOOR_cuGraphAddNode, 0)
/* Does what a UNIFIED row of cuda_api.def does. */
#define LOOKING(call)                                            \
        ({                                                       \
                struct gate_thread *looks_ = gate_look_begin();  \
                CUresult done_ = HOOKS_SUBMIT(NULL, WORK, call); \
                                                                 \
                gate_look_end(looks_);                           \
                done_;                                           \
        })

/* Returns the context of a node that fills this memory. */
static CUcontext context_for(CUcontext named, CUdeviceptr to)
{
        struct heap_place place;

        (void)core_setup();
        if (named || core_passive())
                return named;
        lock_acquire(&core_lock);
        if (core_find(to, &place) && place.block->kind != BLOCK_ADOPTED)
                named = place.block->owner; /* NULL for memory of a pool, as in the driver */
        lock_release(&core_lock);
        return named;
}

/* Returns the parameters with the context filled in, in *own if they have to differ. */
static CUgraphNodeParams *with_context(CUgraphNodeParams *p, CUgraphNodeParams *own)
{
        if (!p || p->type != CU_GRAPH_NODE_TYPE_MEMSET || p->memset.ctx)
                return p;
        *own = *p;
        own->memset.ctx = context_for(NULL, p->memset.dst);
        return own;
}

CUresult hook_cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, CUgraphNodeParams *params)
{
        CUgraphNodeParams own, *p = with_context(params, &own);

        return !p || bounds_of_node(p)
                       ? LOOKING(real.cuGraphAddNode(node, graph, dependencies, count, p))
                       : CUDA_ERROR_INVALID_VALUE;
}

CUresult hook_cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                const CUgraphEdgeData *data, size_t count,
                                CUgraphNodeParams *params)
{
        CUgraphNodeParams own, *p = with_context(params, &own);

        return !p || bounds_of_node(p)
                       ? LOOKING(real.cuGraphAddNode_v2(node, graph, dependencies, data, count, p))
                       : CUDA_ERROR_INVALID_VALUE;
}

CUresult hook_cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                const CUgraphEdgeData *data, size_t count,
                                CUgraphNodeParams *params)
{
        CUgraphNodeParams own, *p = with_context(params, &own);

        return !p || bounds_of_node(p)
                       ? LOOKING(real.cuGraphAddNode_v3(node, graph, dependencies, data, count, p))
                       : CUDA_ERROR_INVALID_VALUE;
}

CUresult hook_cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                                   const CUgraphNode *dependencies, size_t count,
                                   const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
        const CUcontext c = params ? context_for(ctx, params->dst) : ctx;

        if (params && !bounds_of_set(params))
                return CUDA_ERROR_INVALID_VALUE;
        return HOOKS_SUBMIT(NULL, WORK,
                            real.cuGraphAddMemsetNode(node, graph, dependencies, count, params, c));
}
