/* measure.c: a fake of measure.h for unit tests: notes the last call, and measures nothing. */
#include "measure.h"

#include <string.h>

struct measure_fake measure_fake;

static void note(const char *call, const struct measure_call *m, const uint64_t *numbers, size_t n)
{
        measure_fake.call = call;
        measure_fake.stream = m->stream;
        measure_fake.work = m->work;
        measure_fake.launches_graph = m->launches_graph;
        memset(measure_fake.numbers, 0, sizeof(measure_fake.numbers));
        for (size_t i = 0; i < n; i++)
                measure_fake.numbers[i] = numbers[i];
        measure_fake.begun++;
}
#define NOTE(call, m, ...)                             \
        note(call, m, (const uint64_t[]){__VA_ARGS__}, \
             sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define NUMBER(handle) ((uint64_t)(uintptr_t)(handle))

void measure_context_dies(CUcontext context)
{
}

void measure_other(struct measure_call *m, ...)
{
        NOTE("other", m, 0);
}

void measure_kernel(struct measure_call *m, CUfunction func, unsigned int grid_x,
                    unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                    unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, ...)
{
        NOTE("kernel", m, NUMBER(func), grid_x, grid_y, grid_z, block_x, block_y, block_z,
             shared_bytes);
}

void measure_launch(struct measure_call *m, const CUlaunchConfig *config, CUfunction func,
                    void **params, void **extra)
{
        NOTE("launch", m, NUMBER(config), NUMBER(func));
}

void measure_graph(struct measure_call *m, CUgraphExec exec, CUstream stream)
{
        NOTE("graph", m, NUMBER(exec));
}

void measure_instantiate(struct measure_call *m, CUgraphExec *ret_exec, CUgraph graph, ...)
{
        NOTE("instantiate", m, NUMBER(ret_exec), NUMBER(graph));
}

void measure_to_device(struct measure_call *m, CUdeviceptr to, const void *from, size_t bytes, ...)
{
        NOTE("to device", m, to, bytes);
}

void measure_to_host(struct measure_call *m, void *to, CUdeviceptr from, size_t bytes, ...)
{
        NOTE("to host", m, from, bytes);
}

void measure_either(struct measure_call *m, CUdeviceptr to, CUdeviceptr from, size_t bytes, ...)
{
        NOTE("either", m, to, from, bytes);
}

void measure_copy_2d(struct measure_call *m, const CUDA_MEMCPY2D *copy, ...)
{
        NOTE("2d", m, NUMBER(copy));
}

void measure_copy_3d(struct measure_call *m, const CUDA_MEMCPY3D *copy, ...)
{
        NOTE("3d", m, NUMBER(copy));
}

void measure_after(struct measure_call *m, CUresult result)
{
        measure_fake.result = result;
        measure_fake.ended++;
}
