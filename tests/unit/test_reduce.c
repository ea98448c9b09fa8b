/* test_reduce.c: the kernel of src/ranks/reduce, run by our interpreter, must compute what
 * reduce_kernels.h says. The reference shares no code with the kernels: it finds the nearest number
 * in a table of all numbers of a format, which follows the format's definition. */
#include "ptx_machine.h"

#include <stddef.h>

#include "ranks/reduce/reduce_kernels.h"

/* ---- the definition of the small formats ---- */

struct format {
        unsigned mantissa, exponent, last; /* bits, bits; code of the largest finite number */
        bool saturates;
        double *value; /* of all codes up to `last`, and what the code after it would be */
};

static struct format formats[REDUCE_TYPES] = {
        [REDUCE_float16] = {10, 5, 0x7bff, false, NULL},
        [REDUCE_bfloat16] = {7, 8, 0x7f7f, false, NULL},
        [REDUCE_float8e4m3] = {3, 4, 0x7e, true, NULL},
        [REDUCE_float8e5m2] = {2, 5, 0x7b, true, NULL},
};

static int make_tables(void **state)
{
        for (unsigned t = 0; t < REDUCE_TYPES; t++) {
                struct format *f = &formats[t];
                int bias = (1 << f->exponent >> 1) - 1;

                if (f->last == 0)
                        continue;
                f->value = calloc(f->last + 2, sizeof(*f->value));
                assert_non_null(f->value);
                for (unsigned code = 0; code <= f->last + 1; code++) {
                        unsigned m = code & ((1U << f->mantissa) - 1), e = code >> f->mantissa;

                        if (e > 0)
                                m += 1U << f->mantissa;
                        f->value[code] = ldexp(m, (int)(e > 0 ? e : 1) - bias - (int)f->mantissa);
                }
        }
        return 0;
}

static int free_tables(void **state)
{
        for (unsigned t = 0; t < REDUCE_TYPES; t++)
                free(formats[t].value);
        return 0;
}

static unsigned sign_bit(const struct format *f)
{
        return 1U << (f->mantissa + f->exponent);
}

static float decoded(unsigned type, uint64_t bits)
{
        const struct format *f = &formats[type];
        uint32_t single = (uint32_t)bits, code;
        float x;

        if (type == REDUCE_float32) {
                memcpy(&x, &single, sizeof(x));
                return x;
        }
        code = single & (sign_bit(f) - 1);
        if (code <= f->last)
                x = (float)f->value[code];
        else
                x = !(code & ((1U << f->mantissa) - 1)) ? INFINITY : NAN;
        return single & sign_bit(f) ? -x : x;
}

/* The nearest number. Of two equally near ones it is that with an even code. */
static uint64_t encoded(unsigned type, float x)
{
        const struct format *f = &formats[type];
        unsigned low = 0, high;
        double below, above;
        uint32_t single;

        if (type == REDUCE_float32) {
                memcpy(&single, &x, sizeof(x));
                return single;
        }
        if (isnan(x))
                return sign_bit(f) - 1;
        high = f->last + 1;
        while (high - low > 1) {
                unsigned middle = (low + high) / 2;

                if (f->value[middle] <= fabs((double)x))
                        low = middle;
                else
                        high = middle;
        }
        below = fabs((double)x) - f->value[low];
        above = f->value[high] - fabs((double)x);
        if (isinf(x) || above < below || (above == below && low % 2 == 1))
                low = high;
        if (f->saturates && low > f->last)
                low = f->last;
        return low | (signbit(x) ? sign_bit(f) : 0);
}

/* ---- the reference ---- */

static bool is_real(unsigned type)
{
        return type >= REDUCE_float16;
}

static bool is_signed(unsigned type)
{
        return type == REDUCE_int8 || type == REDUCE_int32 || type == REDUCE_int64;
}

static uint64_t wrapped(unsigned type, uint64_t x)
{
        unsigned unused = 64 - 8 * reduce_size[type];

        return is_signed(type) ? (uint64_t)((int64_t)(x << unused) >> unused)
                               : x << unused >> unused;
}

static bool integer_less(unsigned type, uint64_t a, uint64_t b)
{
        return is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t integer_result(unsigned type, unsigned operation, const uint64_t *x, unsigned n,
                               uint32_t divide)
{
        uint64_t r = wrapped(type, x[0]);

        for (unsigned i = 1; i < n; i++) {
                uint64_t y = wrapped(type, x[i]);

                if (operation == REDUCE_SUM)
                        r += y;
                else if (operation == REDUCE_PROD)
                        r *= y;
                else if (integer_less(type, r, y) == (operation == REDUCE_MAX))
                        r = y;
        }
        r = wrapped(type, r);
        if (divide > 1)
                r = is_signed(type) ? (uint64_t)((int64_t)r / (int64_t)divide) : r / divide;
        return r;
}

/* A type's arithmetic, which rounds to Real. */
#define REAL_COMBINED(Real)                                                      \
        static Real combined_##Real(unsigned operation, Real a, Real b)          \
        {                                                                        \
                if (operation == REDUCE_SUM)                                     \
                        return a + b;                                            \
                if (operation == REDUCE_PROD)                                    \
                        return a * b;                                            \
                if (isnan(a) || isnan(b))                                        \
                        return isnan(a) ? b : a;                                 \
                if (a == b)                                                      \
                        return !signbit(a) == (operation == REDUCE_MAX) ? a : b; \
                return (a < b) == (operation == REDUCE_MIN) ? a : b;             \
        }

REAL_COMBINED(float)
REAL_COMBINED(double)

static double double_of(uint64_t bits)
{
        double x;

        memcpy(&x, &bits, sizeof(x));
        return x;
}

static uint64_t bits_of(double x)
{
        uint64_t bits;

        memcpy(&bits, &x, sizeof(x));
        return bits;
}

static uint64_t want_reduced(unsigned type, unsigned operation, const uint64_t *x, unsigned n,
                             uint32_t divide)
{
        if (!is_real(type))
                return integer_result(type, operation, x, n, divide);
        if (type == REDUCE_float64) {
                double r = double_of(x[0]);

                for (unsigned i = 1; i < n; i++)
                        r = combined_double(operation, r, double_of(x[i]));
                return bits_of(divide > 1 ? r / divide : r);
        } else {
                float r = decoded(type, x[0]);

                for (unsigned i = 1; i < n; i++)
                        r = combined_float(operation, r, decoded(type, x[i]));
                return encoded(type, divide > 1 ? r / (float)divide : r);
        }
}

static bool is_nan(unsigned type, uint64_t bits)
{
        if (type == REDUCE_float64)
                return isnan(double_of(bits));
        return is_real(type) && isnan(decoded(type, bits));
}

static bool same(unsigned type, uint64_t have, uint64_t want)
{
        unsigned unused = 64 - 8 * reduce_size[type];

        return have << unused == want << unused || (is_nan(type, have) && is_nan(type, want));
}

/* ---- the machine ---- */

static void open_type(struct machine *m, unsigned type)
{
        static const char *const file[REDUCE_TYPES] = {
#define REDUCE_TYPE(name, bytes) "reduce_" #name ".ptx",
#include "ranks/reduce/reduce_types.def"
        };

        machine_open_embedded(m, file[type], reduce_ptx[type]);
}

static uint64_t element(const struct machine *m, unsigned type, uint64_t at, uint64_t i)
{
        uint64_t bits = 0;

        memcpy(&bits, (uint8_t *)machine_at(m, at) + i * reduce_size[type], reduce_size[type]);
        return bits;
}

static void element_set(const struct machine *m, unsigned type, uint64_t at, uint64_t i,
                        uint64_t bits)
{
        memcpy((uint8_t *)machine_at(m, at) + i * reduce_size[type], &bits, reduce_size[type]);
}

/* All kinds of numbers: any bits, numbers of the same size (so that sums have many bits), and the
 * ends of the range. */
static uint64_t any_element(unsigned type, uint64_t *random)
{
        static const float edge[] = {0.0F,   -0.0F, INFINITY, -INFINITY, NAN,
                                     1e-45F, -1.0F, 1e38F,    65504.0F,  -3.0e38F};
        uint64_t x = machine_random(random), kind = machine_random(random) % 16;

        if (kind == 0 && type == REDUCE_float64)
                return bits_of((double)edge[x % 10]);
        if (kind == 0 && is_real(type))
                return encoded(type, edge[x % 10]);
        if (kind == 0)
                return UINT64_MAX << x % 64;
        if (kind > 4 && type == REDUCE_float64)
                return bits_of((double)(int64_t)x * 0x1p-60);
        if (kind > 4 && is_real(type))
                return encoded(type, (float)(int64_t)x * 0x1p-60F);
        return x;
}

static uint64_t a_nan(unsigned type)
{
        return type == REDUCE_float64 ? bits_of((double)NAN) : encoded(type, NAN);
}

#define GUARD 64 /* bytes around each array, which no kernel may change */

struct one {
        unsigned type, operation, n, blocks, threads;
        uint64_t count;
        unsigned misplaced; /* elements after a multiple of 16 bytes, */
        int misplaced_only; /* of this array: a source, or n for the results; -1: of all */
        bool second;        /* there is a second result */
        bool in_place;      /* the result replaces the last source */
        uint32_t divide;
};

static uint64_t array_allocate(struct machine *m, const struct one *c, unsigned which)
{
        uint64_t bytes = c->count * reduce_size[c->type], at;
        bool misplaced = c->misplaced_only < 0 || c->misplaced_only == (int)which;

        at = machine_allocate(m, bytes + 2 * GUARD + 16);
        memset(machine_at(m, at), 0xa5, bytes + 2 * GUARD + 16);
        return at + GUARD + (misplaced ? (uint64_t)c->misplaced * reduce_size[c->type] : 0);
}

static void guard_check(const struct machine *m, const struct one *c, uint64_t at)
{
        const uint8_t *p = machine_at(m, at);

        for (unsigned i = 1; i <= GUARD / 2; i++) {
                assert_int_equal(p[-(int)i], 0xa5);
                assert_int_equal(p[c->count * reduce_size[c->type] + i - 1], 0xa5);
        }
}

static void check_result(const struct machine *m, const struct one *c, uint64_t at,
                         const uint64_t *want)
{
        guard_check(m, c, at);
        for (uint64_t i = 0; i < c->count; i++)
                if (!same(c->type, element(m, c->type, at, i), want[i]))
                        fail_msg("type %u, operation %u, %u sources, element %llu of %llu, / %u: "
                                 "%llx, not %llx",
                                 c->type, c->operation, c->n, (unsigned long long)i,
                                 (unsigned long long)c->count, c->divide,
                                 (unsigned long long)element(m, c->type, at, i),
                                 (unsigned long long)want[i]);
}

/* Fills the sources, runs one kernel, and compares. */
static void run_one(struct machine *m, const struct one *c, uint64_t *random)
{
        struct reduce_arguments a = {
                .n = c->n, .operation = c->operation, .count = c->count, .divide = c->divide};
        uint64_t used = m->used, *want = calloc(c->count + 1, sizeof(*want));

        assert_non_null(want);
        for (unsigned i = 0; i < c->n; i++)
                a.sources.from[i] = array_allocate(m, c, i);
        a.out = c->in_place ? a.sources.from[c->n - 1] : array_allocate(m, c, c->n);
        a.out2 = c->second ? array_allocate(m, c, c->n) : 0;
        for (uint64_t i = 0; i < c->count; i++) {
                uint64_t x[REDUCE_SOURCES_MAX] = {0};
                bool nans = is_real(c->type) && machine_random(random) % 32 == 0;

                for (unsigned j = 0; j < c->n; j++) {
                        x[j] = nans ? a_nan(c->type) : any_element(c->type, random);
                        element_set(m, c->type, a.sources.from[j], i, x[j]);
                }
                want[i] = want_reduced(c->type, c->operation, x, c->n, c->divide);
        }
        machine_run(m, REDUCE_KERNEL, c->blocks, c->threads, 0, &a);
        check_result(m, c, a.out, want);
        if (c->second)
                check_result(m, c, a.out2, want);
        free(want);
        m->used = used;
}

static void every_operation_in_every_shape_computes_its_definition(void **state)
{
        static const unsigned sources[] = {1, 2, 3, 8, 64};
        static const uint64_t counts[] = {0, 1, 15, 16, 17, 333};
        static const uint32_t divisors[] = {0, 1, 2, 3, 7, 64};

        for (unsigned type = 0; type < REDUCE_TYPES; type++) {
                uint64_t random = 100 + type;
                struct machine m;

                open_type(&m, type);
                for (unsigned operation = 0; operation < REDUCE_OPERATIONS; operation++)
                        for (unsigned i = 0; i < 5 * 6 * 2; i++) {
                                struct one c = {.type = type,
                                                .operation = operation,
                                                .n = sources[i % 5],
                                                .count = counts[i / 5 % 6],
                                                .misplaced = i / 30,
                                                .blocks = 1 + i % 3,
                                                .threads = i % 7 ? 32 : 96,
                                                .second = machine_random(&random) % 2,
                                                .in_place = machine_random(&random) % 2,
                                                .divide = divisors[machine_random(&random) % 6]};

                                c.misplaced_only = (int)(machine_random(&random) % (c.n + 2)) - 1;
                                run_one(&m, &c, &random);
                        }
                machine_close(&m);
        }
}

static void the_struct_has_the_layout_of_the_parameters(void **state)
{
        static const size_t offset[] = {offsetof(struct reduce_arguments, sources),
                                        offsetof(struct reduce_arguments, n),
                                        offsetof(struct reduce_arguments, operation),
                                        offsetof(struct reduce_arguments, out),
                                        offsetof(struct reduce_arguments, out2),
                                        offsetof(struct reduce_arguments, count),
                                        offsetof(struct reduce_arguments, divide),
                                        offsetof(struct reduce_arguments, scales),
                                        offsetof(struct reduce_arguments, scalar),
                                        offsetof(struct reduce_arguments, bits)};

        for (unsigned type = 0; type < REDUCE_TYPES; type++) {
                struct machine m;
                const struct ptx_kernel_info *info;

                open_type(&m, type);
                assert_null(ptx_module_kernel_at(m.module, 1));
                info = ptx_kernel_info(ptx_module_kernel(m.module, REDUCE_KERNEL));
                assert_int_equal(info->max_threads, REDUCE_THREADS_MAX);
                assert_int_equal(info->parameters, sizeof(offset) / sizeof(offset[0]));
                for (unsigned i = 0; i < info->parameters; i++)
                        assert_int_equal(info->parameter[i].offset, offset[i]);
                assert_int_equal(info->parameter[0].bytes, 8 * REDUCE_SOURCES_MAX);
                machine_close(&m);
        }
}

/* The last source ends where the memory ends, so a read beyond it fails. */
static void nothing_is_read_beyond_the_end(void **state)
{
        for (unsigned type = 0; type < REDUCE_TYPES; type++)
                for (unsigned i = 0; i < 2; i++) {
                        uint64_t count = 112 - i,
                                 at = MACHINE_BASE + MACHINE_BYTES - count * reduce_size[type];
                        struct machine m;
                        struct reduce_arguments a = {.n = 2, .count = count};

                        open_type(&m, type);
                        a.sources.from[0] = a.sources.from[1] = at;
                        a.out = machine_allocate(&m, count * reduce_size[type]);
                        for (; a.operation < REDUCE_OPERATIONS; a.operation++)
                                machine_run(&m, REDUCE_KERNEL, 2, 64, 0, &a);
                        machine_close(&m);
                }
}

/* The vectors' last bytes, and blocks that take several turns. */
static void a_million_bytes_are_reduced(void **state)
{
        for (unsigned type = 0; type < REDUCE_TYPES; type++) {
                uint64_t random = 200 + type;
                struct machine m;

                open_type(&m, type);
                run_one(&m,
                        &(struct one){.type = type,
                                      .operation = REDUCE_SUM,
                                      .n = 2 + type % 2,
                                      .blocks = 5,
                                      .threads = REDUCE_THREADS_MAX,
                                      .count = 1000003 / reduce_size[type],
                                      .in_place = true,
                                      .second = true,
                                      .divide = type % 3},
                        &random);
                machine_close(&m);
        }
}

/* All pairs of fp8 numbers, divided by several numbers, meet all cases of rounding. */
static void fp8_results_are_rounded_to_the_nearest_even_number(void **state)
{
        static const uint32_t divisors[] = {1, 3, 16, 28, 1000};

        for (unsigned type = REDUCE_float8e4m3; type <= REDUCE_float8e5m2; type++)
                for (unsigned k = 0; k < 2 * 5; k++) {
                        struct reduce_arguments a = {.n = 2,
                                                     .operation = k % 2 ? REDUCE_PROD : REDUCE_SUM,
                                                     .count = 65536,
                                                     .divide = divisors[k / 2]};
                        struct machine m;

                        open_type(&m, type);
                        for (unsigned i = 0; i < 2; i++) {
                                a.sources.from[i] = machine_allocate(&m, 65536);
                                for (unsigned j = 0; j < 65536; j++)
                                        element_set(&m, type, a.sources.from[i], j, j >> 8 * i);
                        }
                        a.out = machine_allocate(&m, 65536);
                        machine_run(&m, REDUCE_KERNEL, 4, 128, 0, &a);
                        for (unsigned j = 0; j < 65536; j++) {
                                const uint64_t x[] = {j & 0xff, j >> 8};
                                uint64_t have = element(&m, type, a.out, j),
                                         want = want_reduced(type, a.operation, x, 2, a.divide);

                                if (!same(type, have, want))
                                        fail_msg("type %u, operation %u of %x and %x, / %u: %x, "
                                                 "not %x",
                                                 type, a.operation, j & 0xff, j >> 8, a.divide,
                                                 (unsigned)have, (unsigned)want);
                        }
                        machine_close(&m);
                }
}

static uint64_t want_scaled(unsigned type, uint64_t x, uint64_t by)
{
        const uint64_t both[] = {x, by};

        return want_reduced(type, REDUCE_PROD, both, 2, 1);
}

static void elements_are_scaled(void **state)
{
        for (unsigned type = 0; type < REDUCE_TYPES; type++) {
                uint64_t random = 300 + type;
                struct machine m;

                open_type(&m, type);
                for (unsigned i = 0; i < 16; i++) {
                        struct one c = {.type = type,
                                        .misplaced = i % 2,
                                        .misplaced_only = i % 8 < 4 ? -1 : (int)(i % 8 / 6),
                                        .operation = REDUCE_PROD,
                                        .n = 1,
                                        .count = i < 2 ? i : 300 + i};
                        uint64_t by = any_element(type, &random), used = m.used, want[400];
                        struct reduce_arguments a = {
                                .n = 1, .count = c.count, .scales = 1, .divide = i % 4};

                        a.sources.from[0] = array_allocate(&m, &c, 0);
                        a.out = i % 3 ? array_allocate(&m, &c, 1) : a.sources.from[0];
                        a.bits = i & 4 ? ~by : by; /* with a scalar in memory the bits are idle */
                        if (i & 4) {
                                a.scalar = machine_allocate(&m, 8);
                                element_set(&m, type, a.scalar, 0, by);
                        }
                        for (unsigned j = 0; j < c.count; j++) {
                                uint64_t x = any_element(type, &random);

                                element_set(&m, type, a.sources.from[0], j, x);
                                want[j] = want_scaled(type, x, by);
                        }
                        machine_run(&m, REDUCE_KERNEL, 2, 64, 0, &a);
                        check_result(&m, &c, a.out, want);
                        m.used = used;
                }
                machine_close(&m);
        }
}

/* ---- the reference itself ---- */

static void the_tables_agree_with_the_specification_and_the_compiler(void **state)
{
        /* The OCP specification names these numbers. */
        assert_true(decoded(REDUCE_float8e4m3, 0x7e) == 448.0F);
        assert_true(decoded(REDUCE_float8e4m3, 0x08) == 0x1p-6F);
        assert_true(decoded(REDUCE_float8e4m3, 0x07) == 0.875F * 0x1p-6F);
        assert_true(decoded(REDUCE_float8e4m3, 0x01) == 0x1p-9F);
        assert_true(isnan(decoded(REDUCE_float8e4m3, 0x7f)));
        assert_true(isnan(decoded(REDUCE_float8e4m3, 0xff)));
        assert_true(decoded(REDUCE_float8e5m2, 0x7b) == 57344.0F);
        assert_true(decoded(REDUCE_float8e5m2, 0x04) == 0x1p-14F);
        assert_true(decoded(REDUCE_float8e5m2, 0x01) == 0x1p-16F);
        assert_true(decoded(REDUCE_float8e5m2, 0xfc) == -INFINITY);
        assert_true(isnan(decoded(REDUCE_float8e5m2, 0x7d)));
#ifdef __FLT16_MAX__
        for (unsigned code = 0; code < 65536; code++) {
                uint16_t bits = (uint16_t)code;
                _Float16 half;

                memcpy(&half, &bits, sizeof(half));
                same_float(decoded(REDUCE_float16, code), (float)half, code, 0);
        }
        for (uint64_t i = 0, random = 5; i < 100000; i++) {
                uint32_t bits = (uint32_t)machine_random(&random) & 0x8fffffff; /* below 1 */
                uint16_t want;
                _Float16 half;
                float x;

                bits += (uint32_t)(machine_random(&random) % 5) << 28;
                memcpy(&x, &bits, sizeof(x));
                half = (_Float16)x;
                memcpy(&want, &half, sizeof(want));
                assert_true(same(REDUCE_float16, encoded(REDUCE_float16, x), want));
        }
#endif
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_tables_agree_with_the_specification_and_the_compiler),
                cmocka_unit_test(the_struct_has_the_layout_of_the_parameters),
                cmocka_unit_test(every_operation_in_every_shape_computes_its_definition),
                cmocka_unit_test(nothing_is_read_beyond_the_end),
                cmocka_unit_test(a_million_bytes_are_reduced),
                cmocka_unit_test(fp8_results_are_rounded_to_the_nearest_even_number),
                cmocka_unit_test(elements_are_scaled),
        };

        return cmocka_run_group_tests(tests, make_tables, free_tables);
}
