/* test_ptx_math.c: arithmetic of every width gives the same bits as plain C. It must never compare
 * the interpreter with itself. */
#include "ptx_machine.h"

static int64_t interesting(unsigned i, uint64_t *state)
{
        static const int64_t edge[] = {0,         1,         -1,         2,          7,
                                       31,        32,        63,         INT64_MAX,  INT64_MIN,
                                       INT32_MAX, INT32_MIN, UINT32_MAX, 0x80808080, 0xff};

        if (i < 225)
                return edge[i % 15];
        return (int64_t)machine_random(state) >> (machine_random(state) % 60);
}

static uint32_t byte_permute(uint32_t a, uint32_t b, uint32_t s)
{
        uint64_t all = (uint64_t)b << 32 | a;
        uint32_t r = 0;

        for (unsigned i = 0; i < 4; i++)
                r |= ((uint32_t)(all >> (8 * (s >> (4 * i) & 7))) & 0xff) << (8 * i);
        return r;
}

static uint64_t reverse(uint64_t v, unsigned bits)
{
        uint64_t r = 0;

        for (unsigned i = 0; i < bits; i++)
                r |= (v >> i & 1) << (bits - 1 - i);
        return r;
}

static void integer_results(int64_t x, int64_t y, int64_t *o)
{
        uint64_t ux = (uint64_t)x, uy = (uint64_t)y, wide;
        uint32_t up = (uint32_t)x, uq = (uint32_t)y;
        int32_t p = (int32_t)x, q = (int32_t)y, dot = 5;
        uint32_t udot = 9, differences = 0;

        for (unsigned i = 0; i < 32; i += 8) {
                int d = (uint8_t)(up >> i) - (uint8_t)(uq >> i);

                dot = (int32_t)((uint32_t)dot + (uint32_t)((int8_t)(p >> i) * (int8_t)(q >> i)));
                udot += (uint32_t)(uint8_t)(up >> i) * (uint8_t)(uq >> i);
                differences |= (uint32_t)abs(d) << i;
        }
        o[0] = (int64_t)(ux + uy);
        o[1] = (int64_t)(ux * uy);
        o[2] = (int64_t)(((__int128)x * y) >> 64);
        o[3] = (int64_t)(((unsigned __int128)ux * uy) >> 64);
        o[4] = y && !(x == INT64_MIN && y == -1) ? x / y : 0;
        o[5] = uy ? (int64_t)(ux % uy) : 0;
        o[6] = q && !(p == INT32_MIN && q == -1) ? p / q : 0;
        o[7] = uq ? up % uq : 0;
        o[8] = (int32_t)(((int64_t)p * q) >> 32);
        o[9] = (int64_t)(((uint64_t)up * uq) >> 32);
        o[10] = (int64_t)p * q;
        o[11] = (int64_t)((uint64_t)up * uq + ux);
        o[12] = x < y ? x : y;
        o[13] = (int64_t)(ux > uy ? ux : uy);
        o[14] = x >> (y & 63);
        o[15] = (int64_t)((ux >> (y & 63)) ^ (ux << (y & 31)));
        o[16] = __builtin_popcount(up) + __builtin_popcountll(ux) * 100;
        o[17] = (up ? __builtin_clz(up) : 32) + (ux ? __builtin_clzll(ux) : 64) * 100;
        o[18] = (int64_t)(reverse(up, 32) ^ reverse(uy, 64));
        o[19] = byte_permute(up, uq, uq & 0x7777);
        wide = (uint64_t)uq << 32 | up;
        o[20] = (uint32_t)((wide << (uq & 31)) >> 32);
        o[21] = (uint32_t)(wide >> ((up & 63) > 32 ? 32 : up & 63));
        o[22] = (int64_t)((ux ^ (uy & ~ux)) + (uint64_t)((p > q) + (up > uq) * 2 + (ux > uy) * 4));
        o[23] = (int8_t)x + (int16_t)y * 3 + (uint8_t)y + (uint16_t)x;
        o[24] = (uint32_t)((p > q ? up - uq : uq - up) + up);
        o[25] = (int64_t)((uint64_t)(int64_t)(int32_t)(p < 0 ? 0 - up : up) +
                          (y < 0 ? 0 - uy : uy));
        o[26] = __builtin_ffsll(x) + __builtin_ffs(q) * 100;
        o[27] = (int64_t)((uint64_t)(x / 7) + ux / 10 +
                          (uint64_t)(int64_t)(int32_t)((uint32_t)(p / 3) + 0) + up % 11);
        o[28] = dot;
        o[29] = (int64_t)(uint64_t)udot;
        o[30] = differences;
        o[31] = (int32_t)((uint32_t)(int32_t)(((int64_t)p + q) >> 1) +
                          (uint32_t)(int32_t)(((int64_t)p + q + 1) >> 1));
}

static void integers(struct machine *m)
{
        enum { N = 1000 };
        uint64_t a = machine_allocate(m, N * 8), b = machine_allocate(m, N * 8);
        uint64_t out = machine_allocate(m, N * 32 * 8), state = 7;
        int64_t *pa = machine_at(m, a), *pb = machine_at(m, b), *o = machine_at(m, out);
        struct {
                uint64_t a, b, out;
                uint32_t n;
        } args = {a, b, out, N};

        for (unsigned i = 0; i < N; i++) {
                pa[i] = interesting(i, &state);
                pb[i] = interesting(i < 225 ? i / 15 : i, &state);
        }
        machine_run(m, "integers", 8, 128, 0, &args);
        for (unsigned i = 0; i < N; i++) {
                int64_t want[32];

                integer_results(pa[i], pb[i], want);
                for (unsigned k = 0; k < 32; k++)
                        same_integer(o[i * 32 + k], want[k], i, k);
        }
}

static void integer_arithmetic_is_exact(void **state)
{
        WITH_FIXTURE("math", m, integers(&m);)
}

static float interesting_float(unsigned i, uint64_t *state)
{
        static const float edge[] = {
                0.0F,     -0.0F,    1.0F,     -1.5F,          0.5F,       2.5F, 3e38F,
                -1e-40F,  1e-38F,   1e10F,    -3e9F,          INFINITY,   NAN,  65504.0F,
                65520.0F, 0x1p-24F, 0x1p-25F, 1.00048828125F, 16777217.0F};
        uint32_t bits = (uint32_t)machine_random(state);
        float f;

        if (i < 361)
                return edge[i % 19];
        if (i % 3 == 0)
                return (float)(int32_t)bits / 65536.0F;
        memcpy(&f, &bits, sizeof(f));
        return f;
}

static float canonical_min(float a, float b, bool max)
{
        if (isnan(a) || isnan(b))
                return isnan(a) ? b : a;
        if (a == b)
                return (signbit(a) != 0) != max ? a : b;
        return (a < b) != max ? a : b;
}

/* Converts like the device: clamps values out of range, and turns NaN into 0. */
static int32_t to_s32(double v)
{
        return isnan(v)             ? 0
               : v >= 2147483647.0  ? INT32_MAX
               : v <= -2147483648.0 ? INT32_MIN
                                    : (int32_t)v;
}

static uint32_t to_u32(double v)
{
        return isnan(v) || v <= 0 ? 0 : v >= 4294967295.0 ? UINT32_MAX : (uint32_t)v;
}

/* Rounds to nearest even by comparing the nearest two of all 65536 halves. */
static float through_half(float x)
{
        double best = 0, value = fabs((double)x);

        if (isnan(x) || isinf(x) || x == 0)
                return x;
        if (value >= 65520.0)
                return copysignf(INFINITY, x);
        for (int e = -24; e <= 5; e++) {
                double step = ldexp(1.0, e), n = value / step;

                if (n < 2048.0) {
                        best = nearbyint(n) * step;
                        break;
                }
        }
        return copysignf((float)best, x);
}

static void float_results(float x, float y, float *o)
{
        volatile double sum = (double)x + (double)y, product = (double)x * (double)y;
        int32_t nearest = to_s32(rint((double)x));
        float up = (float)sum, down = (float)product;

        o[0] = x + y;
        o[1] = x - y;
        o[2] = x * y;
        o[3] = fmaf(x, y, 1.5F);
        o[4] = x / y;
        o[5] = sqrtf(fabsf(x));
        o[6] = canonical_min(x, y, false);
        o[7] = canonical_min(x, y, true);
        o[8] = floorf(x);
        o[9] = ceilf(x);
        o[10] = truncf(x);
        o[11] = rintf(x);
        o[12] = (float)to_s32((double)x);
        o[13] = (float)to_u32((double)(x * 0.5F));
        memcpy(&o[14], &nearest, sizeof(nearest));
        o[15] = through_half(x) > through_half(y) ? 1.0F : 0.0F;
        o[16] = through_half(x);
        o[17] = copysignf(x, y);
        o[18] = x < y ? 1.0F : isnan(x) ? 2.0F : x == y ? 3.0F : 4.0F;
        o[19] = x > 1 ? 1 : x > 0 ? x : 0;
        /* C can predict directed rounding only where the exact sum is a double. */
        o[20] = isfinite(up) && fabs((double)up) > fabs(sum) ? nextafterf(up, 0) : up;
        o[21] = isfinite(down) && (double)down > product ? nextafterf(down, -INFINITY) : down;
        if (isinf(up) && isfinite(x) && isfinite(y))
                o[20] = copysignf(3.40282346638528859811704183484516925e+38F, up);
        if (isinf(down) && down > 0 && isfinite(x) && isfinite(y))
                o[21] = 3.40282346638528859811704183484516925e+38F;
        o[22] = (float)product;
        o[23] = 1.0F / y;
}

static bool exact_sum(float x, float y)
{
        double sum = (double)x + (double)y;

        return !isfinite(sum) || (sum - (double)x == (double)y && sum - (double)y == (double)x);
}

static void floats(struct machine *m)
{
        enum { N = 2000, RESULTS = 24 };
        uint64_t a = machine_allocate(m, N * 4), b = machine_allocate(m, N * 4);
        uint64_t out = machine_allocate(m, N * RESULTS * 4), state = 8;
        float *pa = machine_at(m, a), *pb = machine_at(m, b), *o = machine_at(m, out);
        struct {
                uint64_t a, b, out;
                uint32_t n;
        } args = {a, b, out, N};

        for (unsigned i = 0; i < N; i++) {
                pa[i] = interesting_float(i, &state);
                pb[i] = interesting_float(i < 361 ? i / 19 : i, &state);
        }
        machine_run(m, "floats", 16, 128, 0, &args);
        for (unsigned i = 0; i < N; i++) {
                float want[RESULTS];

                float_results(pa[i], pb[i], want);
                for (unsigned k = 0; k < RESULTS; k++) {
                        if (k == 20 && !exact_sum(pa[i], pb[i]))
                                continue;
                        /* A zero from a subnormal keeps its sign when rounded down. */
                        same_float(o[i * RESULTS + k], want[k], i, k);
                }
                if (isnan(pa[i]) && isnan(pb[i])) {
                        uint32_t bits[2];

                        memcpy(bits, &o[i * RESULTS + 6], sizeof(bits));
                        assert_int_equal(bits[0], 0x7fffffff);
                        assert_int_equal(bits[1], 0x7fffffff);
                }
        }
}

static void single_precision_is_rounded_as_ieee_says(void **state)
{
        WITH_FIXTURE("math", m, floats(&m);)
}

static void doubles(struct machine *m)
{
        enum { N = 2000, RESULTS = 16 };
        uint64_t a = machine_allocate(m, N * 8), b = machine_allocate(m, N * 8);
        uint64_t out = machine_allocate(m, N * RESULTS * 8), state = 9;
        double *pa = machine_at(m, a), *pb = machine_at(m, b), *o = machine_at(m, out);
        struct {
                uint64_t a, b, out;
                uint32_t n;
        } args = {a, b, out, N};

        for (unsigned i = 0; i < N; i++) {
                pa[i] = (double)interesting_float(i, &state) * 1.0000000001;
                pb[i] = (double)interesting_float(i < 361 ? i / 19 : i, &state) / 3.0;
        }
        machine_run(m, "doubles", 16, 128, 0, &args);
        for (unsigned i = 0; i < N; i++) {
                double x = pa[i], y = pb[i];
                int64_t nearest = isnan(x)             ? 0
                                  : rint(x) >= 0x1p63  ? INT64_MAX
                                  : rint(x) <= -0x1p63 ? INT64_MIN
                                                       : (int64_t)rint(x);
                int64_t toward = isnan(x)       ? 0
                                 : x >= 0x1p63  ? INT64_MAX
                                 : x <= -0x1p63 ? INT64_MIN
                                                : (int64_t)x;
                uint64_t up = isnan(y) ? 0 : fabs(y) >= 0x1p64 ? UINT64_MAX : (uint64_t)fabs(y);
                double want[RESULTS] = {x + y,
                                        x - y,
                                        x * y,
                                        fma(x, y, -2.25),
                                        x / y,
                                        sqrt(fabs(x)),
                                        isnan(x) || isnan(y) ? (isnan(x) ? y : x)
                                        : x == y             ? (signbit(x) ? x : y)
                                        : x < y              ? x
                                                             : y,
                                        isnan(x) || isnan(y) ? (isnan(x) ? y : x)
                                        : x == y             ? (signbit(x) ? y : x)
                                        : x > y              ? x
                                                             : y,
                                        floor(x),
                                        (double)toward,
                                        (double)up,
                                        (double)(float)x,
                                        0,
                                        (double)to_s32(y),
                                        x != y ? 1.0 : 0.0,
                                        0};
                uint64_t bx, by;

                memcpy(&want[12], &nearest, sizeof(nearest));
                memcpy(&bx, &x, sizeof(bx));
                memcpy(&by, &y, sizeof(by));
                bx = (bx & UINT64_C(0xffffffff00000000)) | (by & 0xffffffff);
                memcpy(&want[15], &bx, sizeof(bx));
                for (unsigned k = 0; k < RESULTS; k++)
                        same_double(o[i * RESULTS + k], want[k], i, k);
        }
}

static void double_precision_is_rounded_as_ieee_says(void **state)
{
        WITH_FIXTURE("math", m, doubles(&m);)
}

static void close_to(float have, double want, double tolerance, unsigned i, unsigned k)
{
        if (fabs((double)have - want) > tolerance * fmax(fabs(want), 1.0))
                fail_msg("input %u, result %u: %g, not %g", i, k, (double)have, want);
}

static void approximate(struct machine *m)
{
        enum { N = 200, RESULTS = 12 };
        uint64_t a = machine_allocate(m, N * 4), out = machine_allocate(m, N * RESULTS * 4),
                 state = 10;
        float *pa = machine_at(m, a), *o = machine_at(m, out);
        struct {
                uint64_t a, out;
                uint32_t n;
        } args = {a, out, N};

        for (unsigned i = 0; i < N; i++)
                pa[i] = (float)(int32_t)machine_random(&state) * (i < 150 ? 3e-9F : 1e-4F) *
                        (i < 150 ? 1.0F : 0.5F);
        machine_run(m, "approximate", 2, 128, 0, &args);
        for (unsigned i = 0; i < N; i++) {
                double x = (double)pa[i];
                const double want[RESULTS] = {sin(x),
                                              cos(x),
                                              exp(x),
                                              log(fabs(x) + 0.5),
                                              1 / sqrt(fabs(x) + 0.25),
                                              exp(x),
                                              log(fabs(x) + 0.125),
                                              sin(x),
                                              tanh(x),
                                              pow(fabs(x), 1.75),
                                              x / 3,
                                              exp(x)};

                for (unsigned k = 0; k < RESULTS; k++) {
                        bool grows = k == 2 || k == 5 || k == 11 || k < 2;

                        if (i < 150 || !grows)
                                close_to(o[i * RESULTS + k], want[k], 1e-5, i, k);
                }
        }
}

static void approximations_and_the_math_library_are_close(void **state)
{
        WITH_FIXTURE("math", m, approximate(&m);)
}

static void carries_go_from_word_to_word(void **state)
{
        enum { N = 64 };
        struct machine m;
        uint64_t in, out, random = 11;
        struct {
                uint64_t in, out;
        } a;

        machine_open(&m, "hand.ptx");
        a.in = in = machine_allocate(&m, N * 16);
        a.out = out = machine_allocate(&m, N * 32);
        for (unsigned i = 0; i < N * 4; i++)
                ((uint32_t *)machine_at(&m, in))[i] =
                        i % 8 == 0 ? UINT32_MAX : (uint32_t)machine_random(&random);
        machine_run(&m, "carries", 1, N, 0, &a);
        for (unsigned i = 0; i < N; i++) {
                const uint64_t *x = (const uint64_t *)machine_at(&m, in) + (size_t)i * 2;
                const uint64_t *r = (const uint64_t *)machine_at(&m, out) + (size_t)i * 4;
                uint64_t low = (uint64_t)(uint32_t)x[0] * (uint32_t)x[1];
                uint64_t sum = low + (x[0] >> 32) + (x[1] & UINT64_C(0xffffffff00000000));

                same_integer((int64_t)r[0], (int64_t)(x[0] + x[1]), i, 0);
                same_integer((int64_t)r[1], (int64_t)(x[0] - x[1]), i, 1);
                same_integer((int64_t)r[2], (int64_t)(x[0] * x[1]), i, 2);
                same_integer((int64_t)r[3], (int64_t)sum, i, 3);
        }
        machine_close(&m);
}

static int32_t clamp(int64_t v, int64_t low, int64_t high)
{
        return (int32_t)(v < low ? low : v > high ? high : v);
}

static void bit_results(const uint32_t x[4], unsigned lane, uint32_t *o)
{
        uint32_t a = x[0], b = x[1], c = x[2], d = x[3], n = 0;
        uint64_t wide = (uint64_t)b << 32 | a;
        bool less = a<b, greater = c> d;

        memset(o, 0, 20 * sizeof(*o));
        o[0] = (a & b) | (a & c) | (b & c);
        o[1] = (uint32_t)(wide >> (8 * (c & 3)));
        o[2] = a >> 5 & 0x7ff;
        o[3] = (uint32_t)((int32_t)b >> 20);
        o[4] = (b & ~0xfff00U) | (a & 0xfff) << 8;
        o[5] = c == 0;
        o[6] = a >> 16 | a << 16;
        o[7] = (a & 0xffff) * (a >> 16);
        o[8] = greater || less;
        o[9] = !greater || less;
        o[10] = greater != !less;
        o[11] = (int32_t)a < (int32_t)b ? UINT32_MAX : 0;
        o[12] = (int32_t)c >= 0 ? a : b;
        o[13] = (uint32_t)((wide << lane) >> 32);
        o[14] = (uint32_t)(wide >> (lane & 31));
        o[15] = UINT32_MAX;
        for (unsigned i = 0; i < 32; i++)
                if ((a >> i & 1) && ++n == 3)
                        o[15] = i;
        o[16] = (uint32_t)clamp((int64_t)(int32_t)a + (int32_t)b, INT32_MIN, INT32_MAX);
        o[17] = (uint32_t)clamp((int32_t)a, -128, 127);
        o[18] = (uint32_t)clamp((int32_t)b, 0, 65535);
        d = (int32_t)c < 0 ? ~c : c;
        o[19] = d ? 31 - (uint32_t)__builtin_clz(d) : UINT32_MAX;
}

static void rare_integer_forms_do_what_the_isa_says(void **state)
{
        enum { N = 32, RESULTS = 20 };
        uint64_t random = 12;
        struct machine m;
        struct {
                uint64_t in, out;
        } a;

        machine_open(&m, "hand.ptx");
        a.in = machine_allocate(&m, N * 16);
        a.out = machine_allocate(&m, N * RESULTS * 4);
        for (unsigned i = 0; i < N * 4; i++)
                ((uint32_t *)machine_at(&m, a.in))[i] =
                        (uint32_t)machine_random(&random) >> (i % 7 == 0    ? 28
                                                              : i % 11 == 0 ? 32 - 7
                                                                            : 0);
        machine_run(&m, "bits", 1, N, 0, &a);
        for (unsigned i = 0; i < N; i++) {
                uint32_t want[RESULTS],
                        *have = (uint32_t *)machine_at(&m, a.out) + (size_t)i * RESULTS;

                bit_results((uint32_t *)machine_at(&m, a.in) + (size_t)i * 4, i, want);
                for (unsigned k = 0; k < RESULTS; k++)
                        same_integer(have[k], want[k], i, k);
        }
        machine_close(&m);
}

static void halves_are_rounded_once(void **state)
{
        static const struct {
                float f;
                uint16_t half, brain, half_toward_zero, sum, fma, integer, less;
        } want[] = {
                {1.0F, 0x3c00, 0x3f80, 0x3c00, 0x4000, 0x4000, 1, 1},
                {-2.5F, 0xc100, 0xc020, 0xc100, 0xc500, 0x4380, 0xfffe, 0},
                {65519.0F, 0x7bff, 0x4780, 0x7bff, 0x7c00, 0x7c00, 0x7fff, 1},
                {65520.0F, 0x7c00, 0x4780, 0x7bff, 0x7c00, 0x7c00, 0x7fff, 0},
                {0x1p-24F, 0x0001, 0x3380, 0x0001, 0x0002, 0x0001, 0, 1},
                {0x1.8p-25F, 0x0001, 0x3340, 0x0000, 0x0002, 0x0001, 0, 1},
                {0x1p-25F, 0x0000, 0x3300, 0x0000, 0x0000, 0x0000, 0, 0},
                {1.00390625F, 0x3c04, 0x3f80, 0x3c04, 0x4004, 0x4006, 1, 1},
                {0.333333343F, 0x3555, 0x3eab, 0x3555, 0x3955, 0x371c, 0, 1},
        };
        enum { N = sizeof(want) / sizeof(want[0]) };
        struct machine m;
        struct {
                uint64_t in, out;
        } a;

        machine_open(&m, "hand.ptx");
        a.in = machine_allocate(&m, N * 4);
        a.out = machine_allocate(&m, N * 16);
        for (unsigned i = 0; i < N; i++)
                ((float *)machine_at(&m, a.in))[i] = want[i].f;
        machine_run(&m, "halves", 1, N, 0, &a);
        for (unsigned i = 0; i < N; i++) {
                const uint16_t *h = (const uint16_t *)machine_at(&m, a.out) + (size_t)i * 8;

                same_integer(h[0], want[i].half, i, 0);
                same_integer(h[1], want[i].brain, i, 1);
                same_integer(h[2], want[i].half_toward_zero, i, 2);
                same_integer(h[3], want[i].sum, i, 3);
                same_integer(h[4], want[i].fma, i, 4);
                same_integer(h[5], want[i].integer, i, 5);
                same_integer(h[6], want[i].less, i, 6);
        }
        machine_close(&m);
}

/* Writes a kernel for one type: bit k of a thread's word is comparison k of its two inputs. */
static size_t comparison_text(char *text, size_t room, const char *type, char letter, unsigned bits,
                              const char *const *kinds)
{
        const char *wide = bits == 64 ? "rd" : "r", *memory = bits == 16   ? "u16"
                                                              : bits == 32 ? "b32"
                                                                           : "b64";
        size_t n = (size_t)snprintf(
                text, room,
                ".version 8.0\n.target sm_70\n.address_size 64\n"
                ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .b32 %%r<9>;\n"
                ".reg .b64 %%rd<9>;\n.reg .pred %%p<3>;\nmov.u32 %%r1, %%tid.x;\n"
                "ld.param.u64 %%rd1, [in];\nld.param.u64 %%rd2, [out];\n"
                "mad.wide.u32 %%rd3, %%r1, 16, %%rd1;\nmad.wide.u32 %%rd4, %%r1, 4, %%rd2;\n"
                "ld.global.%s %%%s7, [%%rd3];\nld.global.%s %%%s8, [%%rd3+8];\nmov.u32 %%r2, 0;\n",
                memory, wide, memory, wide);

        for (unsigned k = 0; kinds[k] && (letter == 'f' || k < 6); k++)
                n += (size_t)snprintf(
                        text + n, room - n,
                        "setp.%s.%s %%p1, %%%s7, %%%s8;\n@%%p1 or.b32 %%r2, %%r2, %u;\n", kinds[k],
                        type, wide, wide, 1U << k);
        n += (size_t)snprintf(text + n, room - n, "st.global.u32 [%%rd4], %%r2;\nret;\n}\n");
        assert_true(n < room);
        return n;
}

#define COMPARED(a, b)                                                                        \
        ((a) == (b)) | ((a) < (b) || (a) > (b)) << 1 | ((a) < (b)) << 2 | ((a) <= (b)) << 3 | \
                ((a) > (b)) << 4 | ((a) >= (b)) << 5

static uint32_t compared(char letter, unsigned bits, uint64_t a, uint64_t b)
{
        float fa, fb;
        double da, db;
        uint32_t ordered, nan;

        if (letter == 's')
                return bits == 16   ? COMPARED((int16_t)a, (int16_t)b)
                       : bits == 32 ? COMPARED((int32_t)a, (int32_t)b)
                                    : COMPARED((int64_t)a, (int64_t)b);
        if (letter == 'u')
                return bits == 16   ? COMPARED((uint16_t)a, (uint16_t)b)
                       : bits == 32 ? COMPARED((uint32_t)a, (uint32_t)b)
                                    : COMPARED(a, b);
        memcpy(&fa, &a, sizeof(fa));
        memcpy(&fb, &b, sizeof(fb));
        memcpy(&da, &a, sizeof(da));
        memcpy(&db, &b, sizeof(db));
        ordered = bits == 32 ? COMPARED(fa, fb) : COMPARED(da, db);
        nan = bits == 32 ? isnan(fa) || isnan(fb) : isnan(da) || isnan(db);
        return ordered | (nan ? 0x3fU : ordered) << 6 | !nan << 12 | nan << 13;
}

static void every_comparison_of_every_type_agrees_with_c(void **state)
{
        static const char *const kinds[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ", "neu",
                                            "ltu", "leu", "gtu", "geu", "num", "nan", NULL};
        static const struct {
                const char *name;
                char letter;
                unsigned bits;
        } types[] = {{"u16", 'u', 16}, {"s16", 's', 16}, {"u32", 'u', 32}, {"s32", 's', 32},
                     {"u64", 'u', 64}, {"s64", 's', 64}, {"f32", 'f', 32}, {"f64", 'f', 64}};
        static const double edge[] = {0.0, -0.0, 1.0, -1.0, 1e-310, INFINITY, -INFINITY, NAN};
        enum { N = 256 };
        uint64_t random = 13;

        for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
                struct machine m;
                uint64_t *in, out, parameters[2];
                char text[4096];

                machine_load(&m, text,
                             comparison_text(text, sizeof(text), types[t].name, types[t].letter,
                                             types[t].bits, kinds));
                parameters[0] = machine_allocate(&m, N * 16);
                parameters[1] = out = machine_allocate(&m, N * 4);
                in = machine_at(&m, parameters[0]);
                for (unsigned i = 0; i < N * 2; i++) {
                        unsigned which = i & 1 ? i / 16 % 8 : i / 2 % 8;
                        float f = (float)edge[which];

                        in[i] = i % 6 < 2 && i > 1 ? in[i & 1 ? i - 1 : i - 2]
                                                   : machine_random(&random);
                        if (i < 128 && types[t].letter == 'f' && types[t].bits == 64)
                                memcpy(&in[i], &edge[which], 8);
                        else if (i < 128 && types[t].letter == 'f')
                                memcpy(&in[i], &f, 4);
                }
                machine_run(&m, "k", 1, N, 0, parameters);
                for (unsigned i = 0; i < N; i++)
                        same_integer(
                                ((uint32_t *)machine_at(&m, out))[i],
                                compared(types[t].letter, types[t].bits, in[i * 2], in[i * 2 + 1]),
                                i, (unsigned)t);
                machine_close(&m);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(integer_arithmetic_is_exact),
                cmocka_unit_test(single_precision_is_rounded_as_ieee_says),
                cmocka_unit_test(double_precision_is_rounded_as_ieee_says),
                cmocka_unit_test(approximations_and_the_math_library_are_close),
                cmocka_unit_test(carries_go_from_word_to_word),
                cmocka_unit_test(rare_integer_forms_do_what_the_isa_says),
                cmocka_unit_test(halves_are_rounded_once),
                cmocka_unit_test(every_comparison_of_every_type_agrees_with_c),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
