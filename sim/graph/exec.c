/* exec.c: instantiated graphs. A program is the list of the nodes in an order that respects every
 * edge. It is computed once and launched many times. A launch keeps the program with which it
 * began, so a change of the executable graph during a launch makes a new program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/graph/node.h"
#include "sim/graph/program.h"
#include "sim/queue/capture.h"
#include "sim/stream/copy.h"
#include "sim/queue/graph.h"
#include "sim/memory/graph_memory.h"
#include "sim/kernel/launch.h"
#include "sim/queue/stream.h"

struct step {
        struct work work;
        CUgraphNode node; /* the node of the source graph: compared, never dereferenced */
        bool disabled;
};

struct program {
        _Atomic unsigned users;
        struct step *step;
        size_t steps, room;
        CUgraphNode refused; /* the node for which the graph cannot be instantiated; NULL: none */
};

struct CUgraphExec_st {
        uint32_t magic;
        struct program *program;
        uint64_t flags;
        struct point last; /* the last launch, for which the next launch waits */
        struct CUgraphExec_st *next, **link;
};

static struct CUgraphExec_st *exec_all;

struct program *program_retain(struct program *p)
{
        atomic_fetch_add(&p->users, 1);
        return p;
}

void program_release(struct program *p)
{
        if (!p || atomic_fetch_sub(&p->users, 1) != 1)
                return;
        for (size_t i = 0; i < p->steps; i++)
                work_clear(&p->step[i].work);
        free(p->step);
        free(p);
}

CUresult program_run(CUcontext c, struct program *p)
{
        CUresult r = CUDA_SUCCESS;

        for (size_t i = 0; i < p->steps && r == CUDA_SUCCESS && !context_cancelled(c); i++)
                if (!p->step[i].disabled)
                        r = work_run(c, &p->step[i].work);
        return r;
}

static struct program *program_new(void)
{
        struct program *p = calloc(1, sizeof(*p));

        if (p)
                atomic_init(&p->users, 1);
        return p;
}

static CUresult program_add(struct program *p, const struct work *w, CUgraphNode node,
                            bool disabled)
{
        struct work clone;
        CUresult r;

        if (p->steps == p->room) {
                size_t room = p->room ? 2 * p->room : 32;
                struct step *more = reallocarray(p->step, room, sizeof(*more));

                if (!more)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                p->step = more;
                p->room = room;
        }
        r = work_clone(w, &clone);
        if (r == CUDA_SUCCESS)
                p->step[p->steps++] = (struct step){clone, node, disabled};
        return r;
}

/* Returns a node that the body of a conditional node must not have. Such a node can be added, but
 * the graph cannot be instantiated. */
static CUgraphNode body_refused(CUgraph body)
{
        CUgraphNode refused = NULL;

        for (size_t i = 0; i < body->nodes && !refused; i++) {
                CUgraphNode n = body->node[i];

                if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                    n->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
                        refused = n;
                else if (n->child)
                        refused = body_refused(n->child);
        }
        return refused;
}

static CUresult program_add_graph(struct program *p, CUgraph g);

static CUresult program_add_node(struct program *p, CUgraphNode n)
{
        if (n->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
                p->refused = body_refused(n->child);
                if (p->refused)
                        return CUDA_ERROR_INVALID_VALUE;
                if (!n->runs)
                        return CUDA_SUCCESS;
        }
        return n->child ? program_add_graph(p, n->child) : program_add(p, &n->work, n, false);
}

/* Adds the nodes of g, each after its predecessors, otherwise in the order in which they were added
 * to the graph. Needs sim.lock. */
static CUresult program_add_graph(struct program *p, CUgraph g)
{
        size_t done = 0, before;

        for (size_t i = 0; i < g->nodes; i++)
                g->node[i]->mark = 0;
        do {
                before = done;
                for (size_t i = 0; i < g->nodes; i++) {
                        CUgraphNode n = g->node[i];
                        bool ready = !n->mark;
                        CUresult r;

                        for (size_t k = 0; k < n->afters && ready; k++)
                                ready = n->after[k]->mark;
                        if (!ready)
                                continue;
                        r = program_add_node(p, n);
                        if (r != CUDA_SUCCESS)
                                return r;
                        n->mark = 1;
                        done++;
                }
        } while (done != before);
        return done == g->nodes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* a cycle */
}

/* Checks that the memory of copies and fills exists when a graph is instantiated. */
static CUresult program_check(const struct program *p)
{
        CUresult r = CUDA_SUCCESS;

        for (size_t i = 0; i < p->steps && r == CUDA_SUCCESS; i++) {
                const struct work *w = &p->step[i].work;

                if (w->kind == WORK_COPY)
                        r = copy_check(&w->copy, true);
                else if (w->kind == WORK_SET)
                        r = set_check(&w->set, true);
        }
        return r;
}

/* Reserves the graph's memory for this instance: a graph that allocates memory has at most one
 * instance at a time. Only the first node can fail, so there is nothing to undo. Needs sim.lock. */
static CUresult program_own_memory(const struct program *p)
{
        for (size_t i = 0; i < p->steps; i++)
                if (p->step[i].work.kind == WORK_GRAPH_ALLOC &&
                    !graph_memory_own(p->step[i].work.memory))
                        return CUDA_ERROR_NOT_SUPPORTED;
        return CUDA_SUCCESS;
}

static void program_disown_memory(const struct program *p)
{
        for (size_t i = 0; i < p->steps; i++)
                if (p->step[i].work.kind == WORK_GRAPH_ALLOC)
                        graph_memory_disown(p->step[i].work.memory);
}

/* ---- instances ---- */

static CUresult instantiate(const char *function, CUgraphExec *ret_exec, CUgraph graph,
                            uint64_t flags, CUgraphNode *ret_refused)
{
        CUgraphExec e;
        CUresult r = api_enter(function, API_CONTEXT, NULL);

        *ret_refused = NULL;
        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_exec || !graph || graph->magic != MAGIC_GRAPH)
                return CUDA_ERROR_INVALID_VALUE;
        if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
                return CUDA_ERROR_NOT_SUPPORTED;
        e = calloc(1, sizeof(*e));
        if (!e)
                return CUDA_ERROR_OUT_OF_MEMORY;
        e->magic = MAGIC_EXEC;
        e->flags = flags;
        e->program = program_new();
        pthread_mutex_lock(&sim.lock);
        r = e->program ? program_add_graph(e->program, graph) : CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&sim.lock);
        if (r == CUDA_SUCCESS)
                r = program_check(e->program);
        pthread_mutex_lock(&sim.lock);
        if (r == CUDA_SUCCESS)
                r = program_own_memory(e->program);
        if (r == CUDA_SUCCESS) {
                e->next = exec_all;
                e->link = &exec_all;
                if (e->next)
                        e->next->link = &e->next;
                exec_all = e;
        }
        pthread_mutex_unlock(&sim.lock);
        if (r != CUDA_SUCCESS) {
                *ret_refused = e->program ? e->program->refused : NULL;
                program_release(e->program);
                free(e);
                return r;
        }
        *ret_exec = e;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph,
                                            unsigned long long flags)
{
        CUgraphNode refused;

        return instantiate(__func__, ret_exec, graph, flags, &refused);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *ret_exec, CUgraph graph,
                                      CUgraphNode *ret_error_node, char *log_buffer,
                                      size_t buffer_size)
{
        CUgraphNode refused;
        CUresult r = instantiate(__func__, ret_exec, graph, 0, &refused);

        if (ret_error_node)
                *ret_error_node = refused;
        if (log_buffer && buffer_size)
                (void)snprintf(log_buffer, buffer_size, "%s",
                               r == CUDA_SUCCESS ? "" : "the graph cannot be ordered");
        return r;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *ret_exec, CUgraph graph,
                                   CUgraphNode *ret_error_node, char *log_buffer,
                                   size_t buffer_size)
{
        return cuGraphInstantiate_v2(ret_exec, graph, ret_error_node, log_buffer, buffer_size);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *ret_exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params)
{
        CUgraphNode refused;
        CUresult r;

        if (!instantiate_params)
                return CUDA_ERROR_INVALID_VALUE;
        r = instantiate(__func__, ret_exec, graph, instantiate_params->flags, &refused);
        instantiate_params->hErrNode_out = refused;
        instantiate_params->result_out =
                refused             ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                : r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                    : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
        return r;
}

static bool exec_valid(CUgraphExec e)
{
        return e && e->magic == MAGIC_EXEC;
}

EXPORT CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!exec_valid(exec) || !flags)
                return CUDA_ERROR_INVALID_VALUE;
        *flags = exec->flags;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!exec_valid(exec))
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        *exec->link = exec->next;
        if (exec->next)
                exec->next->link = exec->link;
        exec->magic = 0;
        program_disown_memory(exec->program);
        pthread_mutex_unlock(&sim.lock);
        program_release(exec->program); /* launches in progress hold their own reference */
        free(exec);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphUpload(CUgraphExec graph, CUstream stream)
{
        struct work w = {.kind = WORK_EMPTY};
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        return exec_valid(graph) ? stream_submit(stream, &w, NULL, 0) : CUDA_ERROR_INVALID_VALUE;
}

static bool program_allocates(const struct program *p, size_t before, const struct graph_memory *m)
{
        for (size_t i = 0; i < before; i++)
                if (p->step[i].work.kind == WORK_GRAPH_ALLOC && p->step[i].work.memory == m)
                        return true;
        return false;
}

/* Checks a launch. If the previous launch left memory allocated, the program must have freed that
 * memory. frees: this launch frees it. Memory that this launch frees must exist. Needs sim.lock. */
static CUresult program_memory_check(const struct program *p, bool frees)
{
        for (size_t i = 0; i < p->steps; i++) {
                const struct work *w = &p->step[i].work;

                if (w->kind == WORK_GRAPH_ALLOC && graph_memory_left(w->memory) && !frees)
                        return CUDA_ERROR_INVALID_VALUE;
                if (w->kind == WORK_GRAPH_FREE && !graph_memory_left(w->memory) &&
                    !program_allocates(p, i, w->memory))
                        return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
}

static CUresult program_memory_room(const struct program *p)
{
        CUresult r = CUDA_SUCCESS;

        for (size_t i = 0; i < p->steps && r == CUDA_SUCCESS; i++)
                if (p->step[i].work.kind == WORK_GRAPH_ALLOC)
                        r = graph_memory_room(p->step[i].work.memory);
        return r;
}

static void program_memory_launched(const struct program *p)
{
        for (size_t i = 0; i < p->steps; i++) {
                bool freed = p->step[i].work.kind == WORK_GRAPH_FREE;

                if (freed || p->step[i].work.kind == WORK_GRAPH_ALLOC)
                        graph_memory_launched(p->step[i].work.memory, freed);
        }
}

EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
        struct work w;
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!exec_valid(graph))
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        w = (struct work){.kind = WORK_GRAPH, .program = program_retain(graph->program)};
        if (!stream->capture) {
                pthread_mutex_unlock(&sim.lock);
                r = program_memory_room(w.program);
                pthread_mutex_lock(&sim.lock);
        }
        if (r != CUDA_SUCCESS) {
                work_clear(&w);
        } else if (stream->capture) {
                r = capture_add(stream, &w);
        } else {
                r = capture_implicit(stream);
                if (r == CUDA_SUCCESS)
                        r = program_memory_check(
                                graph->program,
                                graph->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
                if (r == CUDA_SUCCESS)
                        r = stream_submit_locked(stream, &w, &graph->last, 1, &graph->last);
                else
                        work_clear(&w);
                if (r == CUDA_SUCCESS)
                        program_memory_launched(graph->program);
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* ---- changes ---- */

/* Makes e's program safe to change: replaces it by a copy if a launch still uses it. Needs
 * sim.lock. */
static CUresult exec_own(CUgraphExec e)
{
        struct program *p;

        if (atomic_load(&e->program->users) == 1)
                return CUDA_SUCCESS;
        p = program_new();
        for (size_t i = 0; p && i < e->program->steps; i++) {
                const struct step *s = &e->program->step[i];

                if (program_add(p, &s->work, s->node, s->disabled) != CUDA_SUCCESS) {
                        program_release(p);
                        p = NULL;
                }
        }
        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        program_release(e->program);
        e->program = p;
        return CUDA_SUCCESS;
}

static CUresult exec_change(CUgraphExec e, CUgraphNode node, struct work *w)
{
        CUresult r;

        pthread_mutex_lock(&sim.lock);
        r = exec_valid(e) ? exec_own(e) : CUDA_ERROR_INVALID_VALUE;
        if (r == CUDA_SUCCESS) {
                r = CUDA_ERROR_INVALID_VALUE;
                for (size_t i = 0; i < e->program->steps; i++) {
                        struct step *s = &e->program->step[i];

                        if (s->node != node || s->work.kind != w->kind)
                                continue;
                        work_clear(&s->work);
                        s->work = *w;
                        memset(w, 0, sizeof(*w));
                        r = CUDA_SUCCESS;
                        break;
                }
        }
        pthread_mutex_unlock(&sim.lock);
        work_clear(w);
        return r;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_KERNEL_NODE_PARAMS *node_params)
{
        struct work w;
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r == CUDA_SUCCESS)
                r = graph_kernel_work(node_params, &w);
        return r != CUDA_SUCCESS ? r : exec_change(exec, node, &w);
}

EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS_v1 *node_params)
{
        CUDA_KERNEL_NODE_PARAMS p = {0};

        if (!node_params)
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(&p, node_params,
               sizeof(*node_params)); /* the newer struct begins with the older one */
        return cuGraphExecKernelNodeSetParams_v2(exec, node, &p);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_MEMCPY3D *copy_params, CUcontext ctx)
{
        struct work w = {.kind = WORK_COPY};
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!copy_params)
                return CUDA_ERROR_INVALID_VALUE;
        r = copy_from_3d(copy_params, &w.copy);
        if (r == CUDA_SUCCESS)
                r = copy_check(&w.copy, true);
        return r != CUDA_SUCCESS ? r : exec_change(exec, node, &w);
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_MEMSET_NODE_PARAMS *memset_params,
                                               CUcontext ctx)
{
        struct work w;
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r == CUDA_SUCCESS)
                r = graph_set_work(memset_params, &w);
        return r != CUDA_SUCCESS ? r : exec_change(exec, node, &w);
}

EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                             const CUDA_HOST_NODE_PARAMS *node_params)
{
        struct work w = {.kind = WORK_HOST};
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!node_params || !node_params->fn)
                return CUDA_ERROR_INVALID_VALUE;
        w.host.fn = node_params->fn;
        w.host.data = node_params->userData;
        return exec_change(exec, node, &w);
}

EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int is_enabled)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!exec_valid(exec))
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        r = exec_own(exec);
        if (r == CUDA_SUCCESS) {
                r = CUDA_ERROR_INVALID_VALUE;
                for (size_t i = 0; i < exec->program->steps; i++)
                        if (exec->program->step[i].node == node) {
                                exec->program->step[i].disabled = !is_enabled;
                                r = CUDA_SUCCESS;
                        }
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* Updates an executable graph from a graph of the same shape with other parameters. */
EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                     CUgraphExecUpdateResultInfo *result_info)
{
        struct program *p;
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        bool same;

        if (r != CUDA_SUCCESS)
                return r;
        if (!exec_valid(exec) || !graph || graph->magic != MAGIC_GRAPH || !result_info)
                return CUDA_ERROR_INVALID_VALUE;
        *result_info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
        p = program_new();
        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&sim.lock);
        r = program_add_graph(p, graph);
        same = r == CUDA_SUCCESS && p->steps == exec->program->steps;
        for (size_t i = 0; same && i < p->steps; i++) {
                same = p->step[i].work.kind == exec->program->step[i].work.kind;
                /* The executable graph keeps the nodes' handles from its instantiation. */
                p->step[i].node = exec->program->step[i].node;
        }
        if (same) {
                program_release(exec->program);
                exec->program = p;
        }
        pthread_mutex_unlock(&sim.lock);
        if (!same) {
                program_release(p);
                result_info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
                return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *ret_error_node,
                                  CUgraphExecUpdateResult *ret_update_result)
{
        CUgraphExecUpdateResultInfo info = {0};
        CUresult r = cuGraphExecUpdate_v2(exec, graph, &info);

        if (ret_error_node)
                *ret_error_node = info.errorNode;
        if (ret_update_result)
                *ret_update_result = info.result;
        return r;
}
