/* memory.c: cuMemAlloc and its family. Must never return memory to the card before the work that
 * was submitted before the free is done. */
#include "sim/memory/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/macros.h"
#include "sim/graph/graph_memory.h"
#include "sim/memory/managed.h"
#include "sim/memory/pool.h"
#include "sim/stream/stream.h"
#include "sim/session/trace.h"

#define SMALL      MIB /* below: packed into a block of the card's granularity */
#define SLOT       512
#define POOL_SLOTS (SPACE_GRANULARITY / SLOT)

struct pool {
        struct pool *next;
        CUcontext context;
        struct range *range;
        unsigned taken;
        bool slot[POOL_SLOTS];
};

static struct table blocks;
static struct pool *pools;
static uint64_t last_id;

struct block *memory_block(uint64_t address)
{
        return table_find(&blocks, address);
}

static void range_allow(struct range *range, unsigned own, uint32_t devices)
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
                        range_allow(b->range, c->device, devices);
        }
}

/* What pools keep for nothing goes before the card is full. */
static CUresult physical_for(unsigned device, uint64_t bytes, enum physical_origin origin,
                             struct physical **ret)
{
        CUresult r = physical_new(device, bytes, false, ret);

        if (r == CUDA_ERROR_OUT_OF_MEMORY && pools_release(device))
                r = physical_new(device, bytes, false, ret);
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
        physical_drop(p); /* the range holds it now; nobody, if there is none */
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

void memory_range_free(struct range *range)
{
        uint64_t start = range->span.start;

        space_unmap(range);
        space_release(start);
}

/* First fit. Locked. */
static bool pool_take(struct pool *p, unsigned slots, unsigned *ret_first)
{
        unsigned run = 0;

        if (POOL_SLOTS - p->taken < slots)
                return false;
        for (unsigned i = 0; i < POOL_SLOTS; i++) {
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

static void pool_give_back(struct pool *p, uint64_t start, uint64_t bytes)
{
        unsigned first = (unsigned)((start - p->range->span.start) / SLOT);
        unsigned slots = (unsigned)(align_up(bytes, SLOT) / SLOT);
        struct pool **q = &pools;

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

/* Locked on return when it succeeds. */
static CUresult small_new(CUcontext c, uint64_t bytes, struct block *b)
{
        unsigned slots = (unsigned)(align_up(bytes, SLOT) / SLOT), first = 0;
        struct range *range;
        struct pool *p;
        CUresult r;

        space_lock();
        for (p = pools; p; p = p->next)
                if (p->context == c && pool_take(p, slots, &first))
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
        p->next = pools;
        pools = p;
        (void)pool_take(p, slots, &first);
found:
        b->pool = p;
        b->range = p->range;
        b->span = (struct span){p->range->span.start + (uint64_t)first * SLOT, bytes};
        return CUDA_SUCCESS;
}

CUresult memory_allocate(CUcontext c, uint64_t bytes, CUdeviceptr *ret)
{
        struct block *b = calloc(1, sizeof(*b));
        CUresult r;

        if (!b)
                return CUDA_ERROR_OUT_OF_MEMORY;
        c = context_owner(c);
        b->kind = BLOCK_DEVICE;
        b->context = c;
        if (bytes < SMALL) {
                r = small_new(c, bytes, b);
        } else if (bytes > UINT64_MAX / 2) {
                r = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
                r = memory_range_new(c->device, align_up(bytes, SPACE_GRANULARITY), &b->range);
                if (r == CUDA_SUCCESS)
                        b->span = (struct span){b->range->span.start, bytes};
        }
        if (r != CUDA_SUCCESS) {
                free(b);
                return r;
        }
        *ret = b->span.start;
        if (block_add(b) < 0) {
                if (b->pool)
                        pool_give_back(b->pool, b->span.start, bytes);
                else
                        memory_range_free(b->range);
                free(b);
                r = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
                range_allow(b->range, c->device, peer_devices(c));
        }
        space_unlock();
        return r;
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

void block_free_on(struct block *b, CUstream stream)
{
        pool_take_back(b->piece, stream);
        block_remove(b);
}

void block_free(struct block *b)
{
        table_remove(&blocks, &b->span);
        if (b->pool) {
                pool_give_back(b->pool, b->span.start, b->span.bytes);
        } else if (b->kind == BLOCK_DEVICE || b->kind == BLOCK_IMPORTED) {
                memory_range_free(b->range);
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

/* What cuMemFree takes. */
static bool is_allocated(const struct block *b, CUdeviceptr ptr)
{
        return b && b->span.start == ptr && (b->kind == BLOCK_DEVICE || b->kind == BLOCK_MANAGED);
}

/* What is of a pool, or of a graph. */
static bool is_ordered(const struct block *b, CUdeviceptr ptr)
{
        return b && b->span.start == ptr && (b->kind == BLOCK_POOL || b->kind == BLOCK_GRAPH);
}

/* False: it is neither. */
static bool free_ordered(CUdeviceptr ptr, CUresult *ret_result)
{
        struct block *b;
        bool found;

        pthread_mutex_lock(&sim.lock);
        found = graph_memory_free(ptr, ret_result);
        if (!found) {
                space_lock();
                b = memory_block(ptr);
                found = is_ordered(b, ptr);
                if (found)
                        block_free_on(b, NULL);
                space_unlock();
                *ret_result = CUDA_SUCCESS;
        }
        pthread_mutex_unlock(&sim.lock);
        return found;
}

CUresult memory_free(CUdeviceptr ptr)
{
        CUresult r = CUDA_ERROR_INVALID_VALUE;
        struct block *b;

        space_lock();
        b = memory_block(ptr);
        if (is_allocated(b, ptr)) {
                block_free(b);
                r = CUDA_SUCCESS;
        }
        space_unlock();
        return r;
}

static bool range_usable(const struct range *r, bool write)
{
        uint8_t need = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;

        for (unsigned d = 0; r && d < sim.devices; d++)
                if ((r->access[d] & need) == need)
                        return true;
        return false;
}

bool memory_usable(uint64_t at, uint64_t bytes, bool write, bool graph)
{
        uint64_t end = at + bytes;
        bool ok = true;

        if (!space_is_device(at) || (graph && graph_memory_holds(at, bytes)))
                return true;
        space_lock_shared();
        while (ok && at < end) {
                struct range *r = space_range(at);

                ok = range_usable(r, write);
                if (ok && (r->kind == RANGE_DEVICE || r->kind == RANGE_MANAGED)) {
                        struct block *b = memory_block(at);

                        ok = b && end <= b->span.start + b->span.bytes;
                }
                if (ok)
                        at = r->span.start + r->span.bytes;
        }
        space_unlock();
        return ok;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *ret_ptr, size_t bytes)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ptr || bytes == 0)
                return CUDA_ERROR_INVALID_VALUE;
        return memory_allocate(c, bytes, ret_ptr);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *ret_ptr, size_t *ret_pitch, size_t width_bytes,
                                   size_t height, unsigned int element_bytes)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);
        size_t pitch, bytes;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ptr || !ret_pitch || width_bytes == 0 || height == 0 ||
            (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
                return CUDA_ERROR_INVALID_VALUE;
        pitch = align_up(width_bytes, SLOT);
        if (__builtin_mul_overflow(pitch, height, &bytes))
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = memory_allocate(c, bytes, ret_ptr);
        if (r == CUDA_SUCCESS)
                *ret_pitch = pitch;
        return r;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr ptr)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);
        struct block *b;

        if (r != CUDA_SUCCESS || !ptr)
                return r;
        space_lock_shared();
        b = memory_block(ptr);
        if (is_allocated(b, ptr))
                c = b->context;
        else if (!is_ordered(b, ptr))
                r = CUDA_ERROR_INVALID_VALUE;
        space_unlock();
        if (r != CUDA_SUCCESS)
                return r;
        /* What was submitted before the free may use it still, on any stream. */
        r = context_wait(c);
        if (r != CUDA_SUCCESS)
                return r;
        if (!free_ordered(ptr, &r))
                return memory_free(ptr);
        pools_synced(c, NULL);
        return r;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);
        uint64_t total, used;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_free || !ret_total)
                return CUDA_ERROR_INVALID_VALUE;
        total = session_device(sim.session, c->device)->total;
        used = session_used(sim.session, c->device);
        *ret_free = sub_sat(total, used);
        *ret_total = total;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *ret_ptr, size_t bytes, unsigned int flags)
{
        struct managed *m;
        struct block *b;
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ptr || bytes == 0 ||
            (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
                return CUDA_ERROR_INVALID_VALUE;
        b = calloc(1, sizeof(*b));
        if (!b)
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = managed_new(c, bytes, flags, &m);
        if (r != CUDA_SUCCESS) {
                free(b);
                return r;
        }
        b->kind = BLOCK_MANAGED;
        b->context = c;
        b->span = (struct span){managed_start(m), bytes};
        space_lock();
        b->range = space_map(RANGE_MANAGED, b->span.start, managed_bytes(m), NULL, 0, NULL);
        if (!b->range) {
                managed_release(m);
                managed_destroy(m);
        } else {
                b->range->managed = m;
                memset(b->range->access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                       sizeof(b->range->access));
        }
        if (b->range && block_add(b) == 0) {
                *ret_ptr = b->span.start;
        } else {
                if (b->range) {
                        managed_release(m);
                        space_unmap(b->range);
                }
                free(b);
                r = CUDA_ERROR_OUT_OF_MEMORY;
        }
        space_unlock();
        return r;
}

void memory_release_context(CUcontext c)
{
        space_lock();
        peer_forget(c);
        for (size_t i = 0; i < blocks.count;) {
                struct block *b = (struct block *)blocks.span[i];

                if (b->context != c) {
                        i++;
                        continue;
                }
                /* The array may only shrink here: look at the same index again. */
                block_free(b);
        }
        space_unlock();
}
