/* splitmix.h: splitmix64 (https://prng.di.unimi.it/splitmix64.c): numbers that look random, of a
 * sequence that the seed determines. Pure. */
#pragma once

#include <stdint.h>

#define SPLITMIX_STEP UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t splitmix(uint64_t x)
{
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

static inline uint64_t splitmix_next(uint64_t *state)
{
        return splitmix(*state += SPLITMIX_STEP);
}
