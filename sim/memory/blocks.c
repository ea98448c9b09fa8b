/* blocks.c: owns the table of the program's allocations, and the memory of cuMemAlloc and its
 * variants. */
#include "sim/memory/blocks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"
#include "sim/memory/pool.h"
#include "sim/space/managed.h"
#include "sim/space/trace.h"

#define PACK_SLOTS (SPACE_GRANULARITY / BLOCK_SLOT)

struct pack {
        struct pack *next;
        CUcontext context;
        struct range *range;
        unsigned taken;
        bool slot[PACK_SLOTS];
};

static struct table blocks;
static struct pack *packs;
static uint64_t last_id;

struct block *memory_block(uint64_t address)
{
        return table_find(&blocks, address);
}

void block_allow(struct range *range, unsigned own, uint32_t devices)
{
        for (unsigned d = 0; d < SESSION_DEVICES; d++)
                range->access[d] = d == own || devices >> d & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void memory_allow(CUcontext c, uint32_t devices)
{
        for (size_t i = 0; i < blocks.count; i++) {
                struct block *b = (struct block *)blocks.span[i];

                if (b->context == c && b->kind == BLOCK_DEVICE)
                        block_allow(b->range, c->device, devices);
        }
}

/* Allocates memory of a card. Before the card counts as full, pools give up their unused memory. */
static CUresult physical_for(unsigned device, uint64_t bytes, enum physical_origin origin,
                             struct physical **ret)
{
        CUresult r = physical_new(device, bytes, ret);

        if (r == CUDA_ERROR_OUT_OF_MEMORY && pools_release(device))
                r = physical_new(device, bytes, ret);
        if (r != CUDA_SUCCESS) {
                trace_card(device);
                return r;
        }
        (*ret)->origin = origin;
        trace_came(*ret);
        return r;
}

static CUresult range_map(unsigned device, uint64_t start, uint64_t bytes,
                          enum physical_origin origin, struct range **ret_range)
{
        struct physical *p;
        struct range *range;
        CUresult r = physical_for(device, bytes, origin, &p);
        bool reserved = start != 0;

        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        if (!reserved)
                start = space_reserve(bytes, SPACE_GRANULARITY, 0);
        range = start ? space_map(RANGE_DEVICE, start, bytes, p, 0, p->at) : NULL;
        physical_drop(p); /* the range has a reference; without a range the memory is freed */
        if (!range) {
                if (start && !reserved)
                        space_release(start);
                space_unlock();
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        range->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        *ret_range = range;
        return CUDA_SUCCESS;
}

CUresult memory_range_new(unsigned device, uint64_t bytes, struct range **ret_range)
{
        return range_map(device, 0, bytes, PHYSICAL_ALLOCATED, ret_range);
}

CUresult memory_range_at(unsigned device, uint64_t start, uint64_t bytes,
                         enum physical_origin origin, struct range **ret_range)
{
        return range_map(device, start, bytes, origin, ret_range);
}

/* Frees a range and its addresses. Needs the space lock. */
static void memory_range_free(struct range *range)
{
        uint64_t start = range->span.start;

        space_unmap(range);
        space_release(start);
}

/* Takes the first free slots that suffice. Needs the space lock. */
static bool pack_take(struct pack *p, unsigned slots, unsigned *ret_first)
{
        unsigned run = 0;

        if (PACK_SLOTS - p->taken < slots)
                return false;
        for (unsigned i = 0; i < PACK_SLOTS; i++) {
                run = p->slot[i] ? 0 : run + 1;
                if (run == slots) {
                        *ret_first = i + 1 - slots;
                        memset(&p->slot[*ret_first], true, slots);
                        p->taken += slots;
                        return true;
                }
        }
        return false;
}

static void pack_give_back(struct pack *p, uint64_t start, uint64_t bytes)
{
        unsigned first = (unsigned)((start - p->range->span.start) / BLOCK_SLOT);
        unsigned slots = (unsigned)(align_up(bytes, BLOCK_SLOT) / BLOCK_SLOT);
        struct pack **q = &packs;

        memset(&p->slot[first], false, slots);
        p->taken -= slots;
        if (p->taken)
                return;
        while (*q != p)
                q = &(*q)->next;
        *q = p->next;
        memory_range_free(p->range);
        free(p);
}

CUresult block_small(CUcontext c, uint64_t bytes, struct block *b)
{
        unsigned slots = (unsigned)(align_up(bytes, BLOCK_SLOT) / BLOCK_SLOT), first = 0;
        struct range *range;
        struct pack *p;
        CUresult r;

        space_lock();
        for (p = packs; p; p = p->next)
                if (p->context == c && pack_take(p, slots, &first))
                        goto found;
        space_unlock();

        p = calloc(1, sizeof(*p));
        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = memory_range_new(c->device, SPACE_GRANULARITY, &range);
        if (r != CUDA_SUCCESS) {
                free(p);
                return r;
        }
        p->context = c;
        p->range = range;
        p->next = packs;
        packs = p;
        (void)pack_take(p, slots, &first);
found:
        b->pack = p;
        b->range = p->range;
        b->span = (struct span){p->range->span.start + (uint64_t)first * BLOCK_SLOT, bytes};
        return CUDA_SUCCESS;
}

int block_add(struct block *b)
{
        b->id = ++last_id;
        return table_insert(&blocks, &b->span);
}

void block_remove(struct block *b)
{
        table_remove(&blocks, &b->span);
        free(b);
}

void block_drop_memory(struct block *b)
{
        if (b->pack)
                pack_give_back(b->pack, b->span.start, b->span.bytes);
        else
                memory_range_free(b->range);
}

void block_free(struct block *b)
{
        table_remove(&blocks, &b->span);
        if (b->kind == BLOCK_DEVICE || b->kind == BLOCK_IMPORTED) {
                block_drop_memory(b);
        } else if (b->kind == BLOCK_MANAGED) {
                managed_release(b->range->managed);
                space_unmap(b->range);
        } else {
                space_unmap(b->range);
                if (b->kind == BLOCK_HOST)
                        (void)munmap((void *)(uintptr_t)b->span.start, b->mapped);
        }
        free(b);
}

struct block *memory_imported(uint64_t inode, uint64_t offset)
{
        for (size_t i = 0; i < blocks.count; i++) {
                struct block *b = (struct block *)blocks.span[i];

                if (b->kind == BLOCK_IMPORTED && b->inode == inode &&
                    b->span.start - b->range->span.start == offset)
                        return b;
        }
        return NULL;
}

struct block *block_of_context(CUcontext c, size_t *at)
{
        for (; *at < blocks.count; (*at)++) {
                struct block *b = (struct block *)blocks.span[*at];

                if (b->context == c)
                        return b;
        }
        return NULL;
}
