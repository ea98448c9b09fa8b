/* slab.c: owns two bits for each unit of HEAP_SMALL_ALIGN bytes: "used", and "first unit of an
 * allocation". An allocation ends before the next unit that is unused or is a first unit. Some
 * bytes of its last unit may not have been requested.
 * Why: docs/decisions.md, "Small allocations have an allocator of their own". */
#include "preload/heap/slab.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "preload/heap/bits.h"
#include "preload/heap/heap.h"

struct slab {
        uint32_t units, used;
        uint32_t hint; /* upper limit for the longest free run, in units */
        uint32_t next; /* unit where a search starts: consecutive allocations find room at once */
        uint64_t *used_bits, *first_bits;
        /* For the first unit of each allocation: the number of bytes of its last unit that were not
         * requested, and the mark. */
        uint16_t *spare;
        uint64_t bits[];
};

#define SLAB_HOLES 4u      /* free runs that a quick search looks at */
#define MARK       0x8000u /* a bit above every number of spare bytes */

static uint32_t units_of(uint64_t bytes)
{
        return (uint32_t)((bytes + HEAP_SMALL_ALIGN - 1) / HEAP_SMALL_ALIGN);
}

struct slab *slab_new(uint64_t bytes)
{
        uint32_t units = units_of(bytes);
        size_t words = BITS_WORDS(units);
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

/* The state of a search. */
struct search {
        uint32_t at;
        uint32_t longest; /* units in the longest free run seen */
        uint32_t holes;   /* free runs that the search may still look at */
};

/* Moves f->at to the first run of `units` free units before `to`. Returns false if there is none,
 * or when f->holes has come to 0. */
static bool slab_search(const struct slab *s, struct search *f, uint32_t to, uint32_t units)
{
        for (; f->holes > 0; f->holes--) {
                uint32_t end;

                f->at = (uint32_t)bits_next(s->used_bits, f->at, to, false);
                if (f->at == to)
                        return false;
                /* Do not measure the run beyond `units`: most of a slab may be free. */
                end = (uint32_t)bits_next(s->used_bits, f->at, MIN(f->at + units, to), true);
                if (end - f->at == units)
                        return true;
                f->longest = MAX(f->longest, end - f->at);
                f->at = end;
        }
        return false;
}

static void slab_occupy(struct slab *s, uint32_t at, uint32_t units, uint64_t bytes)
{
        bits_set(s->used_bits, at, units, true);
        bits_set(s->first_bits, at, 1, true);
        s->spare[at] = (uint16_t)((uint64_t)units * HEAP_SMALL_ALIGN - bytes);
        s->used += units;
}

int slab_allocate(struct slab *s, uint64_t bytes, bool thorough, uint64_t *ret_offset)
{
        uint32_t units = MAX(units_of(bytes), 1u), at;
        struct search f = {.at = s->next, .holes = thorough ? UINT32_MAX : SLAB_HOLES};
        bool found = slab_search(s, &f, s->units, units);

        if (!found && f.holes > 0) {
                f.at = f.longest = 0;
                found = slab_search(s, &f, s->units, units);
                if (!found && f.holes > 0) /* so that later searches skip a full slab */
                        s->hint = f.longest;
        }
        if (!found) {
                s->next = f.at < s->units ? f.at : 0; /* the next search continues here */
                return -ENOSPC;
        }
        at = f.at;
        slab_occupy(s, at, units, bytes);
        s->next = at + units < s->units ? at + units : 0;
        *ret_offset = (uint64_t)at * HEAP_SMALL_ALIGN;
        return 0;
}

/* Measures the free run around a unit, at most HEAP_SMALL_MAX to each side. Returns its end. */
static uint32_t slab_around(const struct slab *s, uint32_t at, uint32_t *ret_first)
{
        const uint32_t most = HEAP_SMALL_MAX / HEAP_SMALL_ALIGN;
        uint32_t least = at > most ? at - most : 0;
        uint64_t before = at > 0 ? bits_last(s->used_bits, at - 1, least) : BITS_NONE;

        *ret_first = before == BITS_NONE ? least : (uint32_t)before + 1;
        return (uint32_t)bits_next(s->used_bits, at, MIN(at + most, s->units), true);
}

uint64_t slab_hole(const struct slab *s, uint64_t offset, uint64_t *ret_start)
{
        uint32_t at = (uint32_t)(offset / HEAP_SMALL_ALIGN), first, end;

        if (at >= s->units || bits_get(s->used_bits, at))
                return 0;
        end = slab_around(s, at, &first);
        *ret_start = (uint64_t)first * HEAP_SMALL_ALIGN;
        return (uint64_t)(end - first) * HEAP_SMALL_ALIGN;
}

void slab_fill(struct slab *s, uint64_t offset, uint64_t bytes)
{
        slab_occupy(s, (uint32_t)(offset / HEAP_SMALL_ALIGN), MAX(units_of(bytes), 1u), bytes);
}

uint64_t slab_used(const struct slab *s)
{
        return (uint64_t)s->used * HEAP_SMALL_ALIGN;
}

bool slab_find(const struct slab *s, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes)
{
        uint32_t start = (uint32_t)(offset / HEAP_SMALL_ALIGN), end;

        if (start >= s->units || !bits_get(s->used_bits, start))
                return false;
        start = (uint32_t)bits_last(s->first_bits, start, 0);
        end = (uint32_t)MIN(start + HEAP_SMALL_MAX / HEAP_SMALL_ALIGN, s->units);
        end = (uint32_t)bits_next(s->first_bits, start + 1, end, true);
        end = (uint32_t)bits_next(s->used_bits, start, end, false);
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
        bits_set(s->first_bits, at, 1, false);
        bits_set(s->used_bits, at, units, false);
        s->used -= units;
        s->next = at;
        /* Only the free run around the freed units can have become the longest. */
        after = slab_around(s, at, &before);
        s->hint = MAX(s->hint, after - before);
}

bool slab_empty(const struct slab *s)
{
        return s->used == 0;
}
