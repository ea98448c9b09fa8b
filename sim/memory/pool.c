/* pool.c: the entry points of memory pools and of stream-ordered memory, and the current pool of
 * each device. */
#include "sim/memory/pool.h"

#include <stdlib.h>

#include "base/macros.h"
#include "sim/queue/capture.h"
#include "sim/memory/graph_memory.h"
#include "sim/memory/pool_memory.h"
#include "sim/queue/stream.h"

static struct CUmemPoolHandle_st defaults[SESSION_DEVICES];
static CUmemoryPool current[SESSION_DEVICES];

static CUresult pool_check(CUmemoryPool pool)
{
        return pool && pool->magic == MAGIC_POOL && !pool->destroyed ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

/* Needs sim.lock. */
static CUmemoryPool default_pool(unsigned device)
{
        CUmemoryPool p = &defaults[device];

        if (p->magic != MAGIC_POOL) {
                p->is_default = true;
                pool_begin(p, device, 0);
        }
        return p;
}

static CUmemoryPool current_pool(unsigned device)
{
        return current[device] ? current[device] : default_pool(device);
}

/* ---- allocating ---- */

static CUresult allocate_locked(CUmemoryPool pool, uint64_t bytes, CUstream stream,
                                CUdeviceptr *ret_ptr)
{
        struct block *b = calloc(1, sizeof(*b));
        struct piece *p;
        CUresult r = b ? pool_memory_take(&pool->memory, bytes, stream, pool->may[1], &p)
                       : CUDA_ERROR_OUT_OF_MEMORY;

        if (r != CUDA_SUCCESS) {
                free(b);
                return r;
        }
        *b = (struct block){.span = {p->start, bytes}, .kind = BLOCK_POOL, .piece = p};
        p->block = b;
        space_lock();
        b->range = space_range(p->start);
        r = block_add(b) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (r != CUDA_SUCCESS) {
                pool_memory_free(p, stream);
                free(b);
        }
        space_unlock();
        if (r == CUDA_SUCCESS)
                *ret_ptr = p->start;
        return r;
}

/* Allocates in stream order. named false: from the current pool of the stream's device. */
static CUresult allocate(const char *function, CUdeviceptr *ret_ptr, size_t bytes, bool named,
                         CUmemoryPool pool, CUstream stream)
{
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_ptr || (named && pool_check(pool) != CUDA_SUCCESS))
                return CUDA_ERROR_INVALID_VALUE;
        *ret_ptr = 0;
        pthread_mutex_lock(&sim.lock);
        if (!named)
                pool = current_pool(stream->context->device);
        if (!stream->capture)
                r = capture_unsafe_locked();
        if (r == CUDA_SUCCESS && bytes && stream->capture)
                r = graph_memory_capture(stream, pool->memory.device, bytes, ret_ptr);
        else if (r == CUDA_SUCCESS && bytes)
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

/* The program loses memory of a pool at once, whatever the stream still has to do. Memory of
 * cuMemAlloc exists until a call has waited for the free. */
static CUresult free_in_order(CUdeviceptr ptr, CUstream stream)
{
        struct block *b;
        CUresult r = CUDA_SUCCESS;

        space_lock();
        b = memory_block(ptr);
        if (b && b->kind == BLOCK_MANAGED)
                r = CUDA_ERROR_NOT_SUPPORTED;
        else if (!b || b->span.start != ptr || (b->kind != BLOCK_POOL && b->kind != BLOCK_DEVICE))
                r = CUDA_ERROR_INVALID_VALUE;
        else if (b->kind == BLOCK_POOL)
                block_free_on(b, stream);
        else
                r = memory_free_ordered(ptr, b->context, stream);
        space_unlock();
        return r;
}

void frees_synced(CUcontext c, const struct point *p)
{
        pthread_mutex_lock(&sim.lock);
        memory_synced(c, p);
        pthread_mutex_unlock(&sim.lock);
        pools_synced(c, p);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
        CUcontext c;
        CUresult r = stream_enter(__func__, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        if (!stream->capture)
                r = capture_unsafe_locked();
        if (r != CUDA_SUCCESS || !ptr)
                ; /* an error, or a NULL pointer: nothing is freed */
        else if (stream->capture)
                r = graph_memory_capture_free(stream, ptr);
        else if (!graph_memory_free(ptr, &r))
                r = free_in_order(ptr, stream);
        pthread_mutex_unlock(&sim.lock);
        return r;
}

/* ---- pools ---- */

static CUresult pool_enter(const char *function, CUmemoryPool pool)
{
        CUresult r = api_enter(function, API_UNSAFE, NULL);

        return r != CUDA_SUCCESS ? r : pool_check(pool);
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
        const CUmemAllocationHandleType none = CU_MEM_HANDLE_TYPE_NONE;
        CUresult r = api_enter(__func__, API_UNSAFE, NULL);
        CUmemoryPool p;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
                return CUDA_ERROR_INVALID_VALUE;
        if (props->location.type == CU_MEM_LOCATION_TYPE_INVALID ||
            props->location.type > CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ||
            (props->handleTypes &
             ~(unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)))
                return CUDA_ERROR_INVALID_VALUE;
        if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->handleTypes != none)
                return CUDA_ERROR_NOT_SUPPORTED; /* pools are on a device and not exported */
        if (props->location.id < 0 || (unsigned)props->location.id >= sim.devices)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < sizeof(props->reserved); i++)
                if (props->reserved[i])
                        return CUDA_ERROR_INVALID_VALUE;
        p = calloc(1, sizeof(*p));
        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&sim.lock);
        pool_begin(p, (unsigned)props->location.id, props->maxSize);
        pthread_mutex_unlock(&sim.lock);
        *ret_pool = p;
        return CUDA_SUCCESS;
}

/* Keeps the pool's object: its allocations are freed later, and handles must stay distinct. */
EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS || pool->is_default)
                return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        pool->destroyed = true;
        pool->threshold = 0;
        if (current[pool->memory.device] == pool)
                current[pool->memory.device] = NULL;
        (void)pool_memory_release(&pool->memory, 0, true);
        pool_memory_end(&pool->memory);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep)
{
        CUresult r = pool_enter(__func__, pool);
        uint64_t chunk;

        if (r != CUDA_SUCCESS)
                return r;
        chunk = pool->memory.chunk_bytes;
        pthread_mutex_lock(&sim.lock);
        /* As in the driver, the size is rounded up to chunks, and is 0 if the sum overflows. */
        (void)pool_memory_release(&pool->memory, (min_bytes_to_keep + chunk - 1) & ~(chunk - 1),
                                  false);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
        struct pool_memory *m;
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS)
                return r;
        m = &pool->memory;
        if (!value)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
                pool->memory.follows = *(int *)value != 0;
                break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
                pool->may[attribute - CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC] =
                        *(int *)value != 0;
                break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                pool->threshold = *(cuuint64_t *)value;
                break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                if (*(cuuint64_t *)value)
                        r = CUDA_ERROR_INVALID_VALUE;
                else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
                        m->used_high = m->used;
                else
                        m->reserved_high = m->reserved;
                break;
        default:
                r = CUDA_ERROR_INVALID_VALUE;
        }
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
        struct pool_memory *m;
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS)
                return r;
        m = &pool->memory;
        if (!value)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
                *(int *)value = m->follows;
                break;
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
                *(int *)value = pool->may[attribute - CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC];
                break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
                *(cuuint64_t *)value = pool->threshold;
                break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
                *(cuuint64_t *)value = m->reserved;
                break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
                *(cuuint64_t *)value = m->reserved_high;
                break;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
                *(cuuint64_t *)value = m->used;
                break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
                *(cuuint64_t *)value = m->used_high;
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

        if (r == CUDA_SUCCESS && !map)
                r = CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
                if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                    map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                    map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
                        r = CUDA_ERROR_INVALID_VALUE;
                else if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
                        r = CUDA_ERROR_NOT_SUPPORTED;
                else if (map[i].location.id != (int)pool->memory.device ||
                         map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                        r = CUDA_ERROR_INVALID_DEVICE; /* other cards cannot access pools here */
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
        if (!flags || !location || location->type == CU_MEM_LOCATION_TYPE_INVALID)
                return CUDA_ERROR_INVALID_VALUE;
        *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
                return CUDA_SUCCESS;
        if (location->id < 0 || (unsigned)location->id >= sim.devices)
                return CUDA_ERROR_INVALID_VALUE;
        if (location->id == (int)pool->memory.device)
                *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
}

/* ---- other processes ---- */

/* No simulated pool can be exported. The driver refuses calls for such pools in the same way. */
EXPORT CUresult cuMemPoolExportToShareableHandle(void *ret_handle, CUmemoryPool pool,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long flags)
{
        CUresult r = pool_enter(__func__, pool);

        return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *ret_data, CUdeviceptr ptr)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
}

/* ---- a device's pools ---- */

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *ret_pool, CUdevice device)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r == CUDA_SUCCESS)
                r = ret_pool ? device_check(device) : CUDA_ERROR_INVALID_VALUE;
        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        *ret_pool = default_pool((unsigned)device);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *ret_pool, CUdevice device)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_pool || device_check(device) != CUDA_SUCCESS)
                return CUDA_ERROR_INVALID_VALUE;
        pthread_mutex_lock(&sim.lock);
        *ret_pool = current_pool((unsigned)device);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
        CUresult r = pool_enter(__func__, pool);

        if (r != CUDA_SUCCESS)
                return r;
        if (device_check(device) != CUDA_SUCCESS || pool->memory.device != (unsigned)device)
                return CUDA_ERROR_INVALID_VALUE;
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
        if (!location || !ret || location->id < 0 ||
            location->type == CU_MEM_LOCATION_TYPE_INVALID ||
            type == CU_MEM_ALLOCATION_TYPE_INVALID)
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
