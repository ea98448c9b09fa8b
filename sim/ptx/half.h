/* half.h: arithmetic on 16-bit floats, and every conversion that cvt can name, for one lane.
 *
 * Pure functions; they honour the thread's rounding mode, which lanes.c sets with fesetround(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sim/ptx/internal.h"

enum testp_kind {
        TESTP_FINITE,
        TESTP_INFINITE,
        TESTP_NUMBER,
        TESTP_NOTANUMBER,
        TESTP_NORMAL,
        TESTP_SUBNORMAL
};

/* How a float is rounded to an integral value: by the current mode or in a fixed direction. */
enum integral_kind { INTEGRAL_NONE, INTEGRAL_NEAREST, INTEGRAL_ZERO, INTEGRAL_DOWN, INTEGRAL_UP };

/* The kinds of comparison, in the order of ops.def. */
enum compare_kind {
        COMPARE_EQ,
        COMPARE_NE,
        COMPARE_LT,
        COMPARE_LE,
        COMPARE_GT,
        COMPARE_GE,
        COMPARE_EQU,
        COMPARE_NEU,
        COMPARE_LTU,
        COMPARE_LEU,
        COMPARE_GTU,
        COMPARE_GEU,
        COMPARE_NUM,
        COMPARE_NAN,
        COMPARE_KINDS
};

enum half_kind { HALF_ADD, HALF_SUB, HALF_MUL, HALF_FMA, HALF_MIN, HALF_MAX, HALF_NEG, HALF_ABS };

static inline uint32_t half_bits_of(float f)
{
        uint32_t u;

        memcpy(&u, &f, sizeof(u));
        return u;
}

static inline float half_float_of(uint32_t u)
{
        float f;

        memcpy(&f, &u, sizeof(f));
        return f;
}

/* Both functions convert one half. type: TYPE_f16, TYPE_bf16, or the x2 type that holds the
 * half. */
float ptx_half_to_float(enum ptx_type type, uint16_t h);
uint16_t ptx_half_from_double(enum ptx_type type, double v);

bool ptx_compare_float(unsigned compare_kind, float a, float b);

/* Computes one or two halves at once. flags: FLAG_SAT or 0. */
uint32_t ptx_half_arithmetic(enum ptx_type type, unsigned half_kind, unsigned flags,
                             const uint32_t v[3]);

/* Converts a lane's bits from type `from` to type `to`. Narrow integers are extended to the whole
 * lane by their own sign. flags: FLAG_SAT, FLAG_FTZ. */
uint64_t ptx_convert(enum ptx_type to, enum ptx_type from, uint64_t bits, unsigned integral_kind,
                     unsigned flags);
