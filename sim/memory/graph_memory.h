/* graph_memory.h: memory that belongs to a graph. Nodes allocate and free it, at an address that is
 * known when the node is made. All functions need sim.lock unless said otherwise. */
#pragma once

#include "sim/call/objects.h"

struct graph_memory;

/* Both functions add a node that allocates or frees memory to the graph of a capturing stream. */
CUresult graph_memory_capture(CUstream s, unsigned device, uint64_t bytes, CUdeviceptr *ret_ptr);
CUresult graph_memory_capture_free(CUstream s, CUdeviceptr ptr);
/* True for addresses of a graph's memory, backed or not. Takes sim.lock itself. */
bool graph_memory_holds(uint64_t at, uint64_t bytes);
/* Frees memory by a call outside its graph. Returns false if it is not a graph's memory. */
bool graph_memory_free(CUdeviceptr ptr, CUresult *ret_result);

/* Claims the memory for an instance of its graph. Returns false if another instance exists. */
bool graph_memory_own(struct graph_memory *m);
void graph_memory_disown(struct graph_memory *m);

/* True if the memory of an earlier launch is not freed yet. */
bool graph_memory_left(const struct graph_memory *m);
/* Must precede a launch. Returns an error if there is too little memory, so that the call fails and
 * not its work later. Memory that another graph uses now counts as available, because the work may
 * take it over. Takes its locks itself. */
CUresult graph_memory_room(struct graph_memory *m);
void graph_memory_launched(struct graph_memory *m, bool freed);

/* Runs the work of a node. Takes its locks itself. */
CUresult graph_memory_run(struct graph_memory *m, bool allocate);
