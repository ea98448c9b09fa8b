/* lazy: many kernels, each loaded when it is first used; globals; function attributes. The driver-API
 * programs test libraries that are loaded from an image at run time. */
#include "runtime.cuh"

template <int N> __device__ uint32_t global_of = N;

template <int N> static __global__ void kernel(uint32_t *at)
{
        uint32_t local[N % 7 + 1], mine = at[threadIdx.x];

        for (int i = 0; i <= N % 7; i++)
                local[i] = mine + i * N;
        for (int i = 0; i < 50; i++)
                local[(mine + i) % (N % 7 + 1)] += i;
        at[threadIdx.x] ^= local[mine % (N % 7 + 1)] + global_of<N>;
        __syncthreads();
        if (threadIdx.x == 0)
                global_of<N> += 512;
}

template <int N> static void run(uint32_t *at)
{
        cudaFuncAttributes attributes;

        kernel<N><<<1, 256>>>(at);
        TRY(cudaGetLastError());
        TRY(cudaFuncGetAttributes(&attributes, kernel<N>));
        if (attributes.maxThreadsPerBlock < 256)
                fail("it ran all the same");
        if constexpr (N > 0)
                run<N - 1>(at);
}

int main(void)
{
        uint32_t *at;

        TRY(cudaMalloc(&at, 4096));
        fill<<<1, 256>>>(at, 1024, 9);
        for (unsigned i = 0; i < 4; i++)
                run<60>(at);
        say("kernels", sum_on_card(at, 1024));
        return done();
}
