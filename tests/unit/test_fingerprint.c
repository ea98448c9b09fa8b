/* test_fingerprint.c: the kernel, run by our interpreter, must compute the polynomial that
 * fingerprint.h defines. The tests compare it with arithmetic that shares no code with it, and
 * check that changed bytes change the fingerprint. */
#include "ptx_machine.h"

#include "preload/heap/fingerprint.h"

#define WORDS (FINGERPRINT_CHUNK / 16)

typedef unsigned __int128 u128;

/* ---- the definition: three digits of 44 bits, one word after the other ---- */

#define DIGIT UINT64_C(0xfffffffffff)

struct number {
        uint64_t digit[3];
};

/* Returns (a * b) modulo 2^130 - 5, where 2^132 equals 20. */
static struct number times(struct number a, struct number b)
{
        u128 d0 = (u128)a.digit[0] * b.digit[0] + (u128)a.digit[1] * (20 * b.digit[2]) +
                  (u128)a.digit[2] * (20 * b.digit[1]);
        u128 d1 = (u128)a.digit[0] * b.digit[1] + (u128)a.digit[1] * b.digit[0] +
                  (u128)a.digit[2] * (20 * b.digit[2]);
        u128 d2 = (u128)a.digit[0] * b.digit[2] + (u128)a.digit[1] * b.digit[1] +
                  (u128)a.digit[2] * b.digit[0];
        struct number r;

        d1 += d0 >> 44;
        d2 += d1 >> 44;
        d0 = (d0 & DIGIT) + (d2 >> 42) * 5;
        d1 = (d1 & DIGIT) + (d0 >> 44);
        r.digit[0] = (uint64_t)(d0 & DIGIT);
        r.digit[1] = (uint64_t)(d1 & DIGIT);
        r.digit[2] = (uint64_t)((d2 & (DIGIT >> 2)) + (d1 >> 44));
        return r;
}

static struct number word_number(const uint8_t *bytes, unsigned n)
{
        struct number r = {{0}};

        for (unsigned bit = 0; bit < 8 * n && bit < 130; bit++) /* a key has 130 bits */
                r.digit[bit / 44] |= (uint64_t)(bytes[bit / 8] >> bit % 8 & 1) << bit % 44;
        return r;
}

static struct fingerprint defined(const uint8_t key[17], const uint8_t *data, uint64_t bytes)
{
        struct number k = word_number(key, 17), sum = {{0}};
        uint64_t sums[FINGERPRINT_SUMS] = {0}, carry = 0;

        for (uint64_t i = bytes / 16; i-- > 0;) {
                struct number m = word_number(data + 16 * i, 16);

                for (unsigned j = 0; j < 3; j++)
                        sum.digit[j] += m.digit[j];
                sum = times(sum, k);
        }
        for (unsigned j = 0; j < 3; j++) {
                carry += sum.digit[j];
                sum.digit[j] = carry & DIGIT;
                carry >>= 44;
        }
        for (unsigned bit = 0; bit < 132; bit++)
                sums[bit / 26 < 5 ? bit / 26 : 4] += (sum.digit[bit / 44] >> bit % 44 & 1)
                                                     << (bit < 130 ? bit % 26 : bit - 104);
        return fingerprint_from(sums);
}

/* ---- the kernel ---- */

struct bench {
        struct machine m;
        uint64_t data, result;
        uint8_t key[17];
        struct fingerprint_key *k;
};

static void bench_open_with(struct bench *b, const uint8_t key[17])
{
        const void *powers;
        uint64_t bytes, at = MACHINE_BASE;

        *b = (struct bench){.k = NULL};
        machine_open_embedded(&b->m, "fingerprint.ptx", fingerprint_ptx);
        memcpy(b->key, key, sizeof(b->key));
        b->k = fingerprint_key_from(b->key);
        assert_non_null(b->k);
        powers = fingerprint_key_powers(b->k, &bytes);
        for (size_t i = 0; ptx_module_variable_at(b->m.module, i); i++) {
                const struct ptx_variable *v = ptx_module_variable_at(b->m.module, i);

                if (strcmp(v->name, FINGERPRINT_POWERS_VARIABLE) == 0) {
                        assert_int_equal(v->bytes, bytes);
                        memcpy(machine_at(&b->m, at), powers, bytes);
                        powers = NULL;
                }
                at += (v->bytes + 511) & ~UINT64_C(511); /* the layout of machine_load() */
        }
        assert_null(powers);
        b->result = machine_allocate(&b->m, FINGERPRINT_SUMS * sizeof(uint64_t));
        b->data = machine_allocate(&b->m, 4 * FINGERPRINT_CHUNK);
}

static void bench_open(struct bench *b, uint64_t seed)
{
        uint8_t key[17];

        for (unsigned i = 0; i < 17; i++)
                key[i] = (uint8_t)machine_random(&seed);
        key[16] &= 3;
        bench_open_with(b, key);
}

static void bench_close(struct bench *b)
{
        free(b->k);
        machine_close(&b->m);
}

static uint8_t *data_of(struct bench *b)
{
        return machine_at(&b->m, b->data);
}

static void data_random(struct bench *b, uint64_t seed)
{
        for (uint64_t i = 0; i < 4 * FINGERPRINT_CHUNK; i += 8) {
                uint64_t x = machine_random(&seed);

                memcpy(data_of(b) + i, &x, 8);
        }
}

static struct fingerprint kernel_of(struct bench *b, unsigned chunks, uint64_t pages)
{
        const struct {
                uint64_t data, result, pages;
                struct fingerprint step;
        } parameters = {b->data, b->result, pages, *fingerprint_key_step(b->k)};
        uint64_t sums[FINGERPRINT_SUMS];

        machine_run(&b->m, FINGERPRINT_KERNEL, chunks, 256, 0, &parameters);
        memcpy(sums, machine_at(&b->m, b->result), sizeof(sums));
        return fingerprint_from(sums);
}

static struct fingerprint kernel(struct bench *b, unsigned chunks)
{
        return kernel_of(b, chunks, 1);
}

static void the_kernel_computes_the_defined_polynomial(void **state)
{
        for (unsigned chunks = 1; chunks <= 4; chunks++) {
                struct fingerprint have, want;
                struct bench b;

                bench_open(&b, chunks);
                data_random(&b, 100 + chunks);
                want = defined(b.key, data_of(&b), chunks * FINGERPRINT_CHUNK);
                have = kernel(&b, chunks);
                assert_true(fingerprint_equal(&have, &want));
                have = kernel(&b, chunks); /* a second run must give the same */
                assert_true(fingerprint_equal(&have, &want));
                bench_close(&b);
        }
}

static void limbs_that_are_full_do_not_overflow(void **state)
{
        static const uint8_t largest[17] = {0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3};
        struct fingerprint have, want;
        struct bench b;

        bench_open_with(&b, largest);
        memset(data_of(&b), 0xff, 2 * FINGERPRINT_CHUNK);
        want = defined(b.key, data_of(&b), 2 * FINGERPRINT_CHUNK);
        have = kernel(&b, 2);
        assert_true(fingerprint_equal(&have, &want));
        bench_close(&b);
}

static void only_zeros_give_zero(void **state)
{
        struct fingerprint f;
        struct bench b;

        bench_open(&b, 3);
        f = kernel(&b, 4);
        assert_true(fingerprint_is_zero(&f));
        data_of(&b)[FINGERPRINT_CHUNK + 5] = 1;
        f = kernel(&b, 4);
        assert_false(fingerprint_is_zero(&f));
        bench_close(&b);
}

/* Changes each bit of a word, and words at the borders of a load, a thread, a round and a chunk. */
static void every_change_of_a_byte_changes_the_fingerprint(void **state)
{
        static const uint64_t words[] = {0,
                                         1,
                                         255,
                                         256,
                                         1023,
                                         1024,
                                         WORDS - 1,
                                         WORDS,
                                         WORDS + 255,
                                         2 * WORDS - 1,
                                         3 * WORDS,
                                         WORDS / 2,
                                         5 * 256 - 1,
                                         4 * WORDS - 256,
                                         4 * WORDS - 1};
        struct fingerprint before, after;
        struct bench b;

        bench_open(&b, 4);
        data_random(&b, 5);
        before = kernel(&b, 4);
        for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]) + 128; i++) {
                unsigned edges = sizeof(words) / sizeof(words[0]);
                uint64_t at = i < edges ? 16 * words[i] + i % 16 : 16 * 777 + (i - edges) / 8;
                uint8_t flip = i < edges ? 0xff : (uint8_t)(1u << (i - edges) % 8);

                data_of(&b)[at] ^= flip;
                after = kernel(&b, i < edges ? 4 : 1);
                data_of(&b)[at] ^= flip;
                if (fingerprint_equal(&before, &after))
                        fail_msg("byte %llu changed by %02x", (unsigned long long)at, flip);
                if (i + 1 == edges)
                        before = kernel(&b, 1);
        }
        bench_close(&b);
}

/* A sum that ignores positions would miss swapped contents. */
static void swapped_contents_change_the_sum(void **state)
{
        static const uint64_t distance[] = {1, 256, 1024, WORDS, 2 * WORDS};
        struct fingerprint before, after;
        struct bench b;

        bench_open(&b, 6);
        data_random(&b, 7);
        before = kernel(&b, 4);
        for (unsigned i = 0; i < sizeof(distance) / sizeof(distance[0]); i++) {
                uint8_t *one = data_of(&b) + 16 * 4711, *two = one + 16 * distance[i], keep[16];

                memcpy(keep, one, 16);
                memcpy(one, two, 16);
                memcpy(two, keep, 16);
                after = kernel(&b, 4);
                assert_false(fingerprint_equal(&before, &after));
                memcpy(two, one, 16);
                memcpy(one, keep, 16);
        }
        after = kernel(&b, 4);
        assert_true(fingerprint_equal(&before, &after));
        bench_close(&b);
}

/* Pages that are left out count as zeros, whatever they contain. */
static void pages_left_out_count_as_zeros(void **state)
{
        const unsigned page = FINGERPRINT_PAGE / FINGERPRINT_CHUNK, chunks = 2 * page + 1;
        struct fingerprint have, want;
        struct bench b;

        bench_open(&b, 11);
        b.data = machine_allocate(&b.m, chunks * FINGERPRINT_CHUNK);
        data_random(&b, 12);
        data_of(&b)[page * FINGERPRINT_CHUNK] = 1;
        data_of(&b)[2 * page * FINGERPRINT_CHUNK] = 2;
        have = kernel_of(&b, chunks, 5);
        data_of(&b)[page * FINGERPRINT_CHUNK] = 0;
        want = defined(b.key, data_of(&b), chunks * FINGERPRINT_CHUNK);
        assert_true(fingerprint_equal(&have, &want));
        have = kernel_of(&b, chunks, 2);
        assert_true(fingerprint_is_zero(&have));
        bench_close(&b);
}

static void keys_are_random_and_change_the_fingerprint(void **state)
{
        struct fingerprint_key *one = fingerprint_key_draw(), *two = fingerprint_key_draw();
        struct fingerprint a, b;
        struct bench x, y;

        assert_non_null(one);
        assert_non_null(two);
        assert_false(fingerprint_equal(fingerprint_key_step(one), fingerprint_key_step(two)));
        free(one);
        free(two);

        bench_open(&x, 8);
        bench_open(&y, 9);
        data_random(&x, 10);
        data_random(&y, 10);
        a = kernel(&x, 1);
        b = kernel(&y, 1);
        assert_false(fingerprint_equal(&a, &b));
        bench_close(&x);
        bench_close(&y);
}

static void each_value_modulo_the_prime_has_one_form(void **state)
{
        const uint64_t p[] = {0x3fffffb, 0x3ffffff, 0x3ffffff, 0x3ffffff, 0x3ffffff};
        uint8_t bytes[17];
        uint64_t sums[FINGERPRINT_SUMS];
        struct fingerprint f;

        for (uint64_t times_p = 0; times_p < 1000; times_p++) {
                for (unsigned i = 0; i < 5; i++)
                        sums[i] = times_p * p[i];
                f = fingerprint_from(sums);
                assert_true(fingerprint_is_zero(&f));
                sums[0] += 7;
                f = fingerprint_from(sums);
                assert_true(fingerprint_equal(&f, &(struct fingerprint){{7}}));
        }
        for (unsigned i = 0; i < 5; i++)
                sums[i] = UINT64_MAX >> 8;
        f = fingerprint_from(sums);
        for (unsigned i = 0; i < 5; i++)
                assert_true(f.limb[i] < 1u << 26);

        memset(bytes, 0xff, sizeof(bytes));
        bytes[16] = 3;
        assert_null(fingerprint_key_from(bytes)); /* the key 2^130 - 1 is too large */
        bytes[0] = 0xfb;
        assert_null(fingerprint_key_from(bytes)); /* the prime 2^130 - 5 is too large */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_kernel_computes_the_defined_polynomial),
                cmocka_unit_test(limbs_that_are_full_do_not_overflow),
                cmocka_unit_test(only_zeros_give_zero),
                cmocka_unit_test(every_change_of_a_byte_changes_the_fingerprint),
                cmocka_unit_test(swapped_contents_change_the_sum),
                cmocka_unit_test(pages_left_out_count_as_zeros),
                cmocka_unit_test(keys_are_random_and_change_the_fingerprint),
                cmocka_unit_test(each_value_modulo_the_prime_has_one_form),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
