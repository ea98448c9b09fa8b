/* values.c: numbers of NCCL's types on the CPU. Uses no GPU. */
#include "values.h"

#include <math.h>
#include <string.h>

#include "base/splitmix.h"
#include "nccl.h"

const struct type types[] = {
        [ncclInt8] = {"int8", 1, SIGNED, 0, 0},
        [ncclUint8] = {"uint8", 1, UNSIGNED, 0, 0},
        [ncclInt32] = {"int32", 4, SIGNED, 0, 0},
        [ncclUint32] = {"uint32", 4, UNSIGNED, 0, 0},
        [ncclInt64] = {"int64", 8, SIGNED, 0, 0},
        [ncclUint64] = {"uint64", 8, UNSIGNED, 0, 0},
        [ncclFloat16] = {"float16", 2, FLOAT, 5, 10},
        [ncclFloat32] = {"float32", 4, FLOAT, 8, 23},
        [ncclFloat64] = {"float64", 8, FLOAT, 11, 52},
        [ncclBfloat16] = {"bfloat16", 2, FLOAT, 8, 7},
        [ncclFloat8e4m3] = {"float8e4m3", 1, FLOAT, 4, 3},
        [ncclFloat8e5m2] = {"float8e5m2", 1, FLOAT, 5, 2},
};

const char *const op_names[OPS] = {
        [SUM] = "sum",
        [PROD] = "prod",
        [MAX] = "max",
        [MIN] = "min",
        [AVG] = "avg",
        [PREMUL_HOST] = "premulsum-host",
        [PREMUL_DEVICE] = "premulsum-device",
};

/* Little-endian. */
static void store(void *at, uint64_t bits, unsigned bytes)
{
        memcpy(at, &bits, bytes);
}

static uint64_t load(const void *at, unsigned bytes)
{
        uint64_t bits = 0;

        memcpy(&bits, at, bytes);
        return bits;
}

/* Rounds to nearest, ties to even. For numbers that the type can hold. */
static uint64_t float_bits(double value, int exponent_bits, int mantissa_bits)
{
        int bias = (1 << (exponent_bits - 1)) - 1, exponent;
        uint64_t sign = (uint64_t)signbit(value) << (exponent_bits + mantissa_bits), mantissa;

        if (value == 0)
                return sign;
        if (isnan(value))
                return (UINT64_C(1) << (exponent_bits + mantissa_bits)) - 1;
        if (isinf(value))
                return sign | ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
        (void)frexp(fabs(value), &exponent);
        exponent--; /* now fabs(value) = m * 2^exponent with 1 <= m < 2 */
        if (exponent < 1 - bias)
                exponent = 1 - bias; /* subnormal */
        mantissa = (uint64_t)nearbyint(ldexp(fabs(value), mantissa_bits - exponent));
        return sign | ((((uint64_t)(exponent + bias) - 1) << mantissa_bits) + mantissa);
}

static double float_value(uint64_t bits, int exponent_bits, int mantissa_bits)
{
        int bias = (1 << (exponent_bits - 1)) - 1;
        int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
        uint64_t mantissa = bits & ((UINT64_C(1) << mantissa_bits) - 1);
        double v;

        /* The all-ones exponent of e4m3 has numbers, too; only its largest mantissa is no number.
         */
        if (exponent_bits == 4 ? exponent == 15 && mantissa == 7
                               : exponent == (1 << exponent_bits) - 1)
                v = mantissa ? NAN : INFINITY;
        else
                v = exponent ? ldexp((double)(mantissa | UINT64_C(1) << mantissa_bits),
                                     exponent - bias - mantissa_bits)
                             : ldexp((double)mantissa, 1 - bias - mantissa_bits);
        return bits >> (exponent_bits + mantissa_bits) & 1 ? -v : v;
}

void value_encode(int type, double value, void *at)
{
        const struct type *t = &types[type];

        if (t->kind == FLOAT)
                store(at, float_bits(value, t->exponent_bits, t->mantissa_bits), t->bytes);
        else
                store(at, (uint64_t)(int64_t)value, t->bytes);
}

double value_decode(int type, const void *at)
{
        const struct type *t = &types[type];
        uint64_t bits = load(at, t->bytes);

        if (t->kind == FLOAT)
                return float_value(bits, t->exponent_bits, t->mantissa_bits);
        if (t->kind == UNSIGNED)
                return (double)bits;
        return (double)((int64_t)(bits << (64 - 8 * t->bytes)) >> (64 - 8 * t->bytes));
}

double value_limited(int type, double value)
{
        const uint8_t largest = type == ncclFloat8e4m3 ? 0x7e : 0x7b;

        return types[type].bytes == 1 && isinf(value)
                       ? copysign(value_decode(type, &largest), value)
                       : value;
}

double value_scalar(int type, int rank)
{
        if (types[type].kind == FLOAT)
                return rank % 2 ? -0.5 : 0.5;
        return rank % 2 ? 1 : 2;
}

static uint64_t draw(uint64_t seed, int rank, size_t i)
{
        return splitmix(splitmix(seed * SPLITMIX_STEP + (uint64_t)rank + 1) + i);
}

/* The largest number, and the smallest negated, among the inputs: sums over 8 ranks stay exact. */
static int64_t largest(int type, bool adds)
{
        const struct type *t = &types[type];

        switch (t->kind == FLOAT ? t->mantissa_bits : (int)t->bytes * 8 - 1) {
        case 2:
        case 3:
                return adds ? 1 : 8;
        case 7: /* int8, uint8, bfloat16 */
                return adds ? 3 : 100;
        case 10:
                return adds ? 30 : 2000;
        case 23:
        case 31:
                return adds ? 100000 : 8000000;
        default:
                return adds ? INT64_C(1) << 40 : INT64_C(1) << 45;
        }
}

static int64_t input(int type, enum op op, uint64_t seed, int rank, int n, size_t i)
{
        bool is_unsigned = types[type].kind == UNSIGNED;
        uint64_t random = draw(seed, rank, i);
        int64_t most;

        if (op == PROD) {
                if (random % 4 == 0)
                        return 2;
                return random % 4 == 1 && !is_unsigned ? -1 : 1;
        }
        most = largest(type, op != MAX && op != MIN);
        if (op == AVG && types[type].kind != FLOAT) {
                /* Multiples of n, so that the division leaves no rest. */
                most = types[type].bytes == 1 ? 1 : most / n;
                random %= (uint64_t)(2 * most + 1);
                return (is_unsigned ? (int64_t)random : (int64_t)random - most) * n;
        }
        random %= (uint64_t)(2 * most + 1);
        return is_unsigned ? (int64_t)random : (int64_t)random - most;
}

void values_input(int type, enum op op, uint64_t seed, int rank, int n, size_t first, size_t count,
                  void *out)
{
        const struct type *t = &types[type];

        for (size_t i = 0; i < count; i++) {
                int64_t v = input(type, op, seed, rank, n, first + i);

                if (t->kind == FLOAT)
                        value_encode(type, (double)v, (char *)out + i * t->bytes);
                else
                        store((char *)out + i * t->bytes, (uint64_t)v, t->bytes);
        }
}

static int64_t combine(enum op op, int64_t a, int64_t b)
{
        switch (op) {
        case PROD:
                return (int64_t)((uint64_t)a * (uint64_t)b);
        case MAX:
                return a > b ? a : b;
        case MIN:
                return a < b ? a : b;
        default:
                return a + b;
        }
}

void values_reduced(int type, enum op op, uint64_t seed, int n, size_t first, size_t count,
                    void *out)
{
        const struct type *t = &types[type];
        bool premul = op == PREMUL_HOST || op == PREMUL_DEVICE;

        for (size_t i = 0; i < count; i++) {
                void *at = (char *)out + i * t->bytes;
                int64_t all = 0;

                for (int rank = 0; rank < n; rank++) {
                        int64_t v = input(type, op, seed, rank, n, first + i);

                        if (premul) /* the scalars of FLOAT are halves */
                                v *= (int64_t)(value_scalar(type, rank) *
                                               (t->kind == FLOAT ? 2 : 1));
                        all = rank ? combine(op, all, v) : v;
                }
                if (t->kind == FLOAT)
                        value_encode(type,
                                     op == AVG ? (double)all / n
                                     : premul  ? (double)all / 2
                                               : (double)all,
                                     at);
                else
                        store(at, (uint64_t)(op == AVG ? all / n : all), t->bytes);
        }
}

void values_bytes(uint64_t seed, int rank, size_t bytes, void *out)
{
        for (size_t i = 0; i < bytes; i += 8) {
                uint64_t word = draw(seed, rank, i);

                memcpy((char *)out + i, &word, bytes - i < 8 ? bytes - i : 8);
        }
}

void values_random(int type, uint64_t seed, int rank, size_t count, void *out)
{
        for (size_t i = 0; i < count; i++)
                value_encode(type, ldexp((double)(draw(seed, rank, i) >> 11), -52) - 1,
                             (char *)out + i * types[type].bytes);
}

long values_differ(int type, const void *got, const void *expected, size_t count, double tolerance)
{
        const struct type *t = &types[type];

        if (!memcmp(got, expected, count * t->bytes))
                return -1;
        for (size_t i = 0; i < count; i++) {
                const void *a = (const char *)got + i * t->bytes;
                const void *b = (const char *)expected + i * t->bytes;

                if (!memcmp(a, b, t->bytes))
                        continue;
                if (t->kind == FLOAT &&
                    fabs(value_decode(type, a) - value_decode(type, b)) <= tolerance)
                        continue;
                return (long)i;
        }
        return -1;
}

double values_tolerance(int type, enum op op, int n)
{
        if (op != AVG || types[type].kind != FLOAT || (n & (n - 1)) == 0)
                return 0;
        /* One rounding of each rank's part and of each sum. */
        return 2.0 * n * (double)largest(type, true) * ldexp(1, -types[type].mantissa_bits - 1);
}
