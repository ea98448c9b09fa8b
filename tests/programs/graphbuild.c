/* graphbuild: graph.c, with the graph built node by node. */
#define GRAPH_BUILT
#include "graph.c"
