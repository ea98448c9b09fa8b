/* graphbuild: graph.c with a graph that is built node by node. */
#define GRAPH_BUILT
#include "graph.c"
