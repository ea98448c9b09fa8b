/* attributes: the runtime's answers about functions, pointers, streams, devices and occupancy, before and
 * after memory has moved. Addresses and free bytes are not printed, because they may differ. */
#include "runtime.cuh"

static __global__ void shared_user(uint32_t *at)
{
        extern __shared__ uint32_t room[];

        room[threadIdx.x] = at[threadIdx.x];
        __syncthreads();
        at[threadIdx.x] += room[blockDim.x - 1 - threadIdx.x];
}

static void pointer(const char *name, const void *p)
{
        cudaPointerAttributes a;
        const char *place;

        TRY(cudaPointerGetAttributes(&a, p));
        place = a.devicePointer == p ? "same" : a.devicePointer ? "other" : "none";
        (void)printf("{\"event\":\"result\",\"name\":\"%s\",\"type\":%d,\"device\":%d,\"card\":\"%s\","
                     "\"host\":%d}\n",
                     name, (int)a.type, a.device, place, a.hostPointer != NULL);
}

int main(void)
{
        uint32_t *at, *pinned, *managed, *small, plain = 0;
        int blocks, grid, block, value;
        cudaDeviceProp properties;
        cudaFuncAttributes f;

        TRY(cudaMalloc(&at, 8 << 20));
        TRY(cudaMalloc(&small, 100));
        TRY(cudaMallocHost(&pinned, 4096));
        TRY(cudaMallocManaged(&managed, 4096));
        TRY(cudaFuncSetAttribute(shared_user, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
        for (unsigned i = 0; i < 30; i++) {
                TRY(cudaMemset(at, 1, 8 << 20));
                shared_user<<<4, 256, 60 << 10>>>(at);
                pointer("card", at);
                pointer("middle", at + 1000000);
                pointer("small", small);
                pointer("pinned", pinned);
                pointer("managed", managed);
                pointer("plain", &plain);
                TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared_user, 256, 32 << 10));
                TRY(cudaOccupancyMaxPotentialBlockSize(&grid, &block, shared_user));
                TRY(cudaFuncGetAttributes(&f, shared_user));
                say("occupancy", (uint64_t)blocks << 32 ^ (uint64_t)grid << 16 ^ (uint64_t)block);
                say("function", (uint64_t)f.numRegs << 32 ^ (uint64_t)f.maxDynamicSharedSizeBytes);
                for (int a = 1; a < 100; a++)
                        if (cudaDeviceGetAttribute(&value, (cudaDeviceAttr)a, 0) == cudaSuccess &&
                            i == 0)
                                say("attribute", (uint64_t)a << 32 ^ (uint32_t)value);
                TRY(cudaGetDeviceProperties(&properties, 0));
                say("properties", sum_of(properties.name, strlen(properties.name)) ^
                                          (uint64_t)properties.multiProcessorCount);
        }
        say("at", sum_on_card(at, 1000));
        return done();
}
