// standing.cu: a kernel that fills the whole GPU: all multiprocessors, as many registers as a thread can have, all
// shared memory. It runs for --seconds, reads --gib of memory all the time, and counts into a file (--counter) that
// another process may watch. Copies of a gigabyte run beside it (--copies). At the end it prints sums of the memory
// and of the kernel's result, which are the same in every run with as many steps. One JSON object a line.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "try.cuh"

constexpr int THREADS = 256, REGISTERS = 200;
constexpr uint64_t GIB = 1ull << 30;

__device__ __host__ static uint32_t pattern(uint64_t i)
{
        uint64_t x = i * 0x9e3779b97f4a7c15ull + 12345;
        return (uint32_t)(x >> 32) ^ (uint32_t)x;
}

__global__ void fill(uint32_t *memory, uint64_t words)
{
        for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < words; i += (uint64_t)gridDim.x * blockDim.x)
                memory[i] = pattern(i);
}

__global__ void check(const uint32_t *memory, uint64_t words, unsigned long long *wrong)
{
        unsigned long long n = 0;
        for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < words; i += (uint64_t)gridDim.x * blockDim.x)
                n += memory[i] != pattern(i);
        if (n)
                atomicAdd(wrong, n);
}

__global__ void __launch_bounds__(THREADS, 1)
stand(const uint32_t *memory, uint64_t words, uint64_t steps, volatile uint32_t *counter, unsigned long long *sum,
      uint32_t shared_words)
{
        extern __shared__ uint32_t shared[];
        uint32_t r[REGISTERS];
        uint64_t at = (blockIdx.x * (uint64_t)THREADS + threadIdx.x) * 2654435761ull;

#pragma unroll
        for (int i = 0; i < REGISTERS; i++)
                r[i] = pattern(at + i);
        for (uint32_t i = threadIdx.x; i < shared_words; i += THREADS)
                shared[i] = pattern(i + blockIdx.x);
        __syncthreads();
        for (uint64_t step = 0; step < steps; step++) {
#pragma unroll
                for (int i = 0; i < REGISTERS; i++)
                        r[i] = r[i] * 1664525u + r[(i + 1) % REGISTERS];
                at = at * 6364136223846793005ull + 1442695040888963407ull;
                r[0] ^= memory[(at >> 20) % words];
                shared[(threadIdx.x + step * THREADS) % shared_words] += r[1];
                if (blockIdx.x == 0 && threadIdx.x == 0)
                        *counter = (uint32_t)step;
        }
        __syncthreads();
        uint64_t h = 0;
#pragma unroll
        for (int i = 0; i < REGISTERS; i++)
                h = h * 31 + r[i];
        for (uint32_t i = threadIdx.x; i < shared_words; i += THREADS)
                h = h * 31 + shared[i];
        atomicAdd(sum, h);
}

int main(int argc, char **argv)
{
        double seconds = 20, gib = 1;
        int copies = 0, rounds = 1;
        const char *counter_path = NULL, *until = NULL;
        uint64_t steps = 0;
        for (int i = 1; i + 1 < argc; i += 2) {
                if (!strcmp(argv[i], "--seconds")) seconds = atof(argv[i + 1]);
                else if (!strcmp(argv[i], "--gib")) gib = atof(argv[i + 1]);
                else if (!strcmp(argv[i], "--copies")) copies = atoi(argv[i + 1]);
                else if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
                else if (!strcmp(argv[i], "--steps")) steps = strtoull(argv[i + 1], NULL, 10);
                else if (!strcmp(argv[i], "--counter")) counter_path = argv[i + 1];
                else if (!strcmp(argv[i], "--until")) until = argv[i + 1];
        }
        setvbuf(stdout, NULL, _IOLBF, 0);
        uint64_t words = (uint64_t)(gib * GIB) / 4;
        uint32_t *memory, *counter;
        unsigned long long *sums, host[2];
        cudaDeviceProp p;
        cudaStream_t standing, copying;
        TRY(cudaGetDeviceProperties(&p, 0));
        TRY(cudaMalloc(&memory, words * 4));
        TRY(cudaMalloc(&sums, 16));
        TRY(cudaStreamCreateWithFlags(&standing, cudaStreamNonBlocking));
        TRY(cudaStreamCreateWithFlags(&copying, cudaStreamNonBlocking));
        void *page = MAP_FAILED;
        if (counter_path) {
                int fd = open(counter_path, O_RDWR | O_CREAT, 0600);
                if (fd < 0 || ftruncate(fd, 4096) < 0)
                        return 2;
                page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        } else {
                page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        }
        if (page == MAP_FAILED)
                return 2;
        TRY(cudaHostRegister(page, 4096, cudaHostRegisterMapped));
        TRY(cudaHostGetDevicePointer(&counter, page, 0));
        uint32_t shared_bytes = (uint32_t)p.sharedMemPerBlockOptin;
        TRY(cudaFuncSetAttribute(stand, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes));
        cudaFuncAttributes fa;
        TRY(cudaFuncGetAttributes(&fa, stand));
        fill<<<p.multiProcessorCount * 8, 256, 0, standing>>>(memory, words);
        TRY(cudaMemset(sums, 0, 16));
        TRY(cudaStreamSynchronize(standing));
        auto run = [&](uint64_t n) {
                stand<<<p.multiProcessorCount, THREADS, shared_bytes, standing>>>(memory, words, n, counter, sums, shared_bytes / 4);
                TRY(cudaGetLastError());
        };
        if (!steps) { /* finds the number of steps that fill the time */
                cudaEvent_t a, b;
                float ms;
                TRY(cudaEventCreate(&a));
                TRY(cudaEventCreate(&b));
                run(2000);
                TRY(cudaEventRecord(a, standing));
                run(20000);
                TRY(cudaEventRecord(b, standing));
                TRY(cudaStreamSynchronize(standing));
                TRY(cudaEventElapsedTime(&ms, a, b));
                steps = (uint64_t)(20000 * seconds * 1000 / ms);
                TRY(cudaMemset(sums, 0, 16));
        }
        char *pinned = NULL, *there = NULL;
        if (copies) {
                TRY(cudaMallocHost(&pinned, GIB));
                TRY(cudaMalloc(&there, GIB));
                memset(pinned, 7, GIB);
        }
        printf("{\"event\":\"ready\",\"steps\":%llu,\"registers\":%d,\"shared\":%u,\"blocks\":%d}\n", (unsigned long long)steps,
               fa.numRegs, shared_bytes, p.multiProcessorCount);
        for (int round = 0; until ? access(until, F_OK) != 0 : round < rounds; round++) {
                TRY(cudaMemset(sums, 0, 16));
                run(steps);
                for (int i = 0; i < copies; i++)
                        TRY(cudaMemcpyAsync(i % 2 ? pinned : there, i % 2 ? there : pinned, GIB,
                                            i % 2 ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, copying));
                TRY(cudaStreamSynchronize(standing));
                TRY(cudaStreamSynchronize(copying));
                check<<<p.multiProcessorCount * 8, 256, 0, standing>>>(memory, words, sums + 1);
                TRY(cudaMemcpyAsync(host, sums, 16, cudaMemcpyDeviceToHost, standing));
                TRY(cudaStreamSynchronize(standing));
                unsigned long long bad = 0;
                for (uint64_t i = 0; copies && i < GIB; i++)
                        bad += pinned[i] != 7;
                printf("{\"event\":\"round\",\"sum\":\"%016llx\",\"wrong\":%llu}\n", host[0], host[1] + bad);
        }
        printf("{\"event\":\"end\"}\n");
        return 0;
}
