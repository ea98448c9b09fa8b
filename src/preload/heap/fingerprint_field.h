/* fingerprint_field.h: the arithmetic that fingerprint.c and fingerprint.cu share.
 *
 * A value of the field of 2^130 - 5 is five limbs of 26 bits; limbs may be a little larger between
 * two steps. The file that includes this one defines FIELD_FUNCTION, which begins each declaration,
 * and field_multiply_add(a, b, c): a * b + c, where a and b have 32 bits and c has 64. */
#pragma once

#define FIELD_LOW 0x3ffffffu

#define FINGERPRINT_THREADS     256 /* threads of one block, which reads one chunk */
#define FINGERPRINT_WORDS       32  /* words of 16 bytes that each thread reads */
#define FINGERPRINT_PAGE_CHUNKS 16
#define FINGERPRINT_CHUNKS_MAX  1024 /* chunks of one launch: 128 MiB */
#define FINGERPRINT_POWERS      (5 * (FINGERPRINT_THREADS + FINGERPRINT_CHUNKS_MAX))

struct field_value {
        unsigned int limb[5];
};

/* Returns a * b. The limbs of a may have up to 29 bits. The limbs of b and of the result may be a
 * little larger than 26 bits. */
FIELD_FUNCTION struct field_value field_multiply(struct field_value a, struct field_value b)
{
        unsigned long long d, carry = 0;
        struct field_value r;

#pragma GCC unroll 5
        for (int i = 0; i < 5; i++) {
                d = carry;
#pragma GCC unroll 5
                for (int j = 0; j < 5; j++)
                        d = field_multiply_add(a.limb[j],
                                               j <= i ? b.limb[i - j] : 5 * b.limb[5 + i - j], d);
                r.limb[i] = (unsigned int)d & FIELD_LOW;
                carry = d >> 26;
        }
        carry = carry * 5 + r.limb[0];
        r.limb[0] = (unsigned int)carry & FIELD_LOW;
        r.limb[1] += (unsigned int)(carry >> 26);
        return r;
}
