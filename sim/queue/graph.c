/* graph.c: owns graphs and their nodes. */
#include "sim/queue/graph.h"

#include <stdlib.h>
#include <string.h>

static struct CUgraph_st *graph_all;

CUgraph graph_new(void)
{
        CUgraph g = calloc(1, sizeof(*g));

        if (!g)
                return NULL;
        g->magic = MAGIC_GRAPH;
        g->next = graph_all;
        g->link = &graph_all;
        if (g->next)
                g->next->link = &g->next;
        graph_all = g;
        return g;
}

void graph_node_free(CUgraphNode n)
{
        work_clear(&n->work);
        if (n->child)
                graph_free(n->child);
        free(n->after);
        free(n->params);
        n->magic = 0;
        free(n);
}

void graph_free(CUgraph g)
{
        for (size_t i = 0; i < g->nodes; i++)
                graph_node_free(g->node[i]);
        *g->link = g->next;
        if (g->next)
                g->next->link = g->link;
        g->magic = 0;
        free(g->node);
        free(g);
}

int nodes_union(CUgraphNode **list, size_t *count, CUgraphNode const *more, size_t mores)
{
        CUgraphNode *all = reallocarray(*list, *count + mores + 1, sizeof(*all));

        if (!all)
                return -1;
        *list = all;
        for (size_t i = 0; i < mores; i++) {
                size_t k = 0;

                while (k < *count && all[k] != more[i])
                        k++;
                if (k == *count)
                        all[(*count)++] = more[i];
        }
        return 0;
}

CUgraphNodeType graph_type_of(const struct work *w)
{
        switch (w->kind) {
        case WORK_KERNEL:
                return CU_GRAPH_NODE_TYPE_KERNEL;
        case WORK_COPY:
                return CU_GRAPH_NODE_TYPE_MEMCPY;
        case WORK_SET:
                return CU_GRAPH_NODE_TYPE_MEMSET;
        case WORK_HOST:
                return CU_GRAPH_NODE_TYPE_HOST;
        case WORK_GRAPH:
                return CU_GRAPH_NODE_TYPE_GRAPH;
        case WORK_GRAPH_ALLOC:
                return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        case WORK_GRAPH_FREE:
                return CU_GRAPH_NODE_TYPE_MEM_FREE;
        case WORK_WRITE_VALUE:
        case WORK_WAIT_VALUE:
                return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        default:
                return CU_GRAPH_NODE_TYPE_EMPTY;
        }
}

CUresult graph_add(CUgraph g, CUgraphNodeType type, struct work *w, CUgraphNode const *after,
                   size_t afters, CUgraphNode *ret_node)
{
        CUgraphNode n = NULL;

        for (size_t i = 0; i < afters; i++)
                if (!after || !after[i] || after[i]->magic != MAGIC_NODE || after[i]->graph != g) {
                        work_clear(w);
                        return CUDA_ERROR_INVALID_VALUE;
                }
        if (g->nodes == g->room) {
                size_t room = g->room ? 2 * g->room : 16;
                CUgraphNode *more = reallocarray(g->node, room, sizeof(CUgraphNode));

                if (!more)
                        goto no_memory;
                g->node = more;
                g->room = room;
        }
        n = calloc(1, sizeof(*n));
        if (!n || nodes_union(&n->after, &n->afters, after, afters) < 0)
                goto no_memory;
        n->magic = MAGIC_NODE;
        n->graph = g;
        n->type = type;
        n->work = *w;
        memset(w, 0, sizeof(*w));
        g->node[g->nodes++] = n;
        *ret_node = n;
        return CUDA_SUCCESS;

no_memory:
        free(n);
        work_clear(w);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult graph_node_enter(const char *function, CUgraphNode n, CUgraphNodeType type,
                          const void *params)
{
        CUresult r = api_enter(function, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        return n && n->magic == MAGIC_NODE && n->type == type && params ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}
