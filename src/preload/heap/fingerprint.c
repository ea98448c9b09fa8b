/* fingerprint.c: owns the keys of fingerprints, and the host's part of the arithmetic. Must never
 * let a key leave the process, nor use one key for two processes.
 * Why: docs/decisions.md, "A kernel checks whether memory has changed". */
#include "preload/heap/fingerprint.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline unsigned long long field_multiply_add(unsigned int a, unsigned int b,
                                                    unsigned long long c)
{
        return c + (unsigned long long)a * b;
}

#define FIELD_FUNCTION static
#include "preload/heap/fingerprint_field.h"

_Static_assert(FINGERPRINT_CHUNK == 16 * FINGERPRINT_THREADS * FINGERPRINT_WORDS, "chunk");
_Static_assert(FINGERPRINT_BLOCK_THREADS == FINGERPRINT_THREADS, "block");
_Static_assert(FINGERPRINT_PAGE == FINGERPRINT_CHUNK * FINGERPRINT_PAGE_CHUNKS, "page");
_Static_assert(FINGERPRINT_MAX == FINGERPRINT_CHUNK * FINGERPRINT_CHUNKS_MAX, "launch");

struct fingerprint_key {
        struct fingerprint step; /* key^FINGERPRINT_THREADS */
        uint32_t powers[FINGERPRINT_POWERS];
};

struct fingerprint fingerprint_from(const uint64_t sums[FINGERPRINT_SUMS])
{
        struct fingerprint f = {{0}};
        uint64_t carry = 0;

        /* Three rounds: the first reduces the limbs to 26 bits with a small carry, the others
         * reduce that carry. */
        for (unsigned i = 0; i < 5; i++) {
                carry += sums[i];
                f.limb[i] = (uint32_t)carry & FIELD_LOW;
                carry >>= 26;
        }
        for (unsigned round = 0; round < 2; round++) {
                carry *= 5;
                for (unsigned i = 0; i < 5; i++) {
                        carry += f.limb[i];
                        f.limb[i] = (uint32_t)carry & FIELD_LOW;
                        carry >>= 26;
                }
        }
        /* The value is below 2^130 now; if it is 2^130 - 5 or more, reduce it once. */
        if (f.limb[0] >= FIELD_LOW - 4 && f.limb[1] == FIELD_LOW && f.limb[2] == FIELD_LOW &&
            f.limb[3] == FIELD_LOW && f.limb[4] == FIELD_LOW)
                f = (struct fingerprint){{f.limb[0] - (FIELD_LOW - 4)}};
        return f;
}

static struct fingerprint multiply(const struct fingerprint *a, const struct fingerprint *b)
{
        struct field_value x, y;
        uint64_t sums[FINGERPRINT_SUMS];

        memcpy(x.limb, a->limb, sizeof(x.limb));
        memcpy(y.limb, b->limb, sizeof(y.limb));
        x = field_multiply(x, y);
        for (unsigned i = 0; i < 5; i++)
                sums[i] = x.limb[i];
        return fingerprint_from(sums);
}

struct fingerprint_key *fingerprint_key_from(const uint8_t bytes[17])
{
        struct fingerprint key = {{0}}, chunk, power;
        struct fingerprint_key *k;
        uint64_t sums[FINGERPRINT_SUMS] = {0};

        for (unsigned bit = 0; bit < 130; bit++)
                sums[bit / 26] |= (uint64_t)(bytes[bit / 8] >> bit % 8 & 1) << bit % 26;
        key = fingerprint_from(sums);
        for (unsigned i = 0; i < 5; i++)
                if (key.limb[i] != sums[i])
                        return NULL;
        k = calloc(1, sizeof(*k));
        if (!k)
                return NULL;
        power = key;
        for (unsigned t = 0; t < FINGERPRINT_THREADS; t++) {
                for (unsigned i = 0; i < 5; i++)
                        k->powers[i * FINGERPRINT_THREADS + t] = power.limb[i];
                k->step = power;
                power = multiply(&power, &key);
        }
        chunk = k->step;
        for (unsigned i = 1; i < FINGERPRINT_WORDS; i++)
                chunk = multiply(&chunk, &k->step);
        power = (struct fingerprint){{1}};
        for (unsigned c = 0; c < FINGERPRINT_CHUNKS_MAX; c++) {
                uint32_t *at = &k->powers[5 * FINGERPRINT_THREADS + c];

                for (unsigned i = 0; i < 5; i++)
                        at[i * FINGERPRINT_CHUNKS_MAX] = power.limb[i];
                power = multiply(&power, &chunk);
        }
        return k;
}

struct fingerprint_key *fingerprint_key_draw(void)
{
        uint8_t bytes[17];

        if (syscall(SYS_getrandom, bytes, sizeof(bytes), 1 /* GRND_NONBLOCK */) != sizeof(bytes))
                return NULL;
        bytes[16] &= 3;
        return fingerprint_key_from(bytes);
}

const void *fingerprint_key_powers(const struct fingerprint_key *k, uint64_t *ret_bytes)
{
        *ret_bytes = sizeof(k->powers);
        return k->powers;
}

const struct fingerprint *fingerprint_key_step(const struct fingerprint_key *k)
{
        return &k->step;
}

bool fingerprint_equal(const struct fingerprint *a, const struct fingerprint *b)
{
        return memcmp(a, b, sizeof(*a)) == 0;
}

bool fingerprint_is_zero(const struct fingerprint *f)
{
        return fingerprint_equal(f, &(struct fingerprint){{0}});
}
