/* slab.c: owns two bits a unit of HEAP_SMALL_ALIGN bytes: used, and first of its allocation. An
 * allocation's size is the distance to the next first or unused unit, less what of the last one
 * was not asked for. */
#include "preload/slab.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "preload/heap.h"

struct slab {
        uint32_t units, used;
        uint32_t hint; /* the longest free run is at most this */
        uint32_t next; /* search from here: allocations in a row find room at once */
        uint64_t *used_bits, *first_bits;
        uint16_t *spare; /* by the first unit: bytes of the last one that were not asked for, and
                          * the mark */
        uint64_t bits[];
};

#define WORD_BITS 64u
#define MARK      0x8000u /* beyond what is ever spare */

static bool bit(const uint64_t *bits, uint32_t i)
{
        return bits[i / WORD_BITS] >> (i % WORD_BITS) & 1;
}

static void bit_set(uint64_t *bits, uint32_t i, bool on)
{
        if (on)
                bits[i / WORD_BITS] |= UINT64_C(1) << (i % WORD_BITS);
        else
                bits[i / WORD_BITS] &= ~(UINT64_C(1) << (i % WORD_BITS));
}

static void bits_set(uint64_t *bits, uint32_t from, uint32_t count, bool on)
{
        while (count > 0) {
                uint32_t shift = from % WORD_BITS, n = MIN(count, WORD_BITS - shift);
                uint64_t mask = UINT64_MAX >> (WORD_BITS - n) << shift;

                if (on)
                        bits[from / WORD_BITS] |= mask;
                else
                        bits[from / WORD_BITS] &= ~mask;
                from += n;
                count -= n;
        }
}

/* The first bit of this value in [from, to); to where there is none. Past the last unit there are
 * whole words only. */
static uint32_t bits_next(const uint64_t *bits, uint32_t from, uint32_t to, bool on)
{
        uint64_t flip = on ? 0 : UINT64_MAX, word;

        if (from >= to)
                return to;
        word = (bits[from / WORD_BITS] ^ flip) & UINT64_MAX << (from % WORD_BITS);
        while (word == 0) {
                from = (from / WORD_BITS + 1) * WORD_BITS;
                if (from >= to)
                        return to;
                word = bits[from / WORD_BITS] ^ flip;
        }
        return MIN((from & ~(WORD_BITS - 1)) + (uint32_t)__builtin_ctzll(word), to);
}

/* The last set bit at or below `from`; UINT32_MAX where there is none. */
static uint32_t bits_last(const uint64_t *bits, uint32_t from)
{
        uint32_t i = from / WORD_BITS;
        uint64_t word = bits[i] & UINT64_MAX >> (WORD_BITS - 1 - from % WORD_BITS);

        while (word == 0) {
                if (i == 0)
                        return UINT32_MAX;
                word = bits[--i];
        }
        return i * WORD_BITS + WORD_BITS - 1 - (uint32_t)__builtin_clzll(word);
}

static uint32_t units_of(uint64_t bytes)
{
        return (uint32_t)((bytes + HEAP_SMALL_ALIGN - 1) / HEAP_SMALL_ALIGN);
}

struct slab *slab_new(uint64_t bytes)
{
        uint32_t units = units_of(bytes), words = (units + 63) / 64;
        struct slab *s =
                calloc(1, sizeof(*s) + 2 * words * sizeof(uint64_t) + units * sizeof(uint16_t));

        if (!s)
                return NULL;
        s->units = s->hint = units;
        s->used_bits = s->bits;
        s->first_bits = s->bits + words;
        s->spare = (uint16_t *)(s->bits + 2 * words);
        return s;
}

void slab_delete(struct slab *s)
{
        free(s);
}

bool slab_may_fit(const struct slab *s, uint64_t bytes)
{
        return units_of(bytes) <= s->hint;
}

/* First run of `units` free units that lies in [from, to). to where there is none. */
static uint32_t slab_run(const struct slab *s, uint32_t from, uint32_t to, uint32_t units)
{
        uint32_t start = bits_next(s->used_bits, from, to, false);

        while (start < to) {
                /* No further than needed: most of a slab may be free. */
                uint32_t enough = MIN(start + units, to);
                uint32_t end = bits_next(s->used_bits, start, enough, true);

                if (end - start == units)
                        return start;
                start = bits_next(s->used_bits, end, to, false);
        }
        return to;
}

int slab_allocate(struct slab *s, uint64_t bytes, uint64_t *ret_offset)
{
        uint32_t units = MAX(units_of(bytes), 1u);
        uint32_t at = slab_run(s, s->next, s->units, units);

        if (at == s->units) {
                at = slab_run(s, 0, s->units, units);
                if (at == s->units) {
                        s->hint = units - 1;
                        return -ENOSPC;
                }
        }
        bits_set(s->used_bits, at, units, true);
        bit_set(s->first_bits, at, true);
        s->spare[at] = (uint16_t)((uint64_t)units * HEAP_SMALL_ALIGN - bytes);
        s->used += units;
        s->next = at + units < s->units ? at + units : 0;
        *ret_offset = (uint64_t)at * HEAP_SMALL_ALIGN;
        return 0;
}

bool slab_find(const struct slab *s, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes)
{
        uint32_t start = (uint32_t)(offset / HEAP_SMALL_ALIGN), end;

        if (start >= s->units || !bit(s->used_bits, start))
                return false;
        start = bits_last(s->first_bits, start);
        end = bits_next(s->used_bits, start, s->units, false);
        end = bits_next(s->first_bits, start + 1, end, true);
        *ret_start = (uint64_t)start * HEAP_SMALL_ALIGN;
        *ret_bytes = (uint64_t)(end - start) * HEAP_SMALL_ALIGN - (s->spare[start] & ~MARK);
        return offset < *ret_start + *ret_bytes;
}

void slab_mark(struct slab *s, uint64_t start, bool on)
{
        uint16_t *spare = &s->spare[start / HEAP_SMALL_ALIGN];

        *spare = (uint16_t)((*spare & ~MARK) | (on ? MARK : 0));
}

bool slab_marked(const struct slab *s, uint64_t start)
{
        return s->spare[start / HEAP_SMALL_ALIGN] & MARK;
}

void slab_free(struct slab *s, uint64_t start)
{
        uint64_t first, bytes;
        uint32_t at, units, before, after;

        if (!slab_find(s, start, &first, &bytes))
                return;
        at = (uint32_t)(first / HEAP_SMALL_ALIGN);
        units = units_of(bytes);
        bit_set(s->first_bits, at, false);
        bits_set(s->used_bits, at, units, false);
        s->used -= units;
        s->next = at;
        /* The run that it is now part of; all others are as long as they were. */
        before = at > 0 ? bits_last(s->used_bits, at - 1) + 1 : 0;
        after = bits_next(s->used_bits, at, s->units, true);
        s->hint = MAX(s->hint, after - before);
}

bool slab_empty(const struct slab *s)
{
        return s->used == 0;
}
