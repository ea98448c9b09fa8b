/* heap.c: owns the address space and the accounts of allocated memory. Must never touch the memory
 * behind an address: only swap.c does. */
#include "preload/heap/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "preload/heap/suballocator.h"
#include "preload/driver/real.h"
#include "preload/heap/slab.h"
#include "preload/heap/spaces.h"

_Atomic uint64_t heap_changes = 1;

void heap_init(struct heap *h, uint64_t gpu_bytes)
{
        uint64_t part = gpu_bytes / 16 & ~(HEAP_GRANULARITY - 1);

        *h = (struct heap){
                .reserve_bytes = align_up(gpu_bytes, HEAP_GRANULARITY) * 4,
                .extent_bytes = MIN(MAX(part, HEAP_GRANULARITY), HEAP_EXTENT_MAX),
        };
}

size_t heap_locate(const struct heap *h, CUdeviceptr address)
{
        size_t low = 0, high = h->count;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (h->blocks[middle]->address <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low ? low - 1 : h->count;
}

/* Makes room for one more block in a list. */
static int list_grow(struct block ***list, size_t count, size_t *room)
{
        size_t more = *room ? *room * 2 : 256;
        struct block **blocks;

        if (count < *room)
                return 0;
        blocks = realloc(*list, more * sizeof(*blocks));
        if (!blocks)
                return -ENOMEM;
        *list = blocks;
        *room = more;
        return 0;
}

static int heap_insert(struct heap *h, size_t at, struct block *b)
{
        if (list_grow(&h->blocks, h->count, &h->room) < 0)
                return -ENOMEM;
        memmove(&h->blocks[at + 1], &h->blocks[at], (h->count - at) * sizeof(*h->blocks));
        h->blocks[at] = b;
        h->count++;
        return 0;
}

static void heap_remove(struct heap *h, size_t at)
{
        memmove(&h->blocks[at], &h->blocks[at + 1], (h->count - at - 1) * sizeof(*h->blocks));
        h->count--;
}

/* Reserves more address space. Reservations are never given back: they cost nothing, and addresses
 * must not change. */
static int heap_reserve(struct heap *h, uint64_t at_least)
{
        uint64_t bytes = MAX(h->reserve_bytes, align_up(at_least, HEAP_GRANULARITY));
        struct block *b = calloc(1, sizeof(*b));
        CUdeviceptr address;
        size_t at;

        if (!b)
                return -ENOMEM;
        if (real.cuMemAddressReserve(&address, bytes, HEAP_GRANULARITY, 0, 0) != CUDA_SUCCESS) {
                free(b);
                return -ENOMEM;
        }
        *b = (struct block){.address = address, .bytes = bytes, .kind = BLOCK_FREE};
        at = heap_locate(h, address);
        if (heap_insert(h, at == h->count ? 0 : at + 1, b) < 0) {
                (void)real.cuMemAddressFree(address, bytes);
                free(b);
                return -ENOMEM;
        }
        spaces_add(&h->spaces, b);
        heap_note_change();
        return 0;
}

/* Finds the lowest free block that is large enough: first fit keeps long-lived allocations together
 * at the low end. Managed memory goes back to the driver in one piece, so a managed block must have
 * exactly this size. */
static size_t heap_fit(const struct heap *h, uint64_t bytes)
{
        const struct block *b;

        if (!h->managed) {
                b = spaces_fit(h->spaces, bytes);
                return b ? heap_locate(h, b->address) : h->count;
        }
        for (size_t i = 0; i < h->count; i++)
                if (h->blocks[i]->kind == BLOCK_FREE && h->blocks[i]->bytes == bytes)
                        return i;
        return h->count;
}

static int block_make_extents(struct block *b)
{
        unsigned count = (unsigned)((b->bytes + b->extent_bytes - 1) / b->extent_bytes);

        b->extents = calloc(count, sizeof(*b->extents));
        if (!b->extents)
                return -ENOMEM;
        for (unsigned i = 0; i < count; i++) {
                uint64_t offset = i * b->extent_bytes;
                struct extent *e = &b->extents[i];

                e->address = b->kind == BLOCK_HANDLE ? 0 : b->address + offset;
                e->offset = offset;
                e->block = b;
                e->bytes = MIN(b->extent_bytes, b->bytes - offset);
                e->managed = b->managed;
                e->live = b->kind == BLOCK_SLAB || b->kind == BLOCK_POOL ? 0 : extent_whole(e);
        }
        /* Most of a pool's address space may never be used, so each of its extents is counted at
         * its first use. */
        b->extent_count = b->kind == BLOCK_POOL ? 0 : count;
        return 0;
}

static void extent_count(struct heap *h, struct extent *e)
{
        if (!e->counted)
                h->allocated += e->bytes;
        e->counted = true;
}

/* Adds a new block to h->allocated. A slab is counted as a whole, so allocations in it cost
 * nothing. Extents of a pool's block are counted at their first use. */
static void block_count(struct heap *h, struct block *b)
{
        for (unsigned i = 0; i < b->extent_count; i++)
                extent_count(h, &b->extents[i]);
        h->managed_bytes += b->managed ? b->bytes : 0;
}

void heap_settle(struct heap *h, struct extent *e)
{
        if (e->counted)
                h->allocated -= e->bytes;
        e->counted = false;
}

static void space_taken(struct heap *h, struct block *b)
{
        if (!b->managed)
                spaces_remove(&h->spaces, b);
}

/* Cuts a block of this size out of the free address space. NULL: no memory. */
static struct block *heap_carve(struct heap *h, enum block_kind kind, uint64_t bytes,
                                uint64_t extent_bytes, CUcontext owner)
{
        size_t at = heap_fit(h, bytes);
        struct block *b, *space;

        if (at == h->count) {
                if (heap_reserve(h, bytes) < 0)
                        return NULL;
                at = heap_fit(h, bytes);
        }
        space = h->blocks[at];
        b = calloc(1, sizeof(*b));
        if (!b)
                return NULL;
        *b = (struct block){.address = space->address,
                            .bytes = bytes,
                            .extent_bytes = extent_bytes,
                            .kind = kind,
                            .managed = space->managed,
                            .owner = owner,
                            .id = ++h->next_id};
        if (block_make_extents(b) < 0)
                goto free_block;
        if (kind != BLOCK_LARGE) {
                b->users = calloc(bytes / HEAP_GRANULARITY, sizeof(*b->users));
                if (!b->users)
                        goto free_extents;
        }
        if (space->bytes == bytes) {
                space_taken(h, space);
                h->blocks[at] = b;
                free(space);
        } else {
                if (heap_insert(h, at, b) < 0)
                        goto free_extents;
                space_taken(h, space);
                space->address += bytes;
                space->bytes -= bytes;
                spaces_add(&h->spaces, space);
        }
        block_count(h, b);
        return b;

free_extents:
        free(b->users);
        free(b->extents);
free_block:
        free(b);
        return NULL;
}

struct block *heap_take_pool(struct heap *h, uint64_t bytes, uint64_t extent_bytes)
{
        return heap_carve(h, BLOCK_POOL, bytes, extent_bytes, NULL);
}

/* Returns the extent of a block's page i, and the page's bit in that extent. */
static struct extent *page_extent(const struct block *b, uint64_t i, uint64_t *ret_bit)
{
        uint64_t per_extent = b->extent_bytes / HEAP_GRANULARITY;

        *ret_bit = UINT64_C(1) << (i % per_extent);
        return &b->extents[i / per_extent];
}

uint64_t heap_use_cost(const struct block *b, CUdeviceptr at, uint64_t bytes)
{
        uint64_t cost = 0;

        for (uint64_t i = (at - b->address) / b->extent_bytes,
                      last = (at + bytes - 1 - b->address) / b->extent_bytes;
             i <= last; i++)
                cost += b->extents[i].counted ? 0 : b->extents[i].bytes;
        return cost;
}

void heap_use(struct heap *h, struct block *b, CUdeviceptr at, uint64_t bytes)
{
        uint64_t i = (at - b->address) / HEAP_GRANULARITY,
                 last = (at + bytes - 1 - b->address) / HEAP_GRANULARITY;

        for (; i <= last; i++) {
                uint64_t bit;
                struct extent *e = page_extent(b, i, &bit);

                b->users[i]++;
                e->live |= bit;
                extent_count(h, e);
                b->extent_count = MAX(b->extent_count, (unsigned)(e - b->extents) + 1);
        }
}

void heap_unuse(struct block *b, CUdeviceptr at, uint64_t bytes)
{
        uint64_t i = (at - b->address) / HEAP_GRANULARITY,
                 last = (at + bytes - 1 - b->address) / HEAP_GRANULARITY;

        for (; i <= last; i++) {
                uint64_t bit;
                struct extent *e = page_extent(b, i, &bit);

                if (--b->users[i] == 0)
                        e->live &= ~bit;
        }
}

/* Returns the best size of the next slab: 2 MiB at first, later a 16th of the bytes in all slabs. A
 * small program then gets little memory that it did not ask for, and a million small buffers do not
 * need thousands of handles. */
static uint64_t heap_slab_bytes(const struct heap *h)
{
        uint64_t bytes = HEAP_GRANULARITY, most = MIN(h->extent_bytes, HEAP_SLAB_MAX);

        while (bytes * 2 <= MIN(h->slab_bytes / 16, most))
                bytes *= 2;
        return bytes;
}

/* Returns the link to the next slab that may have room. */
static struct block **slab_with_room(struct block **link, uint64_t bytes, CUcontext owner)
{
        while (*link && ((*link)->owner != owner || !slab_may_fit((*link)->slab, bytes)))
                link = &(*link)->next_slab;
        return link;
}

/* Moves a slab to the front of the list, where searches begin: it had room, so it probably has
 * more. */
static void slab_to_front(struct heap *h, struct block **link)
{
        struct block *b = *link;

        *link = b->next_slab;
        b->next_slab = h->slabs;
        h->slabs = b;
}

static void slab_forget(struct heap *h, const struct block *b)
{
        struct block **link = &h->slabs;

        while (*link != b)
                link = &(*link)->next_slab;
        *link = b->next_slab;
        h->slab_bytes -= b->bytes;
}

static struct block *heap_slab_new(struct heap *h, uint64_t bytes, CUcontext owner)
{
        struct block *b = heap_carve(h, BLOCK_SLAB, bytes, h->extent_bytes, owner);

        if (!b)
                return NULL;
        b->slab = slab_new(b->bytes);
        if (!h->holes)
                h->holes = calloc(
                        1, sizeof(*h->holes)); /* optional: without it searches take longer */
        if (!b->slab) {
                heap_bury(h, b);
                return NULL;
        }
        b->next_slab = h->slabs;
        h->slabs = b;
        h->slab_bytes += b->bytes;
        return b;
}

/* Returns the size class of a hole: each size below 32 units of HEAP_SMALL_ALIGN has its own class;
 * larger sizes have four classes for each power of two. */
static unsigned hole_size(uint64_t bytes)
{
        uint64_t units = bytes / HEAP_SMALL_ALIGN;
        unsigned log;

        if (units < 32)
                return (unsigned)units;
        log = 63 - (unsigned)__builtin_clzll(units);
        return MIN(32 + (log - 5) * 4 + (unsigned)(units >> (log - 2) & 3), HOLE_SIZES - 1);
}

static void hole_put(struct heap *h, CUdeviceptr at, uint64_t bytes)
{
        unsigned size = hole_size(bytes);

        if (bytes == 0 || !h->holes)
                return;
        if (h->holes->count[size] == HOLES_KEPT)
                h->holes->count[size] = HOLES_KEPT / 2; /* the list is full: drop its newer half */
        h->holes->at[size][h->holes->count[size]++] = at;
        h->holes->filled |= UINT64_C(1) << size;
}

/* Allocates in a remembered hole that is large enough and still free. Returns false if there is
 * none. */
static bool hole_take(struct heap *h, uint64_t bytes, CUcontext owner, CUdeviceptr *ret_at)
{
        uint64_t whole = align_up(bytes, HEAP_SMALL_ALIGN), sizes;

        if (!h->holes)
                return false;
        while ((sizes = h->holes->filled & UINT64_MAX << hole_size(whole))) {
                unsigned size = (unsigned)__builtin_ctzll(sizes);
                CUdeviceptr at = h->holes->at[size][--h->holes->count[size]];
                size_t i = heap_locate(h, at);
                struct block *b = i < h->count ? h->blocks[i] : NULL;
                uint64_t start, room;

                if (h->holes->count[size] == 0)
                        h->holes->filled &= ~(UINT64_C(1) << size);
                if (!b || b->kind != BLOCK_SLAB || b->dying || b->owner != owner ||
                    at - b->address >= b->bytes)
                        continue;
                room = slab_hole(b->slab, at - b->address, &start);
                if (room < whole)
                        continue;
                slab_fill(b->slab, start, bytes);
                *ret_at = b->address + start;
                hole_put(h, *ret_at + whole, room - whole);
                heap_use(h, b, *ret_at, bytes);
                return true;
        }
        return false;
}

/* Allocates in an existing slab. Returns the link to that slab, and the offset in it; NULL: no slab
 * has room. */
static struct block **slab_place(struct heap *h, uint64_t bytes, CUcontext owner, bool thorough,
                                 uint64_t *ret_offset)
{
        struct block **link = slab_with_room(&h->slabs, bytes, owner);

        while (*link && slab_allocate((*link)->slab, bytes, thorough, ret_offset) < 0)
                link = slab_with_room(&(*link)->next_slab, bytes, owner);
        return *link ? link : NULL;
}

/* True if more than an eighth of the slabs is free: then a long search is better than a new
 * slab. */
static bool slabs_are_sparse(const struct heap *h)
{
        uint64_t used = 0;

        for (const struct block *b = h->slabs; b; b = b->next_slab)
                used += slab_used(b->slab);
        return h->slab_bytes - used > h->slab_bytes / 8;
}

static int heap_allocate_small(struct heap *h, uint64_t bytes, CUcontext owner, uint64_t max,
                               CUdeviceptr *ret_address, uint64_t *ret_cost)
{
        uint64_t offset;
        struct block **link;

        if (hole_take(h, bytes, owner, ret_address))
                return 0;
        link = slab_place(h, bytes, owner, false, &offset);
        if (!link && slabs_are_sparse(h))
                link = slab_place(h, bytes, owner, true, &offset);
        if (link) {
                slab_to_front(h, link);
        } else {
                *ret_cost = heap_slab_bytes(h);
                while (*ret_cost > HEAP_GRANULARITY && h->allocated + *ret_cost > max)
                        *ret_cost /= 2;
                if (h->allocated + *ret_cost > max)
                        return -ENOSPC;
                if (h->managed && heap_fit(h, *ret_cost) == h->count)
                        return -ENOBUFS;
                if (!heap_slab_new(h, *ret_cost, owner))
                        return -ENOMEM;
                (void)slab_allocate(h->slabs->slab, bytes, true, &offset);
        }
        *ret_address = h->slabs->address + offset;
        heap_use(h, h->slabs, *ret_address, bytes);
        return 0;
}

int heap_allocate(struct heap *h, uint64_t bytes, CUcontext owner, uint64_t max,
                  CUdeviceptr *ret_address, uint64_t *ret_cost)
{
        struct block *b;

        if (bytes <= HEAP_SMALL_MAX)
                return heap_allocate_small(h, bytes, owner, max, ret_address, ret_cost);
        *ret_cost = align_up(bytes, HEAP_GRANULARITY);
        if (*ret_cost > max || h->allocated > max - *ret_cost)
                return -ENOSPC;
        if (h->managed && heap_fit(h, *ret_cost) == h->count)
                return -ENOBUFS;
        b = heap_carve(h, BLOCK_LARGE, *ret_cost, h->extent_bytes, owner);
        if (!b)
                return -ENOMEM;
        b->requested = bytes;
        *ret_address = b->address;
        return 0;
}

struct block *heap_allocate_aside(struct heap *h, uint64_t bytes, CUcontext owner, uint64_t on_card)
{
        struct block *b = heap_carve(h, BLOCK_LARGE, align_up(bytes, HEAP_GRANULARITY),
                                     h->extent_bytes, owner);

        if (!b)
                return NULL;
        b->requested = bytes;
        for (unsigned i = (unsigned)(on_card / b->extent_bytes); i < b->extent_count; i++) {
                heap_settle(h, &b->extents[i]);
                b->extents[i].busy = true;
        }
        return b;
}

void heap_claim(struct heap *h, struct extent *e)
{
        h->backed += e->bytes;
        extent_count(h, e);
}

void heap_unclaim(struct heap *h, struct extent *e)
{
        h->backed -= e->bytes;
        heap_settle(h, e);
}

void heap_change_sides(struct heap *h, struct extent *e)
{
        if (e->state == EXTENT_RESIDENT) {
                e->state = EXTENT_MAPPED;
                h->backed -= e->bytes;
                h->resident -= e->bytes;
                h->mapped += e->bytes;
                heap_settle(h, e);
        } else {
                e->state = EXTENT_RESIDENT;
                h->resident += e->bytes;
                h->mapped -= e->bytes;
        }
}

/* Inserts a block whose addresses lie outside our reservations. */
static int heap_insert_foreign(struct heap *h, const struct block *like)
{
        struct block *b = calloc(1, sizeof(*b));
        size_t at;

        if (!b)
                return -ENOMEM;
        *b = *like;
        b->managed = true;
        b->extent_bytes = h->extent_bytes;
        at = heap_locate(h, b->address);
        at = at == h->count ? 0 : at + 1;
        if ((b->kind != BLOCK_FREE && block_make_extents(b) < 0) || heap_insert(h, at, b) < 0) {
                free(b->extents);
                free(b);
                return -ENOMEM;
        }
        heap_note_change();
        return 0;
}

int heap_provide(struct heap *h, CUdeviceptr address, uint64_t bytes)
{
        return heap_insert_foreign(
                h, &(struct block){.address = address, .bytes = bytes, .kind = BLOCK_FREE});
}

int heap_adopt(struct heap *h, CUdeviceptr address, uint64_t bytes, CUcontext owner, uint64_t max,
               uint64_t *ret_cost)
{
        int r;

        *ret_cost = bytes;
        if (bytes > max || h->allocated > max - bytes)
                return -ENOSPC;
        r = heap_insert_foreign(h, &(struct block){.address = address,
                                                   .bytes = bytes,
                                                   .requested = bytes,
                                                   .kind = BLOCK_ADOPTED,
                                                   .owner = owner,
                                                   .id = ++h->next_id});
        if (r < 0)
                return r;
        block_count(h, h->blocks[heap_locate(h, address)]);
        return 0;
}

void heap_withdraw(struct heap *h, struct block *b)
{
        h->buried++;
        heap_remove(h, heap_locate(h, b->address));
        slab_delete(b->slab);
        free(b->users);
        free(b->extents);
        free(b);
}

struct block *heap_adopted(const struct heap *h, CUdeviceptr address, uint64_t bytes)
{
        size_t before = heap_locate(h, address);

        for (size_t i = before == h->count ? 0 : before; i < h->count; i++) {
                struct block *b = h->blocks[i];
                bool starts = b->address >= address;

                if (starts && b->address - address >= bytes)
                        break;
                if (b->kind == BLOCK_ADOPTED && !b->dying && !b->late &&
                    (starts || address - b->address < b->bytes))
                        return b;
        }
        return NULL;
}

int heap_create(struct heap *h, uint64_t bytes, struct handle *handle, uint64_t max,
                struct block **ret)
{
        struct block *b;

        if (bytes > max || h->allocated > max - bytes)
                return -ENOSPC;
        if (list_grow(&h->handles, h->handle_count, &h->handle_room) < 0)
                return -ENOMEM;
        b = calloc(1, sizeof(*b));
        if (!b)
                return -ENOMEM;
        *b = (struct block){.kind = BLOCK_HANDLE,
                            .bytes = bytes,
                            .requested = bytes,
                            .extent_bytes = h->extent_bytes,
                            .handle = handle,
                            .index = h->handle_count};
        if (block_make_extents(b) < 0) {
                free(b);
                return -ENOMEM;
        }
        h->handles[h->handle_count++] = b;
        block_count(h, b);
        *ret = b;
        return 0;
}

bool heap_find(const struct heap *h, CUdeviceptr address, struct heap_place *ret)
{
        size_t at = heap_locate(h, address);
        struct block *b;
        uint64_t start, bytes;

        if (at == h->count)
                return false;
        b = h->blocks[at];
        if (b->kind == BLOCK_FREE || b->dying || address - b->address >= b->bytes)
                return false;
        if (b->kind == BLOCK_POOL) {
                const struct suballocation *n =
                        b->chunk ? suballocator_around(b->chunk, address) : NULL;

                if (n)
                        *ret = (struct heap_place){
                                .start = n->address, .bytes = n->requested, .block = b};
                return n != NULL;
        }
        if (b->kind != BLOCK_SLAB) {
                if (address - b->address >= b->requested)
                        return false;
                *ret = (struct heap_place){.start = b->address, .bytes = b->requested, .block = b};
                return true;
        }
        if (!slab_find(b->slab, address - b->address, &start, &bytes))
                return false;
        *ret = (struct heap_place){.start = b->address + start, .bytes = bytes, .block = b};
        return true;
}

void heap_set_sync(const struct heap_place *p, bool on)
{
        if (p->block->kind == BLOCK_SLAB)
                slab_mark(p->block->slab, p->start - p->block->address, on);
        else
                p->block->sync_memops = on;
}

bool heap_sync(const struct heap_place *p)
{
        return p->block->kind == BLOCK_SLAB
                       ? slab_marked(p->block->slab, p->start - p->block->address)
                       : p->block->sync_memops;
}

bool heap_holds(const struct heap *h, CUdeviceptr address)
{
        size_t at = heap_locate(h, address);
        const struct block *b = at < h->count ? h->blocks[at] : NULL;

        return b && address - b->address < b->bytes &&
               (b->kind == BLOCK_FREE || b->kind == BLOCK_LARGE || b->kind == BLOCK_SLAB ||
                b->kind == BLOCK_POOL);
}

bool heap_gap(const struct heap *h, CUdeviceptr address)
{
        struct heap_place p;

        return heap_holds(h, address) && !heap_find(h, address, &p);
}

int heap_free(struct heap *h, CUdeviceptr address, struct block **ret_dead)
{
        struct heap_place p;

        if (!heap_find(h, address, &p) || p.start != address || p.block->kind == BLOCK_POOL)
                return -EINVAL;
        heap_note_change();
        if (p.block->kind == BLOCK_SLAB) {
                slab_free(p.block->slab, address - p.block->address);
                heap_unuse(p.block, p.start, p.bytes);
                if (!slab_empty(p.block->slab)) {
                        uint64_t start, bytes = slab_hole(p.block->slab, address - p.block->address,
                                                          &start);

                        hole_put(h, p.block->address + start, bytes);
                        *ret_dead = NULL;
                        return 0;
                }
                slab_forget(h, p.block);
        }
        p.block->dying = true;
        *ret_dead = p.block;
        return 0;
}

struct block *heap_orphan(struct heap *h, CUcontext owner)
{
        heap_note_change();
        for (size_t i = 0; i < h->count; i++) {
                struct block *b = h->blocks[i];

                if (b->kind == BLOCK_FREE || b->dying || (owner && b->owner != owner))
                        continue;
                if (b->kind == BLOCK_SLAB)
                        slab_forget(h, b);
                b->dying = true;
                return b;
        }
        for (size_t i = 0; !owner && i < h->handle_count; i++)
                if (!h->handles[i]->dying) {
                        h->handles[i]->dying = true;
                        return h->handles[i];
                }
        return NULL;
}

/* Joins a free block with the next one if they touch. Blocks of two reservations may touch too, and
 * joining them is harmless. */
static void heap_join_with_next(struct heap *h, size_t at)
{
        struct block *b = h->blocks[at], *next;

        if (at + 1 >= h->count)
                return;
        next = h->blocks[at + 1];
        if (b->kind != BLOCK_FREE || next->kind != BLOCK_FREE || b->managed || next->managed ||
            b->address + b->bytes != next->address)
                return;
        spaces_remove(&h->spaces, b);
        spaces_remove(&h->spaces, next);
        b->bytes += next->bytes;
        spaces_add(&h->spaces, b);
        heap_remove(h, at + 1);
        free(next);
}

static void heap_bury_handle(struct heap *h, struct block *dead)
{
        struct block *last = h->handles[--h->handle_count];

        h->handles[dead->index] = last;
        last->index = dead->index;
        free(dead->extents);
        free(dead);
}

void heap_bury(struct heap *h, struct block *dead)
{
        size_t at;

        h->buried++;
        for (unsigned i = 0; i < dead->extent_count; i++)
                heap_settle(h, &dead->extents[i]);
        if (dead->kind == BLOCK_HANDLE) {
                heap_bury_handle(h, dead);
                return;
        }
        at = heap_locate(h, dead->address);
        h->managed_bytes -= dead->managed ? dead->bytes : 0;
        slab_delete(dead->slab);
        free(dead->users);
        free(dead->extents);
        *dead = (struct block){.address = dead->address,
                               .bytes = dead->bytes,
                               .kind = BLOCK_FREE,
                               .managed = dead->managed};
        if (!dead->managed)
                spaces_add(&h->spaces, dead);
        heap_join_with_next(h, at);
        if (at > 0)
                heap_join_with_next(h, at - 1);
}

struct extent *heap_walk(struct heap *h, struct heap_cursor *c)
{
        while (c->block < h->count + h->handle_count) {
                struct block *b =
                        c->block < h->count ? h->blocks[c->block] : h->handles[c->block - h->count];

                if (b->kind != BLOCK_FREE && !b->dying && c->extent < b->extent_count)
                        return &b->extents[c->extent++];
                c->block++;
                c->extent = 0;
        }
        return NULL;
}
