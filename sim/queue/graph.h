/* graph.h: graphs of operations, built by captures and by hand. Under sim.lock. An instantiated
 * graph becomes a program: the work of its nodes in an order that respects every edge, run one
 * after the other. */
#pragma once

#include "sim/call/objects.h"
#include "sim/queue/work.h"

struct CUgraphNode_st {
        uint32_t magic;
        CUgraph graph;
        CUgraphNodeType type;
        struct work work;
        CUgraph child;
        struct CUgraphNode_st **after; /* edges into it */
        size_t afters;
        void **params; /* the list that cuGraphKernelNodeGetParams() returned */
        unsigned mark; /* while ordering */
};

struct CUgraph_st {
        uint32_t magic;
        struct CUgraphNode_st **node;
        size_t nodes, room;
        struct CUgraph_st *next, **link; /* in the list of all graphs, so that leak checkers find
                                            those that a program never destroys */
};

#define MAGIC_NODE 0x4e4f4445u

CUgraph graph_new(void); /* NULL: no memory */
void graph_free(CUgraph g);
void graph_node_free(CUgraphNode n); /* the edges to it gone */
/* Takes the work over, also on failure. */
CUresult graph_add(CUgraph g, CUgraphNodeType type, struct work *w, CUgraphNode const *after,
                   size_t afters, CUgraphNode *ret_node);
/* list ∪ more. */
int nodes_union(CUgraphNode **list, size_t *count, CUgraphNode const *more, size_t mores);
CUgraphNodeType graph_type_of(const struct work *w);
/* The start of a call about a node of that type; params: the struct that it reads or fills in. */
CUresult graph_node_enter(const char *function, CUgraphNode n, CUgraphNodeType type,
                          const void *params);
