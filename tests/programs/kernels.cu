// kernels.cu: the device side of the test programs. regenerate.sh makes kernels.ptx from it, which is
// embedded in the programs, so that their build does not need nvcc.
#include <stdint.h>

#include "pattern.h"

struct verdict {
        unsigned long long mismatches;
        unsigned long long sum;       // of all words read, modulo 2^64
        unsigned long long first_bad; // lowest pattern address that was wrong; all ones if none was
};

static __device__ __forceinline__ void report(struct verdict *v, unsigned long long bad,
                                              unsigned long long sum, unsigned long long first)
{
        if (bad) {
                atomicAdd(&v->mismatches, bad);
                atomicMin(&v->first_bad, first);
        }
        atomicAdd(&v->sum, sum);
}

// Writes the pattern. origin: the pattern's address of the first word.
extern "C" __global__ void fill(uint64_t *base, uint64_t words, uint64_t origin, uint64_t key)
{
        uint64_t step = (uint64_t)gridDim.x * blockDim.x;

        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
                base[i] = pattern_word(origin + 8 * i, key);
}

// Compares memory with the pattern.
extern "C" __global__ void verify(const uint64_t *base, uint64_t words, uint64_t origin,
                                  uint64_t key, struct verdict *v)
{
        uint64_t step = (uint64_t)gridDim.x * blockDim.x;
        unsigned long long bad = 0, sum = 0, first = ~0ull;

        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
                uint64_t x = base[i];

                sum += x;
                if (x != pattern_word(origin + 8 * i, key)) {
                        if (!bad)
                                first = origin + 8 * i;
                        bad++;
                }
        }
        report(v, bad, sum, first);
}

// Compares memory with one round's pattern and writes the next round's, in one pass.
extern "C" __global__ void step(uint64_t *base, uint64_t words, uint64_t origin,
                                uint64_t key, uint64_t next_key, struct verdict *v)
{
        uint64_t step = (uint64_t)gridDim.x * blockDim.x;
        unsigned long long bad = 0, sum = 0, first = ~0ull;

        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
                uint64_t x = base[i];

                sum += x;
                if (x != pattern_word(origin + 8 * i, key)) {
                        if (!bad)
                                first = origin + 8 * i;
                        bad++;
                }
                base[i] = pattern_word(origin + 8 * i, next_key);
        }
        report(v, bad, sum, first);
}

// x = 3x + addend: the result depends on the old value, so a lost or repeated launch shows.
extern "C" __global__ void advance(uint64_t *base, uint64_t words, uint64_t addend)
{
        uint64_t step = (uint64_t)gridDim.x * blockDim.x;

        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
                base[i] = base[i] * 3 + addend;
}

// to[i] += from[i]
extern "C" __global__ void add(uint64_t *to, const uint64_t *from, uint64_t words)
{
        uint64_t step = (uint64_t)gridDim.x * blockDim.x;

        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step)
                to[i] += from[i];
}

// Keeps the GPU busy for that time, then adds 1 to *counter.
extern "C" __global__ void spin(uint64_t ns, unsigned long long *counter)
{
        uint64_t start, now;

        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
        do {
                asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        } while (now - start < ns);
        if (blockIdx.x == 0 && threadIdx.x == 0)
                atomicAdd(counter, 1ull);
}

// Runs for that time, and writes when it began and ended by the GPU's clock.
extern "C" __global__ void stamp(uint64_t ns, uint64_t *out)
{
        uint64_t start, now;

        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
        do {
                asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        } while (now - start < ns);
        out[0] = start;
        out[1] = now;
}

// Waits for a value that another stream, the host or another process writes, then writes an answer. After
// most_ns it waits no longer, and adds 1 to *late.
extern "C" __global__ void await(const volatile uint32_t *flag, uint32_t value,
                                 volatile uint32_t *answer, uint32_t answer_value, uint64_t most_ns,
                                 unsigned *late)
{
        uint64_t start, now;
        bool came = false;

        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
        do {
                came = *flag == value;
                asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        } while (!came && now - start < most_ns);
        if (!came)
                *late += 1;
        if (answer) {
                __threadfence_system();
                *answer = answer_value;
        }
}

// The smallest kernel that can still be counted.
extern "C" __global__ void tiny(unsigned *counter)
{
        if (threadIdx.x == 0)
                *counter += 1;
}

// Adds up words by shuffles within a warp and shared memory between warps. The last block adds up the
// blocks' results in `partial`. out[0]: the sum; out[1]: the number of odd words. *done must be 0.
extern "C" __global__ void reduce(const uint64_t *base, uint64_t words, uint64_t *partial,
                                  unsigned *done, uint64_t *out)
{
        extern __shared__ uint64_t dynamic_shared[]; // one word for each warp
        __shared__ unsigned odd, last;
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
        uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
        uint64_t sum = 0;
        unsigned seen = 0;

        if (threadIdx.x == 0)
                odd = 0;
        __syncthreads();
        // The loop bound is the same for a whole warp, because all its threads must vote.
        for (uint64_t at = (uint64_t)blockIdx.x * blockDim.x; at < words; at += stride) {
                uint64_t i = at + threadIdx.x;
                uint64_t x = i < words ? base[i] : 0;
                unsigned vote = __ballot_sync(0xffffffffu, x & 1);

                sum += x;
                if (lane == 0)
                        seen += __popc(vote);
        }
        for (int offset = 16; offset > 0; offset /= 2)
                sum += __shfl_down_sync(0xffffffffu, sum, offset);
        if (lane == 0) {
                dynamic_shared[warp] = sum;
                atomicAdd(&odd, seen);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
                uint64_t total = 0;

                for (unsigned w = 0; w < warps; w++)
                        total += dynamic_shared[w];
                partial[2 * blockIdx.x] = total;
                partial[2 * blockIdx.x + 1] = odd;
                __threadfence();
                last = atomicAdd(done, 1) == gridDim.x - 1;
        }
        __syncthreads();
        if (last && threadIdx.x == 0) {
                volatile uint64_t *p = partial;
                uint64_t total = 0, odds = 0;

                for (unsigned b = 0; b < gridDim.x; b++) {
                        total += p[2 * b];
                        odds += p[2 * b + 1];
                }
                out[0] = total;
                out[1] = odds;
        }
}
