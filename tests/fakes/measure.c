/* measure.c: a fake of measure.h for unit tests: nothing is measured. */
#include "preload/extra/measure.h"

void measure_context_dies(CUcontext context)
{
}

void measure_other(struct measure_call *m, ...)
{
}

void measure_kernel(struct measure_call *m, CUfunction func, unsigned int grid_x,
                    unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                    unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                    CUstream stream, void **params, void **extra)
{
}

void measure_cooperative(struct measure_call *m, CUfunction func, unsigned int grid_x,
                         unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                         unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                         CUstream stream, void **params)
{
}

void measure_launch(struct measure_call *m, const CUlaunchConfig *config, CUfunction func,
                    void **params, void **extra)
{
}

void measure_graph(struct measure_call *m, CUgraphExec exec, CUstream stream)
{
}

void measure_instantiate(struct measure_call *m, CUgraphExec *ret_exec, CUgraph graph,
                         unsigned long long flags)
{
}

void measure_instantiate_params(struct measure_call *m, CUgraphExec *ret_exec, CUgraph graph,
                                CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
}

void measure_instantiate_log(struct measure_call *m, CUgraphExec *ret_exec, CUgraph graph,
                             CUgraphNode *error_node, char *log, size_t log_bytes)
{
}

void measure_to_device(struct measure_call *m, CUdeviceptr to, const void *from, size_t bytes, ...)
{
}

void measure_to_host(struct measure_call *m, void *to, CUdeviceptr from, size_t bytes, ...)
{
}

void measure_either(struct measure_call *m, CUdeviceptr to, CUdeviceptr from, size_t bytes, ...)
{
}

void measure_copy_2d(struct measure_call *m, const CUDA_MEMCPY2D *copy, ...)
{
}

void measure_copy_3d(struct measure_call *m, const CUDA_MEMCPY3D *copy, ...)
{
}

void measure_after(struct measure_call *m, CUresult result)
{
}
