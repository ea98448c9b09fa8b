/* pattern.h: what every word of a test program's memory must be: a function of address, round and
 * seed.
 *
 * Shared by the kernels (kernels.cu), the programs and the checker, which recomputes it without a
 * GPU. A bijection of the address for a given key, so that blocks that change places, stale blocks
 * and zeroed ones are all seen. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define PATTERN_FUNCTION static __device__ __forceinline__
#else
#define PATTERN_FUNCTION static inline
#endif

/* The addresses that go into the pattern are the program's own: where a program's block number i
 * begins. They are the same in every run, whatever addresses the driver gave, so that runs can be
 * compared. */
PATTERN_FUNCTION uint64_t pattern_origin(uint64_t block)
{
        return (block + 1) << 40;
}

/* The key of a round; computed once a launch, so it may be slow. */
PATTERN_FUNCTION uint64_t pattern_key(uint64_t seed, uint64_t round)
{
        uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + round;

        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

/* The 64-bit word at an address; computed once a word, so it is cheap. */
PATTERN_FUNCTION uint64_t pattern_word(uint64_t address, uint64_t key)
{
        uint64_t x = (address ^ key) * UINT64_C(0x9fb21c651e98df25);

        return (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
}
