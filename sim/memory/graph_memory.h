/* graph_memory.h: memory that belongs to a graph: allocated and freed by its nodes, at an address
 * that is known when the node is made. Under sim.lock unless said otherwise. */
#pragma once

#include "sim/call/objects.h"

struct graph_memory;

/* A capturing stream allocates or frees: adds a node. */
CUresult graph_memory_capture(CUstream s, unsigned device, uint64_t bytes, CUdeviceptr *ret_ptr);
CUresult graph_memory_capture_free(CUstream s, CUdeviceptr ptr);
/* True for addresses of a graph's memory, backed or not. Unlocked. */
bool graph_memory_holds(uint64_t at, uint64_t bytes);
/* Freed by a call outside its graph. False: it is not a graph's memory. */
bool graph_memory_free(CUdeviceptr ptr, CUresult *ret_result);

/* An instance of the graph that allocates it begins, if there is none yet; an instance ends. */
bool graph_memory_own(struct graph_memory *m);
void graph_memory_disown(struct graph_memory *m);

/* Before a launch: memory of an earlier launch is still there. */
bool graph_memory_left(const struct graph_memory *m);
/* At a launch: fails for want of memory here, not in the work. Memory that another graph has now
 * may be taken over by the work itself, after that graph's work. Unlocked. */
CUresult graph_memory_room(struct graph_memory *m);
void graph_memory_launched(struct graph_memory *m, bool freed);

/* The nodes' work. Unlocked. */
CUresult graph_memory_run(struct graph_memory *m, bool allocate);
