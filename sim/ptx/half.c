/* half.c: owns the arithmetic that lanes.c does not vectorise, on one number at a time. It must
 * never depend on the warp. */
#include "sim/ptx/half.h"

#include <fenv.h>
#include <math.h>

const struct type_info ptx_type_info[TYPES] = {[TYPE_NONE] = {"", 0, 0},
#define X(name, bits, letter) [TYPE_##name] = {#name, bits, letter},
                                               PTX_TYPES(X)
#undef X
};

static bool is_brain(enum ptx_type t)
{
        return t == TYPE_bf16 || t == TYPE_bf16x2;
}

float ptx_half_to_float(enum ptx_type type, uint16_t h)
{
        uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;

        if (is_brain(type))
                return half_float_of((uint32_t)h << 16);
        if (exponent == 31)
                return half_float_of(sign | 0x7f800000U | fraction << 13);
        if (exponent == 0) {
                float v = (float)fraction * 0x1p-24F;

                return sign ? -v : v;
        }
        return half_float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Rounds |v| to a number of the 16-bit format with the C library's rounding, and takes its fields
 * apart. Numbers of the format near v are 2^(exponent - fraction bits) apart, but never closer than
 * the smallest subnormal. */
uint16_t ptx_half_from_double(enum ptx_type type, double v)
{
        bool brain = is_brain(type);
        int fraction_bits = brain ? 7 : 10, smallest = brain ? -126 : -14, exponent;
        uint16_t sign = __builtin_signbit(v) ? 0x8000 : 0;
        uint16_t infinity = brain ? 0x7f80 : 0x7c00;
        double largest = brain ? 0x1.fep127 : 65504.0, step, rounded;

        if (v != v)
                return 0x7fff;
        if (isinf(v))
                return sign | infinity;
        if (v == 0)
                return sign;
        (void)frexp(v, &exponent);
        exponent = exponent - 1 < smallest ? smallest : exponent - 1;
        step = ldexp(1.0, exponent - fraction_bits);
        rounded = fabs(nearbyint(v / step) * step);
        if (rounded > largest) {
                int mode = fegetround();
                bool to_largest = mode == FE_TOWARDZERO || (mode == FE_DOWNWARD && !sign) ||
                                  (mode == FE_UPWARD && sign);

                return sign | (uint16_t)(infinity - to_largest);
        }
        if (rounded < ldexp(1.0, smallest))
                return sign | (uint16_t)(rounded / ldexp(1.0, smallest - fraction_bits));
        (void)frexp(rounded, &exponent);
        exponent--;
        return sign | (uint16_t)((exponent - smallest + 1) << fraction_bits) |
               (uint16_t)((uint32_t)ldexp(rounded, fraction_bits - exponent) &
                          ((1U << fraction_bits) - 1));
}

bool ptx_compare_float(unsigned kind, float a, float b)
{
        bool nan = a != a || b != b;

        switch (kind) {
        case COMPARE_EQ:
                return a == b;
        case COMPARE_NE:
                return !nan && a != b;
        case COMPARE_LT:
                return a < b;
        case COMPARE_LE:
                return a <= b;
        case COMPARE_GT:
                return a > b;
        case COMPARE_GE:
                return a >= b;
        case COMPARE_EQU:
                return nan || a == b;
        case COMPARE_NEU:
                return nan || a != b;
        case COMPARE_LTU:
                return nan || a < b;
        case COMPARE_LEU:
                return nan || a <= b;
        case COMPARE_GTU:
                return nan || a > b;
        case COMPARE_GEU:
                return nan || a >= b;
        case COMPARE_NUM:
                return !nan;
        default:
                return nan;
        }
}

static uint16_t half_one(enum ptx_type type, unsigned kind, unsigned flags, const uint16_t v[3])
{
        double a = (double)ptx_half_to_float(type, v[0]), b = (double)ptx_half_to_float(type, v[1]);
        double c = (double)ptx_half_to_float(type, v[2]), r;

        switch (kind) {
        case HALF_ADD:
                r = a + b;
                break;
        case HALF_SUB:
                r = a - b;
                break;
        case HALF_MUL:
                r = a * b;
                break;
        case HALF_FMA:
                /* The product is exact. The sum is rounded to odd, so that a second rounding to 11
                 * or 8 bits gives the same result as one rounding of the exact sum. */
                r = a * b + c;
                if (isfinite(r) && a * b != 0) {
                        double p = a * b, t = r - p;
                        double lost = (p - (r - t)) + (c - t);
                        uint64_t u;

                        memcpy(&u, &r, sizeof(u));
                        if (lost != 0 && !(u & 1))
                                r = nextafter(r, lost > 0 ? INFINITY : -INFINITY);
                }
                break;
        case HALF_MIN:
                r = b != b || a < b || (a == b && __builtin_signbit(a)) ? a : b;
                break;
        case HALF_MAX:
                r = b != b || a > b || (a == b && !__builtin_signbit(a)) ? a : b;
                break;
        case HALF_NEG:
                return v[0] ^ 0x8000;
        default:
                return v[0] & 0x7fff;
        }
        if (flags & FLAG_SAT)
                r = r > 1.0 ? 1.0 : r > 0.0 ? r : 0.0;
        return ptx_half_from_double(type, r);
}

uint32_t ptx_half_arithmetic(enum ptx_type type, unsigned kind, unsigned flags, const uint32_t v[3])
{
        const uint16_t low[3] = {(uint16_t)v[0], (uint16_t)v[1], (uint16_t)v[2]};
        const uint16_t high[3] = {(uint16_t)(v[0] >> 16), (uint16_t)(v[1] >> 16),
                                  (uint16_t)(v[2] >> 16)};
        uint32_t r = half_one(type, kind, flags, low);

        if (type == TYPE_f16x2 || type == TYPE_bf16x2)
                r |= (uint32_t)half_one(type, kind, flags, high) << 16;
        return r;
}

static uint64_t extend(uint64_t v, unsigned bits, bool sign)
{
        if (bits >= 64)
                return v;
        v &= (UINT64_C(1) << bits) - 1;
        if (sign && v >> (bits - 1))
                v |= ~((UINT64_C(1) << bits) - 1);
        return v;
}

static uint64_t integer_to_integer(enum ptx_type to, enum ptx_type from, uint64_t v, bool saturate)
{
        bool from_sign = type_is(from, 's'), to_sign = type_is(to, 's');
        unsigned bits = type_bits(to);

        v = extend(v, type_bits(from), from_sign);
        if (saturate) {
                uint64_t top = (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1) >> to_sign;
                bool negative = from_sign && (int64_t)v < 0;

                if (negative && !to_sign)
                        v = 0;
                else if (negative && (int64_t)v < -(int64_t)top - 1)
                        v = ~top;
                else if (!negative && v > top)
                        v = top;
        }
        return extend(v, bits, to_sign);
}

static double integral(double v, unsigned kind)
{
        switch (kind) {
        case INTEGRAL_NEAREST:
                return rint(v); /* the current rounding mode is to nearest, ties to even */
        case INTEGRAL_ZERO:
                return trunc(v);
        case INTEGRAL_DOWN:
                return floor(v);
        case INTEGRAL_UP:
                return ceil(v);
        default:
                return v;
        }
}

/* Converts a float to an integer. Values out of range become the nearest end, NaN becomes 0. */
static uint64_t float_to_integer(enum ptx_type to, double v, unsigned kind)
{
        bool sign = type_is(to, 's');
        unsigned bits = type_bits(to);
        double end = ldexp(1.0, (int)(bits - sign));
        uint64_t top = (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1) >> sign;

        if (v != v)
                return 0;
        v = integral(v, kind);
        if (v >= end)
                return top;
        if (sign)
                return v < -end ? ~top : (uint64_t)(int64_t)v;
        return v <= 0 ? 0 : (uint64_t)v;
}

static uint64_t float_result(enum ptx_type to, double v, unsigned flags)
{
        uint64_t u;
        float f;

        if (flags & FLAG_SAT)
                v = v > 1.0 ? 1.0 : v > 0.0 ? v : 0.0;
        if (to == TYPE_f64) {
                memcpy(&u, &v, sizeof(u));
                return u;
        }
        if (to != TYPE_f32)
                return ptx_half_from_double(to, v);
        f = (float)v;
        if (f != f)
                f = half_float_of(0x7fffffffU);
        if ((flags & FLAG_FTZ) && fabsf(f) < 0x1p-126F)
                f = copysignf(0.0F, f);
        return half_bits_of(f);
}

static double float_operand(enum ptx_type from, uint64_t bits, unsigned flags)
{
        double d;
        float f;

        if (from == TYPE_f64) {
                memcpy(&d, &bits, sizeof(d));
                return d;
        }
        if (from != TYPE_f32)
                return (double)ptx_half_to_float(from, (uint16_t)bits);
        f = half_float_of((uint32_t)bits);
        if ((flags & FLAG_FTZ) && fabsf(f) < 0x1p-126F)
                f = copysignf(0.0F, f);
        return (double)f;
}

uint64_t ptx_convert(enum ptx_type to, enum ptx_type from, uint64_t bits, unsigned kind,
                     unsigned flags)
{
        if (type_is(from, 'f')) {
                double v = float_operand(from, bits, flags);

                if (type_is(to, 'f'))
                        return float_result(to, integral(v, kind), flags);
                return float_to_integer(to, v, kind);
        }
        if (!type_is(to, 'f'))
                return integer_to_integer(to, from, bits, flags & FLAG_SAT);
        bits = extend(bits, type_bits(from), type_is(from, 's'));
        /* A conversion by way of double would round a 64-bit integer twice. */
        if (to == TYPE_f32)
                return float_result(
                        to, (double)(type_is(from, 's') ? (float)(int64_t)bits : (float)bits),
                        flags);
        return float_result(to, type_is(from, 's') ? (double)(int64_t)bits : (double)bits, flags);
}
