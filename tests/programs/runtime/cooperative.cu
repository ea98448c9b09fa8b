/* cooperative: a grid whose blocks wait for one another, clusters with distributed shared memory if the
 * card has them, launches with attributes. */
#include "runtime.cuh"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

static __global__ void reduce(uint32_t *at, size_t n, uint32_t *part)
{
        cg::grid_group grid = cg::this_grid();
        uint32_t sum = 0;

        for (size_t i = grid.thread_rank(); i < n; i += grid.size())
                sum += at[i];
        atomicAdd(&part[blockIdx.x], sum);
        grid.sync();
        if (grid.thread_rank() == 0)
                for (unsigned i = 1; i < gridDim.x; i++)
                        part[0] += part[i];
        grid.sync();
        for (size_t i = grid.thread_rank(); i < n; i += grid.size())
                at[i] ^= part[0];
}

static __global__ void __cluster_dims__(2, 1, 1) neighbours(uint32_t *at)
{
        __shared__ uint32_t mine[256];
        cg::cluster_group cluster = cg::this_cluster();

        mine[threadIdx.x] = at[blockIdx.x * 256 + threadIdx.x];
        cluster.sync();
        at[blockIdx.x * 256 + threadIdx.x] +=
                cluster.map_shared_rank(mine, cluster.block_rank() ^ 1)[255 - threadIdx.x];
        cluster.sync();
}

int main(void)
{
        size_t n = 1 << 20;
        uint32_t *at, *part;
        int cooperative = 0, major = 0;

        TRY(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
        TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
        TRY(cudaMalloc(&at, n * 4));
        TRY(cudaMalloc(&part, 64 * 4));
        fill<<<64, 256>>>(at, n, 3);
        for (unsigned i = 0; i < 60 && cooperative; i++) {
                void *arguments[] = {&at, &n, &part};
                cudaLaunchConfig_t config = {};
                cudaLaunchAttribute attribute = {};

                TRY(cudaMemsetAsync(part, 0, 64 * 4));
                if (i % 2) {
                        TRY(cudaLaunchCooperativeKernel((void *)reduce, 64, 256, arguments));
                } else {
                        attribute.id = cudaLaunchAttributeCooperative;
                        attribute.val.cooperative = 1;
                        config.gridDim = 64;
                        config.blockDim = 256;
                        config.attrs = &attribute;
                        config.numAttrs = 1;
                        TRY(cudaLaunchKernelEx(&config, reduce, at, n, part));
                }
                if (major >= 9)
                        neighbours<<<64, 256>>>(at);
        }
        say("reduced", sum_on_card(at, n));
        return done();
}
