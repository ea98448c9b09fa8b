/* hash.h: 64-bit FNV-1a (http://www.isthe.com/chongo/tech/comp/fnv/), for names that nobody chooses
 * to collide. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HASH_BASIS UINT64_C(0xcbf29ce484222325)

/* Returns the hash of the bytes that `hash` covers already (HASH_BASIS: none) and of these n
 * bytes. */
static inline uint64_t hash_add(uint64_t hash, const void *bytes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
        return hash;
}
