/* pool.c: owns the pools and their memory: allocations, frees, and what goes back to the card. Must
 * never hand out memory that a stream may still use.
 * Why: docs/decisions.md, "The driver's pool object stands for a pool of ours". */
#include "preload/pool/pool_state.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/heap/heap.h"
#include "preload/heap/suballocator.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/state/request.h"
#include "preload/pool/room.h"

#define LAST_RESORT_NS NSEC_PER_SEC /* how long a search for room waits for pending frees */

/* ---- pools ---- */

static struct pool *pool_new(CUmemoryPool handle, struct gpu *g, uint64_t most)
{
        static const CUmemPool_attribute kept[] = {
                CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                CU_MEMPOOL_ATTR_RELEASE_THRESHOLD};
        struct pool *p = calloc(1, sizeof(*p));
        cuuint64_t value;

        if (!p)
                return NULL;
        *p = (struct pool){.next = pools,
                           .handle = handle,
                           .name = handle,
                           .gpu = g,
                           .most = most,
                           .may_wait = true};
        pools = p;
        /* The attributes may have been set before the program used the GPU. */
        for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
                if (real.cuMemPoolGetAttribute(handle, kept[i], &value) == CUDA_SUCCESS)
                        pool_set(p, kept[i], &value);
        return p;
}

static struct gpu *gpu_of_location(const CUmemLocation *l)
{
        return l->type == CU_MEM_LOCATION_TYPE_DEVICE && l->id >= 0 && l->id < GPUS_MAX &&
                               core.gpus[l->id].managed && !core.gpus[l->id].heap.managed
                       ? &core.gpus[l->id]
                       : NULL;
}

struct pool *pool_find(CUmemoryPool handle)
{
        struct pool *p = pools;

        while (p && p->handle != handle)
                p = p->next;
        if (p || !handle)
                return p && !p->handed_over ? p : NULL;
        for (unsigned i = 0; i < core.gpu_count; i++) {
                const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)i};
                struct gpu *g = gpu_of_location(&here);
                CUmemoryPool its;

                if (g && real.cuDeviceGetDefaultMemPool(&its, (CUdevice)i) == CUDA_SUCCESS &&
                    its == handle)
                        return pool_new(handle, g, 0);
        }
        return NULL;
}

void pool_born(CUmemoryPool handle, const CUmemPoolProps *props)
{
        struct gpu *g = gpu_of_location(&props->location);

        /* Pools whose memory other processes may open stay with the driver. */
        if (g && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
            props->handleTypes == CU_MEM_HANDLE_TYPE_NONE)
                (void)pool_new(
                        handle, g,
                        props->maxSize <= UINT64_MAX / 2 ? align_up(props->maxSize, POOL_STEP) : 0);
}

struct gpu *pool_gpu(const struct pool *p)
{
        return p->gpu;
}

CUmemoryPool pool_handle(const struct block *b)
{
        return b->chunk ? container_of(b->chunk->suballocator, struct pool, suballocator)->name
                        : NULL;
}

static uint64_t pool_reserved(const struct pool *p)
{
        uint64_t sum = 0;

        for (const struct chunk *c = p->suballocator.chunks; c; c = c->next)
                for (unsigned i = 0; i < c->block->extent_count; i++)
                        if (c->block->extents[i].counted)
                                sum += c->block->extents[i].bytes;
        return sum;
}

/* ---- giving memory back ---- */

static bool extent_is_idle(const struct extent *e)
{
        return e->state == EXTENT_RESIDENT && !e->busy && !e->live;
}

/* True for an unused extent that the driver would have given back, with or without memory: the size
 * that the program reads must no longer count it. */
static bool extent_may_go(const struct extent *e)
{
        return e->told && !e->unawaited && !e->live && !e->busy &&
               (e->state == EXTENT_RESIDENT || e->state == EXTENT_UNBACKED);
}

/* Returns the highest unused extent in a free suballocation that all streams may use. awaited: only
 * if the program has waited for its frees. */
static struct extent *idle_extent(const struct pool *p, bool awaited)
{
        const struct free_list *l = &p->suballocator.common;

        for (unsigned bin = SUBALLOCATOR_BINS; bin-- > suballocator_bin(HEAP_GRANULARITY);)
                for (const struct suballocation *n = l->bins[bin]; n; n = n->next) {
                        const struct block *b = n->chunk->block;
                        uint64_t from = n->address - b->address, to = from + n->bytes;
                        uint64_t i = MIN(to / b->extent_bytes, b->extent_count);

                        while (i-- > 0 && i * b->extent_bytes >= from)
                                if (awaited ? extent_may_go(&b->extents[i])
                                            : extent_is_idle(&b->extents[i]))
                                        return &b->extents[i];
                }
        return NULL;
}

/* Give memory back until `bytes` are released, or until the pool size that the program reads is at
 * most `keep`. awaited: as for idle_extent(). Returns the released bytes. */
static uint64_t release(struct pool *p, uint64_t bytes, uint64_t keep, bool awaited)
        UNLOCKS(core_lock)
{
        uint64_t released = 0;
        struct extent *e;

        p->users++;
        while (released < bytes && pool_told(p) > keep && (e = idle_extent(p, awaited))) {
                const uint32_t unawaited = e->unawaited;

                e->told = false;
                e->unawaited = 0;
                if (e->state == EXTENT_RESIDENT && !swap_release(p->gpu, e)) {
                        e->told = true;
                        e->unawaited = unawaited;
                        break;
                }
                released += e->bytes;
        }
        p->users--;
        if (released)
                request_kick();
        return released;
}

static bool idle_moves(const struct pool *p)
{
        for (const struct chunk *c = p->suballocator.chunks; c; c = c->next)
                for (unsigned i = 0; i < c->block->extent_count; i++)
                        if (c->block->extents[i].busy && c->block->extents[i].counted &&
                            !c->block->extents[i].live)
                                return true;
        return false;
}

/* Wait for moves in progress: the result of a program's call must not depend on whether the agent
 * is just moving unused memory. */
static void look_and_await(struct pool *p) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "a transfer of its own memory"};

        p->users++;
        (void)pool_look(p, false);
        while (idle_moves(p) && !core_passive())
                core_wait(&w, UINT64_MAX);
        p->users--;
}

/* The driver gives back memory beyond the threshold as soon as the program has waited for its free.
 * That would cost time at each wait. So it is done later: by the agent, or here when the program
 * asks for the size. */
static void shrink(struct pool *p) UNLOCKS(core_lock)
{
        look_and_await(p);
        (void)release(p, UINT64_MAX, p->threshold, true);
}

uint64_t pool_settle(const struct gpu *g)
{
        uint64_t elsewhere = 0;

        for (struct pool *p = pools; p; p = p->next)
                if (p->gpu == g) {
                        shrink(p);
                        elsewhere += pool_told(p) - pool_reserved(p);
                }
        return elsewhere;
}

void pool_trim(struct pool *p, uint64_t keep)
{
        look_and_await(p);
        /* As in the driver, the size is rounded up to steps, and is 0 if the sum overflows. */
        (void)release(p, UINT64_MAX, (keep + POOL_STEP - 1) & ~(POOL_STEP - 1), true);
}

bool pool_reclaim(struct gpu *g, uint64_t bytes)
{
        uint64_t released = 0;

        for (struct pool *p = pools; p && released < bytes; p = p->next)
                if (p->gpu == g) {
                        (void)pool_look(p, true);
                        released += release(p, bytes - released, 0, false);
                }
        return released > 0;
}

/* Delete a pool whose handle is invalid and from which nothing is allocated any more. */
static void pool_delete(struct pool *p) UNLOCKS(core_lock)
{
        struct pool **link = &pools;

        while (*link != p)
                link = &(*link)->next;
        *link = p->next;
        while (p->suballocator.chunks) {
                struct chunk *c = p->suballocator.chunks;
                struct block *b = c->block;

                suballocator_remove(&p->suballocator, c);
                pool_forget_kept(b);
                b->dying = true;
                swap_discard(p->gpu, b);
        }
        suballocator_clear(&p->suballocator);
        for (struct pool_free_list *l; (l = p->free_lists);) {
                p->free_lists = l->next;
                if (l->event)
                        (void)real.cuEventDestroy_v2(l->event);
                free(l);
        }
        free(p);
}

/* True if the program has destroyed the pool, and none of its memory is allocated or waits for a
 * free to be reached. */
static bool pool_is_over(struct pool *p)
{
        if (p->handle || p->users || p->suballocator.live || p->gpu->error)
                return false;
        for (const struct pool_free_list *l = p->free_lists; l; l = l->next)
                if (l->free.bytes || l->looking || l->waiters)
                        return false;
        return true;
}

/* Shrink an unused pool to its threshold. True: look again later. */
static bool tend(struct pool *p) UNLOCKS(core_lock)
{
        bool rested = p->turns == p->turns_seen || !p->handle;

        p->turns_seen = p->turns;
        if (pool_told(p) <= p->threshold && p->handle)
                return false;
        if (rested) {
                (void)pool_look(p, false);
                (void)release(p, UINT64_MAX, p->threshold, p->handle != NULL);
        }
        /* Only a destroyed pool waits for its streams to reach frees. */
        for (const struct pool_free_list *l = p->free_lists; l && !p->handle; l = l->next)
                if (l->free.bytes)
                        return true;
        return !rested;
}

uint64_t pool_tend(uint64_t now)
{
        bool more = false;

        if (!pool_tending)
                return UINT64_MAX;
        if (now < pool_tend_ns)
                return pool_tend_ns - now;
        pool_tending = false; /* cleared before tend(): a thread may set the flag again */
        for (struct pool *p = pools, *next; p; p = next) {
                bool again = tend(p);

                next = p->next;
                if (pool_is_over(p))
                        pool_delete(p);
                else
                        more = more || again || (!p->handle && !p->suballocator.live);
        }
        if (more)
                pool_tend_soon();
        return pool_tending ? POOL_REST_NS : UINT64_MAX;
}

void pool_dies(CUmemoryPool handle, bool handed_over)
{
        struct pool *p = pools;

        while (p && (p->handle != handle || p->handed_over != handed_over))
                p = p->next;
        if (!p || !handle)
                return;
        p->handle = NULL;
        p->threshold = 0;
        pool_tend_soon();
}

void pool_hand_over(struct pool *p)
{
        p->handed_over = true;
}

/* ---- allocating ---- */

static struct suballocation *smaller(struct suballocation *a, struct suballocation *b)
{
        return !a || (b && b->bytes < a->bytes) ? b : a;
}

/* Returns free memory that a stream may use now. in_use_only: only memory that heap.allocated
 * counts already. */
static struct suballocation *look_up(struct pool *p, struct pool_free_list *l, uint64_t bytes,
                                     bool in_use_only)
{
        struct suballocation *n = suballocator_fit(&p->suballocator.common, bytes, in_use_only);

        if (l)
                n = smaller(n, suballocator_fit(&l->free, bytes, in_use_only));
        return n || !l ? n : suballocator_join(&p->suballocator, &l->free, bytes, in_use_only);
}

/* Rather than fail, wait for frees that other streams have not reached yet. Do not wait for ever:
 * those streams may wait for work that this thread has yet to submit. */
static bool await_frees(struct pool *p, const uint64_t *until_ns) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "memory that other streams free"};
        uint64_t pending = 0;

        for (struct pool_free_list *l = p->free_lists; l; l = l->next)
                pending += l->done < l->freed ? l->free.bytes : 0;
        if (!pending || quiesce_capturing() || clock_now_ns() >= *until_ns)
                return false;
        core_wait(&w, NSEC_PER_MSEC);
        (void)pool_look(p, true);
        return true;
}

/* Find room for an allocation of `bytes`. True: try again. */
static bool grow(struct pool *p, const struct pool_stream *s, uint64_t bytes, uint64_t cost,
                 uint64_t *until_ns) UNLOCKS(core_lock)
{
        struct gpu *g = p->gpu;
        bool may_grow = !p->most || pool_reserved(p) + cost <= p->most;

        if (may_grow && cost <= sub_sat(g->visible, g->heap.allocated + core_own_unevictable(g)) &&
            room_commit(g, cost) == 0)
                return true;
        if (pool_borrow(p, s, bytes))
                return true;
        if (may_grow ? room_grow(g, cost) : release(p, cost, 0, false) > 0)
                return true;
        if (!*until_ns)
                *until_ns = clock_now_ns() + LAST_RESORT_NS;
        return await_frees(p, until_ns);
}

/* True if other programs wait for the GPU and the throttle is on. */
static bool contested(void)
{
        return atomic_load_explicit(&gate_bits, memory_order_relaxed) & GATE_THROTTLE;
}

/* Returns a free suballocation that is large enough, if possible one that heap.allocated counts
 * already. look: first find out which frees are reached. NULL: no address space. */
static struct suballocation *find_free(struct pool *p, const struct pool_stream *s, uint64_t bytes,
                                       bool look) UNLOCKS(core_lock)
{
        struct suballocation *n = look_up(p, pool_list_find(p, s), bytes, true);

        if (!n && look && pool_look(p, true))
                n = look_up(p, pool_list_find(p, s), bytes, true);
        if (!n)
                n = look_up(p, pool_list_find(p, s), bytes, false);
        if (!n && pool_widen(p, bytes) == 0)
                n = look_up(p, pool_list_find(p, s), bytes, false);
        return n;
}

/* Tells why there is no room, unless the program itself has limited the pool. */
static void tell_no_room(const struct pool *p, uint64_t more) REQUIRES(core_lock)
{
        if (!p->gpu->error && (!p->most || pool_reserved(p) + more <= p->most))
                room_tell(p->gpu, more);
}

/* Returns a free suballocation that is large enough and for which there is room, or NULL. */
static struct suballocation *find_room(struct pool *p, const struct pool_stream *s, uint64_t bytes)
        UNLOCKS(core_lock)
{
        struct heap *h = &p->gpu->heap;
        const uint64_t pages = align_up(bytes, HEAP_GRANULARITY);
        uint64_t until_ns = 0, cost;
        bool look = true, whole = true; /* whole: take whole extents, not pages */

        if (bytes > p->gpu->visible) {
                tell_no_room(p, bytes);
                return NULL;
        }
        while (!p->gpu->error) { /* after an error the pool gets no memory any more */
                struct suballocation *n = whole ? find_free(p, s, bytes, look) : NULL;

                if ((whole && !n) || p->gpu->error)
                        return NULL;
                cost = whole ? heap_use_cost(n->chunk->block, n->address, bytes) : pages;
                if (cost == 0)
                        return n;
                look = false;
                /* If memory is short, release unused extents before taking more memory. */
                if (contested() && h->backed + cost > core_limit(p->gpu) &&
                    release(p, cost, 0, false) > 0)
                        continue;
                if (h->allocated + cost <= room_allowed(p->gpu) &&
                    (!p->most || pool_reserved(p) + cost <= p->most))
                        return whole ? n : pool_pages(p, pages);
                if (!grow(p, s, bytes, cost, &until_ns)) {
                        if (!whole || cost <= pages) {
                                tell_no_room(p, cost);
                                return NULL;
                        }
                        whole = false;
                }
                look = true;
        }
        return NULL;
}

void pool_drop_idle(struct pool *p, struct block *b, CUdeviceptr at, uint64_t bytes)
{
        uint64_t i = (at - b->address) / b->extent_bytes,
                 last = (at + bytes - 1 - b->address) / b->extent_bytes;
        bool idle = false;

        for (; i <= last; i++) {
                if (b->extents[i].live)
                        continue;
                idle = idle || !p->handle || !b->extents[i].unawaited;
                swap_unused(p->gpu, &b->extents[i]);
        }
        if (idle && p->threshold != UINT64_MAX)
                pool_tend_soon();
}

static void give(struct pool *p, struct suballocation *n, struct pool_free_list *l)
        REQUIRES(core_lock)
{
        struct block *b = n->chunk->block;
        CUdeviceptr at = n->address;
        uint64_t bytes = n->bytes;

        p->turns++;
        if (!l || !pool_keep(p, b, at, bytes))
                heap_unuse(b, at, bytes);
        if (l) {
                l->freed = frees_next();
                suballocator_give(&p->suballocator, n, &l->free, l->freed);
                pool_note_unawaited(l, b, at, bytes);
        } else {
                suballocator_give(&p->suballocator, n, &p->suballocator.common, 0);
        }
        pool_drop_idle(p, b, at, bytes);
}

CUresult pool_allocate(struct pool *p, const struct pool_stream *s, uint64_t bytes,
                       CUdeviceptr *ret_address)
{
        struct gpu *g = p->gpu;
        struct suballocation *n;
        struct block *b;
        bool more;

        p->users++;
        n = find_room(p, s, bytes);
        p->users--;
        n = n ? suballocator_take(&p->suballocator, n, bytes) : NULL;
        if (!n)
                return g->error ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
        b = n->chunk->block;
        p->turns++;
        more = heap_use_cost(b, n->address, n->bytes) > 0;
        heap_use(&g->heap, b, n->address, n->bytes);
        pool_note_used(b, n->address, n->bytes);
        if (more) {
                p->reserved_high = MAX(p->reserved_high, pool_told(p));
                request_report(g);
                g->commit_used_ns = clock_now_ns();
                if (g->limit == UINT64_MAX && swap_back_block(g, b) < 0) {
                        give(p, n, NULL);
                        return CUDA_ERROR_OUT_OF_MEMORY;
                }
                swap_back_new(g);
        }
        if (heap_missing(&g->heap) > 0 && !(atomic_load(&gate_bits) & GATE_UNBACKED))
                gate_shut(GATE_UNBACKED);
        p->used += bytes;
        p->used_high = MAX(p->used_high, p->used);
        *ret_address = n->address;
        return CUDA_SUCCESS;
}

CUresult pool_free(const struct block *b, CUdeviceptr address, const struct pool_stream *s)
{
        struct pool *p = container_of(b->chunk->suballocator, struct pool, suballocator);
        struct suballocation *n = suballocator_at(&p->suballocator, address);
        struct pool_free_list *l = s && n ? pool_list_get(p, s) : NULL;

        if (!n)
                return CUDA_ERROR_INVALID_VALUE;
        if (s && !l)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (s)
                p->used -= n->requested;
        give(p, n, l);
        return CUDA_SUCCESS;
}

/* ---- attributes ---- */

bool pool_get(struct pool *p, CUmemPool_attribute which, cuuint64_t *ret_value)
{
        switch (which) {
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
                shrink(p);
                *ret_value = pool_told(p);
                return true;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
                *ret_value = p->reserved_high;
                return true;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
                *ret_value = p->used;
                return true;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                *ret_value = p->used_high;
                return true;
        default:
                return false;
        }
}

void pool_set(struct pool *p, CUmemPool_attribute which, const void *value)
{
        switch (which) {
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
                p->may_wait = *(const int *)value != 0;
                break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                p->threshold = *(const cuuint64_t *)value;
                pool_tend_soon();
                break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* only a reset is allowed */
                p->reserved_high = pool_told(p);
                break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                p->used_high = p->used;
                break;
        default:
                break;
        }
}
