/* pool.c: owns the memory pools. Must never give a piece to a stream that may run before the one
 * that freed it has come to the free. */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "capture.h"
#include "graph_memory.h"
#include "stream.h"

#define MAGIC_POOL 0x504f4f4cu
#define POOL_UNIT  UINT64_C(512)
#define POOL_STEP  (UINT64_C(32) << 20) /* a pool grows by multiples of it */

struct piece {
        struct segment *segment;
        uint64_t start, bytes;
        struct block *block; /* NULL: free */
        struct point freed;  /* free: by whom, and when */
        struct piece *next;  /* by address */
};

/* Memory of the card, in one piece of the address space. */
struct segment {
        struct segment *next;
        CUmemoryPool pool;
        struct range *range;
        struct piece *first;
};

struct CUmemPoolHandle_st {
        uint32_t magic;
        unsigned device;
        bool is_default, destroyed;
        CUmemPoolProps props;
        int may[3]; /* CU_MEMPOOL_ATTR_REUSE_ */
        uint64_t threshold, reserved, reserved_high, used, used_high;
        struct segment *segments;
        struct CUmemPoolHandle_st *next;
};

static struct CUmemPoolHandle_st *pools, defaults[SESSION_DEVICES];
static CUmemoryPool current[SESSION_DEVICES];

static CUresult pool_check(CUmemoryPool pool)
{
        return pool && pool->magic == MAGIC_POOL && !pool->destroyed ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

/* Under sim.lock. */
static CUmemoryPool default_pool(unsigned device)
{
        CUmemoryPool p = &defaults[device];

        if (p->magic != MAGIC_POOL) {
                *p = (struct CUmemPoolHandle_st){.magic = MAGIC_POOL,
                                                 .device = device,
                                                 .is_default = true,
                                                 .may = {1, 1, 1},
                                                 .next = pools};
                pools = p;
        }
        return p;
}

static CUmemoryPool current_pool(unsigned device)
{
        return current[device] ? current[device] : default_pool(device);
}

CUmemoryPool pool_of(const struct piece *piece)
{
        return piece->segment->pool;
}

/* ---- pieces; under sim.lock ---- */

static bool piece_reached(const struct piece *p)
{
        return !p->block && point_reached(&p->freed);
}

static bool piece_usable(const struct piece *p, CUstream stream)
{
        return !p->block && (p->freed.stream == stream || point_reached(&p->freed));
}

/* One with its higher neighbour, where the same may use them. */
static bool piece_join(struct piece *p)
{
        struct piece *n = p->next;

        if (p->block || !n || n->block ||
            (p->freed.stream != n->freed.stream && !(piece_reached(p) && piece_reached(n))))
                return false;
        p->bytes += n->bytes;
        p->next = n->next;
        if (n->freed.number > p->freed.number || !p->freed.stream)
                p->freed = n->freed;
        free(n);
        return true;
}

static struct piece *piece_find(CUmemoryPool pool, uint64_t bytes, CUstream stream)
{
        struct piece *best = NULL;

        for (struct segment *s = pool->segments; s; s = s->next)
                for (struct piece *p = s->first; p; p = p->next) {
                        while (piece_join(p))
                                ;
                        if (piece_usable(p, stream) && p->bytes >= bytes &&
                            (!best || p->bytes < best->bytes))
                                best = p;
                }
        return best;
}

/* One that only has to be waited for. */
static struct piece *piece_find_later(CUmemoryPool pool, uint64_t bytes)
{
        for (struct segment *s = pool->segments; s; s = s->next)
                for (struct piece *p = s->first; p; p = p->next)
                        if (!p->block && p->bytes >= bytes)
                                return p;
        return NULL;
}

static int piece_cut(struct piece *p, uint64_t bytes)
{
        struct piece *rest;

        if (p->bytes == bytes)
                return 0;
        rest = calloc(1, sizeof(*rest));
        if (!rest)
                return -1;
        *rest = *p;
        rest->start += bytes;
        rest->bytes -= bytes;
        p->bytes = bytes;
        p->next = rest;
        return 0;
}

void pool_take_back(struct piece *piece, CUstream stream)
{
        CUmemoryPool pool = pool_of(piece);

        pool->used -= piece->block->span.bytes;
        piece->block = NULL;
        piece->freed = (struct point){stream, stream ? stream->submitted : 0};
}

/* ---- memory of the card ---- */

/* Segments that are all free and reached go back until the pool holds no more than so much. */
static bool pool_release(CUmemoryPool pool, uint64_t keep)
{
        struct segment **link = &pool->segments, *s;
        bool any = false;

        while ((s = *link) && pool->reserved > keep) {
                while (piece_join(s->first))
                        ;
                if (s->first->next || !piece_reached(s->first)) {
                        link = &s->next;
                        continue;
                }
                *link = s->next;
                pool->reserved -= s->first->bytes;
                space_lock();
                memory_range_free(s->range);
                space_unlock();
                free(s->first);
                free(s);
                any = true;
        }
        return any;
}

void pools_synced(void)
{
        if (!__atomic_load_n(&pools, __ATOMIC_RELAXED))
                return;
        pthread_mutex_lock(&sim.lock);
        for (CUmemoryPool p = pools; p; p = p->next)
                (void)pool_release(p, p->destroyed ? 0 : p->threshold);
        pthread_mutex_unlock(&sim.lock);
}

bool pools_release(unsigned device)
{
        bool any = false;

        pthread_mutex_lock(&sim.lock);
        for (CUmemoryPool p = pools; p; p = p->next)
                any = (p->device == device && pool_release(p, 0)) || any;
        pthread_mutex_unlock(&sim.lock);
        return any;
}

/* Without a lock: room may have to be made by other processes. */
static CUresult segment_new(CUmemoryPool pool, uint64_t bytes, struct segment **ret)
{
        struct segment *s = calloc(1, sizeof(*s));
        struct piece *p = calloc(1, sizeof(*p));
        CUresult r = s && p ? memory_range_new(pool->device, bytes, &s->range)
                            : CUDA_ERROR_OUT_OF_MEMORY;

        if (r != CUDA_SUCCESS) {
                free(s);
                free(p);
                return r;
        }
        s->pool = pool;
        s->first = p;
        *p = (struct piece){.segment = s, .start = s->range->span.start, .bytes = bytes};
        space_unlock();
        *ret = s;
        return CUDA_SUCCESS;
}

/* As much as the driver would take, or what is needed where that is not to be had. sim.lock held,
 * given up meanwhile. */
static CUresult pool_grow(CUmemoryPool pool, uint64_t bytes)
{
        uint64_t step = align_up(bytes, POOL_STEP);
        struct segment *s;
        CUresult r;

        if (bytes > UINT64_MAX / 2 ||
            (pool->props.maxSize && pool->reserved + step > pool->props.maxSize))
                return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&sim.lock);
        r = segment_new(pool, step, &s);
        if (r == CUDA_ERROR_OUT_OF_MEMORY) {
                step = align_up(bytes, SPACE_GRANULARITY);
                r = segment_new(pool, step, &s);
        }
        pthread_mutex_lock(&sim.lock);
        if (r != CUDA_SUCCESS)
                return r;
        s->next = pool->segments;
        pool->segments = s;
        pool->reserved += step;
        pool->reserved_high = MAX(pool->reserved_high, pool->reserved);
        return CUDA_SUCCESS;
}

/* ---- allocating ---- */

/* What another stream has freed: this one shall wait for it. */
static struct piece *piece_await(CUmemoryPool pool, uint64_t bytes, CUstream stream)
{
        struct piece *p = pool->may[2] ? piece_find_later(pool, bytes) : NULL;
        struct work w = {.kind = WORK_EMPTY};

        return p && stream_submit_locked(stream, &w, &p->freed, 1, NULL) == CUDA_SUCCESS ? p : NULL;
}

static CUresult allocate_locked(CUmemoryPool pool, uint64_t bytes, CUstream stream,
                                CUdeviceptr *ret_ptr)
{
        uint64_t whole = align_up(bytes, POOL_UNIT);
        struct block *b = calloc(1, sizeof(*b));
        struct piece *p = piece_find(pool, whole, stream);
        CUresult r = b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

        if (!p && b) {
                r = pool_grow(pool, whole);
                p = r == CUDA_SUCCESS ? piece_find(pool, whole, stream)
                                      : piece_await(pool, whole, stream);
                r = p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (r == CUDA_SUCCESS && piece_cut(p, whole) < 0)
                r = CUDA_ERROR_OUT_OF_MEMORY;
        if (r != CUDA_SUCCESS) {
                free(b);
                return r;
        }
        *b = (struct block){.span = {p->start, bytes},
                            .kind = BLOCK_POOL,
                            .range = p->segment->range,
                            .piece = p};
        p->block = b;
        pool->used += bytes;
        pool->used_high = MAX(pool->used_high, pool->used);
        space_lock();
        r = block_add(b) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (r != CUDA_SUCCESS) {
                pool_take_back(p, stream);
                free(b);
        }
        space_unlock();
        if (r == CUDA_SUCCESS)
                *ret_ptr = p->start;
        return r;
}

/* pool NULL: the current one of the stream's device. */
static CUresult allocate(const char *function, CUdeviceptr *ret_ptr, size_t bytes, bool named,
                         CUmemoryPool pool, CUstream stream)
{
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ptr || (named && pool_check(pool) != CUDA_SUCCESS))
                return CUDA_ERROR_INVALID_VALUE;
        if (bytes == 0) {
                *ret_ptr = 0;
                return CUDA_SUCCESS;
        }
        pthread_mutex_lock(&sim.lock);
        if (!named)
                pool = current_pool(stream->context->device);
        if (stream->capture)
                r = graph_memory_capture(stream, pool->device, bytes, ret_ptr);
        else
                r = capture_unsafe_locked();
        if (r == CUDA_SUCCESS && !stream->capture)
                r = allocate_locked(pool, bytes, stream, ret_ptr);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *ret_ptr, size_t bytes, CUstream stream)
{
        return allocate(__func__, ret_ptr, bytes, false, NULL, stream);
}

EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ret_ptr, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
        return allocate(__func__, ret_ptr, bytes, true, pool, stream);
}

/* What the program can see of it ends now, whatever the stream has still to do. */
static CUresult free_in_order(CUdeviceptr ptr, CUstream stream, bool *ret_device)
{
        struct block *b;
        CUresult r = CUDA_SUCCESS;

        space_lock();
        b = memory_block(ptr);
        *ret_device = b && b->span.start == ptr && b->kind == BLOCK_DEVICE;
        if (b && b->kind == BLOCK_MANAGED)
                r = CUDA_ERROR_NOT_SUPPORTED;
        else if (!b || b->span.start != ptr || (b->kind != BLOCK_POOL && !*ret_device))
                r = CUDA_ERROR_INVALID_VALUE;
        else if (b->kind == BLOCK_POOL)
                block_free_on(b, stream);
        space_unlock();
        return r;
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
        struct work w = {.kind = WORK_FREE, .free = ptr};
        bool device = false;
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS || !ptr)
                return r;
        pthread_mutex_lock(&sim.lock);
        if (stream->capture) {
                r = graph_memory_capture_free(stream, ptr);
        } else {
                r = capture_unsafe_locked();
                if (r == CUDA_SUCCESS && !graph_memory_free(ptr, &r))
                        r = free_in_order(ptr, stream, &device);
        }
        pthread_mutex_unlock(&sim.lock);
        /* cuMemAlloc's memory is there until the stream has come to it. */
        return r == CUDA_SUCCESS && device ? stream_submit(stream, &w, NULL, 0) : r;
}

/* ---- pools ---- */

static CUresult pool_enter(const char *function, CUmemoryPool pool)
{
        CUresult r = api_enter(function, API_ANY, NULL);

        return r != CUDA_SUCCESS ? r : pool_check(pool);
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        CUmemoryPool p;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
                return CUDA_ERROR_INVALID_VALUE;
        if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->handleTypes)
                return CUDA_ERROR_NOT_SUPPORTED; /* memory of the host, and other processes: not
                                                    modelled */
        if (props->location.id < 0 || (unsigned)props->location.id >= sim.devices)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < sizeof(props->reserved); i++)
                if (props->reserved[i])
                        return CUDA_ERROR_INVALID_VALUE;
        p = calloc(1, sizeof(*p));
        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        p->magic = MAGIC_POOL;
        p->device = (unsigned)props->location.id;
        p->props = *props;
        p->may[0] = p->may[1] = p->may[2] = 1;
        pthread_mutex_lock(&sim.lock);
        p->next = pools;
        pools = p;
        pthread_mutex_unlock(&sim.lock);
        *ret_pool = p;
        return CUDA_SUCCESS;
}

/* The object stays: what is allocated from it is freed later, and handles must not be mixed up. */
EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS || pool->is_default)
                return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        pool->destroyed = true;
        if (current[pool->device] == pool)
                current[pool->device] = NULL;
        (void)pool_release(pool, 0);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep)
{
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        r = capture_unsafe_locked();
        if (r == CUDA_SUCCESS)
                (void)pool_release(pool, align_up(min_bytes_to_keep, POOL_STEP));
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS)
                return r;
        if (!value)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
                pool->may[attribute - 1] = *(int *)value != 0;
                break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                pool->threshold = *(cuuint64_t *)value;
                break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                if (*(cuuint64_t *)value)
                        r = CUDA_ERROR_INVALID_VALUE;
                else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
                        pool->used_high = pool->used;
                else
                        pool->reserved_high = pool->reserved;
                break;
        default:
                r = CUDA_ERROR_INVALID_VALUE;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS)
                return r;
        if (!value)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
                *(int *)value = pool->may[attribute - 1];
                break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                *(cuuint64_t *)value = pool->threshold;
                break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
                *(cuuint64_t *)value = pool->reserved;
                break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
                *(cuuint64_t *)value = pool->reserved_high;
                break;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
                *(cuuint64_t *)value = pool->used;
                break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                *(cuuint64_t *)value = pool->used_high;
                break;
        default:
                r = CUDA_ERROR_INVALID_VALUE;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
        CUresult r = pool_enter(__func__, pool);

        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
                if (!map)
                        r = CUDA_ERROR_INVALID_VALUE;
                else if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
                         map[i].location.id != (int)pool->device ||
                         map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                        r = CUDA_ERROR_INVALID_DEVICE; /* no other card reaches it here */
                else if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                        r = CUDA_ERROR_NOT_SUPPORTED;
        }
        return r;
}

EXPORT CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool,
                                   CUmemLocation *location)
{
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS)
                return r;
        if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
            location->id < 0 || (unsigned)location->id >= sim.devices)
                return CUDA_ERROR_INVALID_VALUE;
        *flags = location->id == (int)pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return CUDA_SUCCESS;
}

/* ---- a device's pools ---- */

static CUresult devices_pool_enter(const char *function, CUdevice device, const void *ret)
{
        CUresult r = api_enter(function, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret || device < 0)
                return CUDA_ERROR_INVALID_VALUE;
        return device_check(device);
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *ret_pool, CUdevice device)
{
        CUresult r = devices_pool_enter(__func__, device, ret_pool);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        *ret_pool = default_pool((unsigned)device);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *ret_pool, CUdevice device)
{
        CUresult r = devices_pool_enter(__func__, device, ret_pool);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        *ret_pool = current_pool((unsigned)device);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
        CUresult r = devices_pool_enter(__func__, device, pool);

        if (r == CUDA_SUCCESS)
                r = pool_check(pool);
        if (r != CUDA_SUCCESS || pool->device != (unsigned)device)
                return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        current[device] = pool;
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

static CUresult location_enter(const char *function, const CUmemLocation *location,
                               CUmemAllocationType type, const void *ret)
{
        CUresult r = api_enter(function, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!location || !ret || location->id < 0)
                return CUDA_ERROR_INVALID_VALUE;
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED)
                return CUDA_ERROR_NOT_SUPPORTED;
        return (unsigned)location->id < sim.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool *ret_pool, CUmemLocation *location,
                                       CUmemAllocationType type)
{
        CUresult r = location_enter(__func__, location, type, ret_pool);

        return r != CUDA_SUCCESS ? r : cuDeviceGetDefaultMemPool(ret_pool, location->id);
}

EXPORT CUresult cuMemGetMemPool(CUmemoryPool *ret_pool, CUmemLocation *location,
                                CUmemAllocationType type)
{
        CUresult r = location_enter(__func__, location, type, ret_pool);

        return r != CUDA_SUCCESS ? r : cuDeviceGetMemPool(ret_pool, location->id);
}

EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                CUmemoryPool pool)
{
        CUresult r = location_enter(__func__, location, type, pool);

        return r != CUDA_SUCCESS ? r : cuDeviceSetMemPool(location->id, pool);
}
