/* slab.c: owns two bits a unit of HEAP_SMALL_ALIGN bytes: used, and first of its allocation. An
 * allocation's size is the distance to the next first or unused unit, so nothing else need be kept.
 */
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
        uint64_t bits[];
};

static bool bit(const uint64_t *bits, uint32_t i)
{
        return bits[i / 64] >> (i % 64) & 1;
}

static void bit_set(uint64_t *bits, uint32_t i, bool on)
{
        if (on)
                bits[i / 64] |= UINT64_C(1) << (i % 64);
        else
                bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

static uint32_t units_of(uint64_t bytes)
{
        return (uint32_t)((bytes + HEAP_SMALL_ALIGN - 1) / HEAP_SMALL_ALIGN);
}

struct slab *slab_new(uint64_t bytes)
{
        uint32_t units = units_of(bytes), words = (units + 63) / 64;
        struct slab *s = calloc(1, sizeof(*s) + 2 * words * sizeof(uint64_t));

        if (!s)
                return NULL;
        s->units = s->hint = units;
        s->used_bits = s->bits;
        s->first_bits = s->bits + words;
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
        uint32_t start = from, i = from;

        while (i < to) {
                if (i % 64 == 0 && s->used_bits[i / 64] == UINT64_MAX) {
                        i += 64;
                        start = i;
                        continue;
                }
                if (bit(s->used_bits, i))
                        start = i + 1;
                else if (i + 1 - start == units)
                        return start;
                i++;
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
        for (uint32_t i = at; i < at + units; i++)
                bit_set(s->used_bits, i, true);
        bit_set(s->first_bits, at, true);
        s->used += units;
        s->next = at + units < s->units ? at + units : 0;
        *ret_offset = (uint64_t)at * HEAP_SMALL_ALIGN;
        return 0;
}

bool slab_find(const struct slab *s, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes)
{
        uint32_t start = (uint32_t)(offset / HEAP_SMALL_ALIGN), end = start + 1;

        if (start >= s->units || !bit(s->used_bits, start))
                return false;
        while (!bit(s->first_bits, start))
                start--;
        while (end < s->units && bit(s->used_bits, end) && !bit(s->first_bits, end))
                end++;
        *ret_start = (uint64_t)start * HEAP_SMALL_ALIGN;
        *ret_bytes = (uint64_t)(end - start) * HEAP_SMALL_ALIGN;
        return true;
}

void slab_free(struct slab *s, uint64_t start)
{
        uint64_t first, bytes;
        uint32_t at;

        if (!slab_find(s, start, &first, &bytes))
                return;
        at = (uint32_t)(first / HEAP_SMALL_ALIGN);
        bit_set(s->first_bits, at, false);
        for (uint32_t i = at; i < at + units_of(bytes); i++)
                bit_set(s->used_bits, i, false);
        s->used -= units_of(bytes);
        s->next = at;
        s->hint = s->units - s->used; /* runs may have joined: the only bound that is certain */
}

bool slab_empty(const struct slab *s)
{
        return s->used == 0;
}
