/* runtime.cuh: what the programs of the runtime API have in common. Each prints its results as JSON
 * lines, in the same order and with the same sums each time, and exits 0. */
#pragma once

#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

#define TRY(call) runtime_check((call), #call, __LINE__)

static inline void runtime_check(cudaError_t r, const char *call, int line)
{
        if (r == cudaSuccess)
                return;
        (void)fprintf(stderr, "line %d: %s: %s\n", line, call, cudaGetErrorString(r));
        _exit(4);
}

static inline void fail(const char *why)
{
        (void)fprintf(stderr, "%s\n", why);
        _exit(1);
}

/* Returns the driver function of this name, in the form that it had in this version of CUDA. */
template <typename F> static inline F *entry(const char *name, unsigned version)
{
        cudaDriverEntryPointQueryResult found;
        void *f = NULL;

        TRY(cudaGetDriverEntryPointByVersion(name, &f, version, cudaEnableDefault, &found));
        if (found != cudaDriverEntryPointSuccess || !f)
                fail(name);
        return (F *)f;
}

/* Returns a hash of the bytes, which depends on their order. */
static inline uint64_t sum_of(const void *memory, size_t bytes)
{
        uint64_t h = 0xcbf29ce484222325u;

        for (size_t i = 0; i < bytes; i++)
                h = (h ^ ((const unsigned char *)memory)[i]) * 0x100000001b3u;
        return h;
}

template <typename T> static inline uint64_t sum_of(const std::vector<T> &v)
{
        return sum_of(v.data(), v.size() * sizeof(T));
}

template <typename T> static inline uint64_t sum_on_card(const T *at, size_t n)
{
        std::vector<T> host(n);

        TRY(cudaMemcpy(host.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost));
        return sum_of(host);
}

/* One write for each line, so that the lines of two processes do not mix. */
static inline void say(const char *name, uint64_t sum)
{
        (void)printf("{\"event\":\"result\",\"name\":\"%s\",\"sum\":\"%016llx\"}\n", name,
                     (unsigned long long)sum);
        (void)fflush(stdout);
}

static inline int done(void)
{
        TRY(cudaDeviceSynchronize());
        (void)printf("{\"event\":\"end\"}\n");
        (void)fflush(stdout);
        return 0;
}

static __global__ void fill(uint32_t *at, size_t n, uint32_t seed)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x)
                at[i] = (uint32_t)i * 2654435761u ^ seed;
}

static __global__ void step(uint32_t *at, size_t n, uint32_t add)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x)
                at[i] = at[i] * 1664525u + add;
}
