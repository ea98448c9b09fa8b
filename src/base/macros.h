/* macros.h: small things every module wants. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)                     \
        ({                            \
                __auto_type _a = (a); \
                __auto_type _b = (b); \
                _a < _b ? _a : _b;    \
        })
#define MAX(a, b)                     \
        ({                            \
                __auto_type _a = (a); \
                __auto_type _b = (b); \
                _a > _b ? _a : _b;    \
        })
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* align is a power of two. Saturates at the largest aligned value instead of wrapping. */
static inline uint64_t align_up(uint64_t v, uint64_t align)
{
        if (v > UINT64_MAX - (align - 1))
                return UINT64_MAX & ~(align - 1);
        return (v + align - 1) & ~(align - 1);
}

/* a - b, or 0 where that would be negative: byte counts never wrap. */
static inline uint64_t sub_sat(uint64_t a, uint64_t b)
{
        return a > b ? a - b : 0;
}
