/* graph.h: graphs of operations, built by captures and by hand. An instantiated graph becomes a
 * program, which runs the work of its nodes one after the other, in an order that respects every
 * edge. All functions need sim.lock. */
#pragma once

#include "sim/call/objects.h"
#include "sim/queue/work.h"

struct CUgraphNode_st {
        uint32_t magic;
        CUgraph graph;
        CUgraphNodeType type;
        struct work work;
        CUgraph child;                 /* conditional node: its body */
        bool runs;                     /* conditional node: the condition holds */
        struct CUgraphNode_st **after; /* the nodes that precede this one */
        size_t afters;
        void **params; /* the list that cuGraphKernelNodeGetParams() returned */
        unsigned mark; /* scratch value of walks through the graph */
};

struct CUgraph_st {
        uint32_t magic;
        struct CUgraphNode_st **node;
        size_t nodes, room;
        /* The list of all graphs lets leak checkers find those that a program never destroys. */
        struct CUgraph_st *next, **link;
};

#define MAGIC_NODE 0x4e4f4445u

CUgraph graph_new(void); /* NULL: no memory */
void graph_free(CUgraph g);
void graph_node_free(CUgraphNode n); /* no edge may lead to n */
/* Adds a node with its predecessors. Takes over the work, also on failure. */
CUresult graph_add(CUgraph g, CUgraphNodeType type, struct work *w, CUgraphNode const *after,
                   size_t afters, CUgraphNode *ret_node);
/* Adds the nodes of `more` that are not yet in the list. */
int nodes_union(CUgraphNode **list, size_t *count, CUgraphNode const *more, size_t mores);
CUgraphNodeType graph_type_of(const struct work *w);
/* Begins a call about a node of that type. params: the struct that the call reads or fills in. */
CUresult graph_node_enter(const char *function, CUgraphNode n, CUgraphNodeType type,
                          const void *params);
