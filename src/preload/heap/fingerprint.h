/* fingerprint.h: a keyed 130-bit fingerprint of memory on a GPU, computed there.
 *
 * The fingerprint of the words m[0] .. m[n-1] of 16 bytes is the sum of m[i] * key^(i+1) in the
 * field of 2^130 - 5. Each process draws a random key. For two different contents at most n of the
 * 2^130 - 5 keys give equal fingerprints: for 128 MiB (2^23 words) a probability below 2^-107,
 * unless the contents were chosen by someone who knows the key. Memory that is all zero has the
 * fingerprint zero; other memory has that fingerprint with the same small probability. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The bytes that one block of threads reads; memory is fingerprinted in multiples of it. */
#define FINGERPRINT_CHUNK (UINT64_C(128) << 10)
#define FINGERPRINT_PAGE  (UINT64_C(2) << 20)   /* a page that is left out counts as zero */
#define FINGERPRINT_MAX   (UINT64_C(128) << 20) /* most bytes of one launch */

/* The kernel's PTX as a C string, and its parameters. */
extern const char fingerprint_ptx[] __attribute__((visibility("hidden")));
#define FINGERPRINT_KERNEL        "fingerprint" /* (data, result, pages, step), one block a chunk */
#define FINGERPRINT_BLOCK_THREADS 256
#define FINGERPRINT_POWERS_VARIABLE \
        "fingerprint_powers" /* a device variable: the powers of the key */

struct fingerprint {
        uint32_t limb[5]; /* limbs of 26 bits, fully reduced: equal values have equal limbs */
};

struct fingerprint_key;

/* Draws a key from the operating system's random numbers. NULL: no random numbers, or no memory.
 * The caller frees the key. */
struct fingerprint_key *fingerprint_key_draw(void);
/* Makes a key of the low 130 bits of these bytes. NULL: the number is not below 2^130 - 5, or there
 * is no memory. */
struct fingerprint_key *fingerprint_key_from(const uint8_t bytes[17]);
const void *fingerprint_key_powers(const struct fingerprint_key *k, uint64_t *ret_bytes);
/* Returns the kernel's last parameter. */
const struct fingerprint *fingerprint_key_step(const struct fingerprint_key *k);

/* fingerprint_from() makes a fingerprint of the sums that the kernel has written. */
#define FINGERPRINT_SUMS 5
struct fingerprint fingerprint_from(const uint64_t sums[FINGERPRINT_SUMS]);
bool fingerprint_equal(const struct fingerprint *a, const struct fingerprint *b);
bool fingerprint_is_zero(const struct fingerprint *f);
