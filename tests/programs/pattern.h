/* pattern.h: the contents of a test program's memory. Each word is a function of address, round and
 * seed.
 *
 * Shared by the kernels (kernels.cu), the programs and the checker, which recomputes it without a
 * GPU. For a given key it is a bijection of the address, so that swapped, stale and zeroed blocks
 * all show. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define PATTERN_FUNCTION static __device__ __forceinline__
#else
#define PATTERN_FUNCTION static inline
#endif

/* Returns the address at which a block with this number begins in the pattern. The pattern does not
 * use the driver's addresses, because runs can be compared only if the pattern is the same. */
PATTERN_FUNCTION uint64_t pattern_origin(uint64_t block)
{
        return (block + 1) << 40;
}

/* Returns the key of a round. It is computed once a launch, so it may be slow. */
PATTERN_FUNCTION uint64_t pattern_key(uint64_t seed, uint64_t round)
{
        uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + round;

        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

/* Returns the 64-bit word at an address. It is computed once a word, so it must be fast. */
PATTERN_FUNCTION uint64_t pattern_word(uint64_t address, uint64_t key)
{
        uint64_t x = (address ^ key) * UINT64_C(0x9fb21c651e98df25);

        return (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
}
