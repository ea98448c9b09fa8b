/* bits.h: long rows of bits, searched word by word. A row consists of whole words; the parameter
 * `to` keeps a search from finding bits past the last one in use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define BITS_A_WORD   UINT64_C(64)
#define BITS_WORDS(n) (((n) + BITS_A_WORD - 1) / BITS_A_WORD)
#define BITS_NONE     UINT64_MAX

static inline bool bits_get(const uint64_t *bits, uint64_t i)
{
        return bits[i / BITS_A_WORD] >> (i % BITS_A_WORD) & 1;
}

static inline void bits_set(uint64_t *bits, uint64_t from, uint64_t count, bool on)
{
        while (count > 0) {
                uint64_t shift = from % BITS_A_WORD, n = MIN(count, BITS_A_WORD - shift);
                uint64_t mask = UINT64_MAX >> (BITS_A_WORD - n) << shift;

                if (on)
                        bits[from / BITS_A_WORD] |= mask;
                else
                        bits[from / BITS_A_WORD] &= ~mask;
                from += n;
                count -= n;
        }
}

/* Returns the index of the first bit in [from, to) that is set (on) or clear (!on). Returns `to` if
 * there is none. */
static inline uint64_t bits_next(const uint64_t *bits, uint64_t from, uint64_t to, bool on)
{
        uint64_t flip = on ? 0 : UINT64_MAX, word;

        if (from >= to)
                return to;
        word = (bits[from / BITS_A_WORD] ^ flip) & UINT64_MAX << (from % BITS_A_WORD);
        while (word == 0) {
                from = (from / BITS_A_WORD + 1) * BITS_A_WORD;
                if (from >= to)
                        return to;
                word = bits[from / BITS_A_WORD] ^ flip;
        }
        return MIN((from & ~(BITS_A_WORD - 1)) + (uint64_t)__builtin_ctzll(word), to);
}

/* Returns the index of the last set bit in [least, from], or BITS_NONE. The search reads whole
 * words, so it may also find a bit below `least` in the same word. */
static inline uint64_t bits_last(const uint64_t *bits, uint64_t from, uint64_t least)
{
        uint64_t i = from / BITS_A_WORD;
        uint64_t word = bits[i] & UINT64_MAX >> (BITS_A_WORD - 1 - from % BITS_A_WORD);

        while (word == 0) {
                if (i == least / BITS_A_WORD)
                        return BITS_NONE;
                word = bits[--i];
        }
        return i * BITS_A_WORD + BITS_A_WORD - 1 - (uint64_t)__builtin_clzll(word);
}
