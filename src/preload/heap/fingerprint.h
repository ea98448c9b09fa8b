/* fingerprint.h: a keyed 130-bit fingerprint of memory on a GPU, computed there.
 *
 * The contents, taken as words m[0] .. m[n-1] of 16 bytes, have the fingerprint
 * sum of m[i] * key^(i+1) in the field of 2^130 - 5, with a key that is drawn at random for each
 * process. Of two different contents of n words at most n of all 2^130 - 5 keys give equal ones:
 * for 128 MiB, 2^23 words, the probability is below 2^-107, whatever the contents are and as long
 * as they were not chosen with the key known. Memory that is all zero has the fingerprint zero, and
 * other memory has it with the same probability. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* One block of threads reads so much; memory is fingerprinted in multiples of it. */
#define FINGERPRINT_CHUNK (UINT64_C(128) << 10)
#define FINGERPRINT_PAGE  (UINT64_C(2) << 20)   /* a page that is left out counts as zero */
#define FINGERPRINT_MAX   (UINT64_C(128) << 20) /* at a time */

/* The kernel's PTX as a C string, and its parameters. */
extern const char fingerprint_ptx[] __attribute__((visibility("hidden")));
#define FINGERPRINT_KERNEL        "fingerprint" /* (data, result, step), one block a chunk */
#define FINGERPRINT_BLOCK_THREADS 256
#define FINGERPRINT_POWERS_VARIABLE \
        "fingerprint_powers" /* a device variable: the powers of the key */

struct fingerprint {
        uint32_t limb[5]; /* limbs of 26 bits; each value has one form */
};

struct fingerprint_key;

/* From the kernel's random numbers. NULL: none to be had, or no memory. The caller frees it. */
struct fingerprint_key *fingerprint_key_draw(void);
/* The low 130 bits of these bytes as a key. NULL: no memory, or not below 2^130 - 5. */
struct fingerprint_key *fingerprint_key_from(const uint8_t bytes[17]);
const void *fingerprint_key_powers(const struct fingerprint_key *k, uint64_t *ret_bytes);
/* The kernel's last parameter. */
const struct fingerprint *fingerprint_key_step(const struct fingerprint_key *k);

/* From the result that the kernel has written. */
#define FINGERPRINT_SUMS 5
struct fingerprint fingerprint_from(const uint64_t sums[FINGERPRINT_SUMS]);
bool fingerprint_equal(const struct fingerprint *a, const struct fingerprint *b);
bool fingerprint_is_zero(const struct fingerprint *f);
