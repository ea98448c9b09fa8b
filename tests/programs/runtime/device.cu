/* device: functions inside kernels: printf, malloc and free, a large stack, assertions off, clocks; and
 * the limits of their memory. */
#include "runtime.cuh"

static __global__ void heap(uint32_t **kept, uint32_t *out)
{
        uint32_t *mine = (uint32_t *)malloc(256), sum = 0;

        if (!mine)
                return;
        for (int i = 0; i < 64; i++)
                mine[i] = i * threadIdx.x + blockIdx.x;
        for (int i = 0; i < 64; i++)
                sum += mine[i];
        out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
        if (threadIdx.x == 0 && blockIdx.x < 8)
                kept[blockIdx.x] = mine;
        else
                free(mine);
}

static __global__ void give_back(uint32_t **kept, uint32_t *out)
{
        for (int i = 0; i < 64; i++)
                out[blockIdx.x] += kept[blockIdx.x][i];
        free(kept[blockIdx.x]);
}

static __device__ uint32_t deep(uint32_t n)
{
        volatile uint32_t room[64];

        room[n % 64] = n;
        return n == 0 ? 1 : deep(n - 1) * 3 + room[n % 64];
}

static __global__ void recurse(uint32_t *out)
{
        out[threadIdx.x] = deep(threadIdx.x % 20);
}

static __global__ void talk(unsigned round)
{
        if (threadIdx.x == 0)
                printf("{\"event\":\"text\",\"round\":%u}\n", round);
}

int main(void)
{
        uint32_t *out, **kept;
        size_t limit;

        TRY(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
        TRY(cudaDeviceSetLimit(cudaLimitStackSize, 16 << 10));
        TRY(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
        TRY(cudaMalloc(&out, 1 << 16));
        TRY(cudaMalloc(&kept, 64 * 8));
        TRY(cudaMemset(out, 0, 1 << 16));
        for (unsigned i = 0; i < 30; i++) {
                heap<<<32, 128>>>(kept, out);
                give_back<<<8, 1>>>(kept, out);
                recurse<<<1, 128>>>(out + 8192);
                talk<<<1, 32>>>(i);
                TRY(cudaDeviceSynchronize());
        }
        say("out", sum_on_card(out, 1 << 14));
        TRY(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
        say("stack", limit);
        return done();
}
