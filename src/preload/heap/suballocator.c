/* suballocator.c: owns the record of live and free memory in a pool. Must never hand out a
 * suballocation of one stream's free list to another stream. */
#include "preload/heap/suballocator.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "preload/heap/bits.h"
#include "preload/heap/heap.h"

#define NODES_AT_ONCE 256u
#define TRIES         16u /* how many suballocations of a bin a search looks at */
#define BUCKETS_FIRST 256u

/* Unused nodes. They are never freed: a program that had a million allocations will have as many
 * again. */
static struct suballocation *spare;

static struct suballocation *node_new(void)
{
        struct suballocation *n = spare;

        if (!n) {
                struct suballocation *more = calloc(NODES_AT_ONCE, sizeof(*more));

                if (!more)
                        return NULL;
                for (unsigned i = 0; i < NODES_AT_ONCE; i++) {
                        more[i].next = spare;
                        spare = &more[i];
                }
                n = spare;
        }
        spare = n->next;
        *n = (struct suballocation){0};
        return n;
}

static void node_free(struct suballocation *n)
{
        n->next = spare;
        spare = n;
}

/* ---- free lists ---- */

unsigned suballocator_bin(uint64_t bytes)
{
        uint64_t units = bytes / HEAP_SMALL_ALIGN;
        unsigned log = 63 - (unsigned)__builtin_clzll(units | 1);

        if (log < 3)
                return (unsigned)units;
        return MIN((log - 2) * 8 + (unsigned)(units >> (log - 3) & 7), SUBALLOCATOR_BINS - 1u);
}

static void bin_put(struct free_list *l, struct suballocation *p)
{
        unsigned i = suballocator_bin(p->bytes);

        p->next = l->bins[i];
        p->link = &l->bins[i];
        if (p->next)
                p->next->link = &p->next;
        l->bins[i] = p;
        l->filled[i / 64] |= UINT64_C(1) << (i % 64);
        l->bytes += p->bytes;
}

static void bin_take(struct suballocation *p)
{
        struct free_list *l = p->free_list;
        unsigned i = suballocator_bin(p->bytes);

        *p->link = p->next;
        if (p->next)
                p->next->link = p->link;
        if (!l->bins[i])
                l->filled[i / 64] &= ~(UINT64_C(1) << (i % 64));
        l->bytes -= p->bytes;
}

static void age_append(struct free_list *l, struct suballocation *p)
{
        p->older = l->newest;
        p->newer = NULL;
        if (l->newest)
                l->newest->newer = p;
        else
                l->oldest = p;
        l->newest = p;
}

static void age_remove(struct suballocation *p)
{
        struct free_list *l = p->free_list;

        if (p->older)
                p->older->newer = p->newer;
        else
                l->oldest = p->newer;
        if (p->newer)
                p->newer->older = p->older;
        else
                l->newest = p->older;
}

static void free_list_remove(struct suballocation *p)
{
        bin_take(p);
        age_remove(p);
        p->free_list = NULL;
}

/* ---- neighbours ---- */

/* Adds the higher neighbour to p; that neighbour must be in no list. */
static void swallow_higher(struct suballocation *p)
{
        struct suballocation *h = p->higher;

        p->bytes += h->bytes;
        p->higher = h->higher;
        if (p->higher)
                p->higher->lower = p;
        node_free(h);
}

static void swallow_lower(struct suballocation *p)
{
        struct suballocation *l = p->lower;

        p->address = l->address;
        p->bytes += l->bytes;
        p->lower = l->lower;
        if (p->lower)
                p->lower->higher = p;
        else
                p->chunk->lowest = p;
        node_free(l);
}

/* Puts a suballocation that is in no list into this free list, joined with free neighbours there.
 */
static void free_list_put(struct free_list *l, struct suballocation *p, uint64_t number)
{
        if (p->lower && p->lower->free_list == l) {
                free_list_remove(p->lower);
                swallow_lower(p);
        }
        if (p->higher && p->higher->free_list == l) {
                free_list_remove(p->higher);
                swallow_higher(p);
        }
        p->free_list = l;
        p->number = number;
        bin_put(l, p);
        age_append(l, p);
}

/* ---- live suballocations by address ---- */

static struct suballocation **bucket(const struct suballocator *p, CUdeviceptr address)
{
        uint64_t hash = address / HEAP_SMALL_ALIGN * UINT64_C(0x9e3779b97f4a7c15);

        return &p->buckets[hash >> 32 & (p->bucket_count - 1)];
}

static void bucket_put(struct suballocation **b, struct suballocation *p)
{
        p->next = *b;
        p->link = b;
        if (p->next)
                p->next->link = &p->next;
        *b = p;
}

static void bucket_take(struct suballocator *p, struct suballocation *n)
{
        *n->link = n->next;
        if (n->next)
                n->next->link = n->link;
        p->live--;
}

static int buckets_make_room(struct suballocator *p)
{
        uint64_t old_count = p->bucket_count;
        struct suballocation **old = p->buckets, **more;

        if (p->live < old_count)
                return 0;
        more = calloc(MAX(old_count * 2, BUCKETS_FIRST), sizeof(struct suballocation *));
        if (!more)
                return old_count ? 0 : -ENOMEM; /* the old buckets still work, with longer lists */
        p->buckets = more;
        p->bucket_count = MAX(old_count * 2, BUCKETS_FIRST);
        for (uint64_t i = 0; i < old_count; i++)
                for (struct suballocation *n = old[i], *next; n; n = next) {
                        next = n->next;
                        bucket_put(bucket(p, n->address), n);
                }
        free(old);
        return 0;
}

static uint64_t unit_of(const struct chunk *c, CUdeviceptr address)
{
        return (address - c->block->address) / HEAP_SMALL_ALIGN;
}

struct suballocation *suballocator_at(const struct suballocator *p, CUdeviceptr address)
{
        struct suballocation *n = p->bucket_count ? *bucket(p, address) : NULL;

        while (n && n->address != address)
                n = n->next;
        return n;
}

struct suballocation *suballocator_around(const struct chunk *c, CUdeviceptr address)
{
        uint64_t start = bits_last(c->starts, unit_of(c, address), 0);
        struct suballocation *n;

        if (start == BITS_NONE)
                return NULL;
        n = suballocator_at(c->suballocator, c->block->address + start * HEAP_SMALL_ALIGN);
        return n && address - n->address < n->requested ? n : NULL;
}

/* ---- adding, removing and searching blocks ---- */

int suballocator_add(struct suballocator *p, struct block *b)
{
        struct chunk *c = calloc(1, sizeof(*c));
        struct suballocation *n = node_new();

        /* Most of the bits are never touched, so the array takes little memory. */
        if (c)
                c->starts = calloc(BITS_WORDS(b->bytes / HEAP_SMALL_ALIGN), sizeof(*c->starts));
        if (!c || !c->starts || !n) {
                if (n)
                        node_free(n);
                free(c ? c->starts : NULL);
                free(c);
                return -ENOMEM;
        }
        c->suballocator = p;
        c->block = b;
        c->lowest = n;
        c->next = p->chunks;
        p->chunks = c;
        b->chunk = c;
        n->address = b->address;
        n->bytes = b->bytes;
        n->chunk = c;
        free_list_put(&p->common, n, 0);
        return 0;
}

void suballocator_remove(struct suballocator *p, struct chunk *c)
{
        struct chunk **link = &p->chunks;

        heap_note_change();
        for (struct suballocation *n = c->lowest, *higher; n; n = higher) {
                higher = n->higher;
                if (n->free_list)
                        free_list_remove(n);
                else
                        bucket_take(p, n);
                node_free(n);
        }
        while (*link != c)
                link = &(*link)->next;
        *link = c->next;
        c->block->chunk = NULL;
        free(c->starts);
        free(c);
}

void suballocator_clear(struct suballocator *p)
{
        free(p->buckets);
        *p = (struct suballocator){0};
}

static bool fits(const struct suballocation *p, uint64_t bytes, bool in_use_only)
{
        return p->bytes >= bytes &&
               (!in_use_only || heap_use_cost(p->chunk->block, p->address, bytes) == 0);
}

struct suballocation *suballocator_fit(const struct free_list *l, uint64_t bytes, bool in_use_only)
{
        if (l->bytes < bytes)
                return NULL;
        /* Suballocations in the first bin may be too small; in later bins all are large enough. */
        for (uint64_t i = suballocator_bin(bytes);
             (i = bits_next(l->filled, i, SUBALLOCATOR_BINS, true)) < SUBALLOCATOR_BINS; i++) {
                unsigned tries = TRIES;

                for (struct suballocation *p = l->bins[i]; p && tries > 0; p = p->next, tries--)
                        if (fits(p, bytes, in_use_only))
                                return p;
        }
        return NULL;
}

/* Moves this many bytes to p from its lower or higher neighbour, which is in the common list. p
 * stays in its own free list. */
static void borrow(struct suballocation *p, uint64_t bytes, bool from_lower)
{
        struct suballocation *from = from_lower ? p->lower : p->higher;
        struct free_list *common = from->free_list;
        uint64_t number = from->number;

        bin_take(p);
        if (bytes == from->bytes) {
                free_list_remove(from);
                if (from_lower)
                        swallow_lower(p);
                else
                        swallow_higher(p);
        } else {
                bin_take(from);
                from->bytes -= bytes;
                p->bytes += bytes;
                if (from_lower)
                        p->address -= bytes;
                else
                        from->address += bytes;
                from->number = number;
                bin_put(common, from);
        }
        bin_put(p->free_list, p);
}

struct suballocation *suballocator_join(struct suballocator *p, struct free_list *l, uint64_t bytes,
                                        bool in_use_only)
{
        unsigned tries = 64 * TRIES;

        bytes = align_up(bytes, HEAP_SMALL_ALIGN);
        for (struct suballocation *n = l->newest; n && tries > 0; n = n->older, tries--) {
                uint64_t lower =
                        n->lower && n->lower->free_list == &p->common ? n->lower->bytes : 0;
                uint64_t higher =
                        n->higher && n->higher->free_list == &p->common ? n->higher->bytes : 0;
                uint64_t more = sub_sat(bytes, n->bytes), from_lower;

                if (lower + higher < more)
                        continue;
                from_lower = sub_sat(more, higher);
                if (in_use_only && heap_use_cost(n->chunk->block, n->address - from_lower, bytes))
                        continue;
                if (more > from_lower)
                        borrow(n, more - from_lower, false);
                if (from_lower)
                        borrow(n, from_lower, true);
                return n;
        }
        return NULL;
}

struct suballocation *suballocator_take(struct suballocator *p, struct suballocation *from,
                                        uint64_t bytes)
{
        uint64_t whole = align_up(bytes, HEAP_SMALL_ALIGN);
        struct suballocation *n = from;

        if (buckets_make_room(p) < 0)
                return NULL;
        if (from->bytes > whole) {
                n = node_new();
                if (!n)
                        return NULL;
                bin_take(from);
                *n = (struct suballocation){.address = from->address,
                                            .bytes = whole,
                                            .chunk = from->chunk,
                                            .lower = from->lower,
                                            .higher = from};
                if (n->lower)
                        n->lower->higher = n;
                else
                        n->chunk->lowest = n;
                from->lower = n;
                from->address += whole;
                from->bytes -= whole;
                bin_put(from->free_list, from);
        } else {
                free_list_remove(n);
        }
        n->requested = bytes;
        bits_set(n->chunk->starts, unit_of(n->chunk, n->address), 1, true);
        bucket_put(bucket(p, n->address), n);
        p->live++;
        return n;
}

void suballocator_give(struct suballocator *p, struct suballocation *dead, struct free_list *l,
                       uint64_t number)
{
        heap_note_change();
        bucket_take(p, dead);
        bits_set(dead->chunk->starts, unit_of(dead->chunk, dead->address), 1, false);
        free_list_put(l, dead, number);
}

void suballocator_pass(struct free_list *from, uint64_t up_to, struct free_list *to,
                       uint64_t number)
{
        struct suballocation *p;

        while ((p = from->oldest) && p->number <= up_to) {
                free_list_remove(p);
                free_list_put(to, p, number);
        }
}
