/* node.h: turns the parameters of a node into its work. */
#pragma once

#include "sim/queue/graph.h"

CUresult graph_kernel_work(const CUDA_KERNEL_NODE_PARAMS *p, struct work *ret_work);
CUresult graph_set_work(const CUDA_MEMSET_NODE_PARAMS *p, struct work *ret_work);
