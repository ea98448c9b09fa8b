/* macros.h: small macros and inline functions that every module uses. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* MIN and MAX evaluate each argument once. The numbers in the names of their variables let the
 * macros nest without shadowing. */
#define CONCAT_(a, b) a##b
#define CONCAT(a, b)  CONCAT_(a, b)
#define PICK_(a, b, op, x, y)        \
        ({                           \
                __auto_type x = (a); \
                __auto_type y = (b); \
                x op y ? x : y;      \
        })
#define MIN(a, b)                       PICK_(a, b, <, CONCAT(_pick_, __COUNTER__), CONCAT(_pick_, __COUNTER__))
#define MAX(a, b)                       PICK_(a, b, >, CONCAT(_pick_, __COUNTER__), CONCAT(_pick_, __COUNTER__))
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define likely(x)     __builtin_expect(!!(x), 1)
#define unlikely(x)   __builtin_expect(!!(x), 0)
#define NOINLINE      __attribute__((noinline))
#define ALWAYS_INLINE __attribute__((always_inline)) inline

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Rounds up to a multiple of align, a power of two. Saturates at the largest aligned value instead
 * of wrapping. */
static inline uint64_t align_up(uint64_t v, uint64_t align)
{
        if (v > UINT64_MAX - (align - 1))
                return UINT64_MAX & ~(align - 1);
        return (v + align - 1) & ~(align - 1);
}

/* Returns a - b, or 0 where that would be negative: byte counts never wrap. */
static inline uint64_t sub_sat(uint64_t a, uint64_t b)
{
        return a > b ? a - b : 0;
}

static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
        return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
