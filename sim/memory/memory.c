/* memory.c: cuMemAlloc and its variants. Must never return freed memory to the card before the work
 * submitted before the free has ended. Memory of a pool is the exception, as with the driver. */
#include "sim/memory/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/memory/graph_memory.h"
#include "sim/space/managed.h"
#include "sim/memory/pool.h"
#include "sim/queue/stream.h"
#include "sim/space/trace.h"

CUresult memory_allocate(CUcontext c, uint64_t bytes, CUdeviceptr *ret)
{
        struct block *b = calloc(1, sizeof(*b));
        CUresult r;

        if (!b)
                return CUDA_ERROR_OUT_OF_MEMORY;
        c = context_owner(c);
        b->kind = BLOCK_DEVICE;
        b->context = c;
        if (bytes < BLOCK_SMALL) {
                r = block_small(c, bytes, b);
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
                block_drop_memory(b);
                free(b);
                r = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
                block_allow(b->range, c->device, peer_devices(c));
        }
        space_unlock();
        return r;
}

/* ---- frees in stream order ---- */

static struct ordered {
        struct ordered *next;
        CUdeviceptr ptr;
        CUcontext owner;
        struct point freed;
} * ordered; /* memory that is freed, and for whose free no call has waited */

/* True if memory_free_ordered() has freed it. Needs sim.lock. */
static bool memory_is_freed(CUdeviceptr ptr)
{
        const struct ordered *o = ordered;

        while (o && o->ptr != ptr)
                o = o->next;
        return o != NULL;
}

CUresult memory_free_ordered(CUdeviceptr ptr, CUcontext owner, CUstream stream)
{
        struct ordered *o;

        if (memory_is_freed(ptr))
                return CUDA_ERROR_INVALID_VALUE;
        o = malloc(sizeof(*o));
        if (!o)
                return CUDA_ERROR_OUT_OF_MEMORY;
        *o = (struct ordered){ordered, ptr, owner, {stream, stream->submitted}};
        ordered = o;
        return CUDA_SUCCESS;
}

/* Takes the entries of a context off the list, or those that a wait covers, and frees their memory.
 */
static void ordered_end(CUcontext c, bool all, const struct point *p)
{
        struct ordered **link = &ordered, *o;

        while ((o = *link)) {
                if (all ? o->owner != c : !stream_awaited(c, p, &o->freed)) {
                        link = &o->next;
                        continue;
                }
                *link = o->next;
                (void)memory_free(o->ptr);
                free(o);
        }
}

void memory_synced(CUcontext c, const struct point *p)
{
        ordered_end(c, false, p);
}

/* True for a block that cuMemFree frees after waiting for work. */
static bool is_allocated(const struct block *b, CUdeviceptr ptr)
{
        return b && b->span.start == ptr && (b->kind == BLOCK_DEVICE || b->kind == BLOCK_MANAGED);
}

/* True for a block of a pool or of a graph. */
static bool is_ordered(const struct block *b, CUdeviceptr ptr)
{
        return b && b->span.start == ptr && (b->kind == BLOCK_POOL || b->kind == BLOCK_GRAPH);
}

/* Frees memory of a graph or of a pool. Returns false if ptr is neither. */
static bool free_ordered(CUdeviceptr ptr, CUresult *ret_result)
{
        CUmemoryPool pool = NULL;
        struct block *b;
        bool found;

        pthread_mutex_lock(&sim.lock);
        found = graph_memory_free(ptr, ret_result);
        if (!found) {
                space_lock();
                b = memory_block(ptr);
                found = is_ordered(b, ptr);
                if (found) {
                        pool = b->piece->memory->pool;
                        block_free_on(b, NULL);
                }
                space_unlock();
                if (pool)
                        pool_shrink(pool);
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
        uint64_t end = add_sat(at, bytes); /* no allocation reaches the end of all addresses */
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
        pitch = align_up(width_bytes, BLOCK_SLOT);
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
        bool pooled, freed;

        if (r != CUDA_SUCCESS || !ptr)
                return r;
        pthread_mutex_lock(&sim.lock);
        freed = memory_is_freed(ptr);
        pthread_mutex_unlock(&sim.lock);
        space_lock_shared();
        b = memory_block(ptr);
        pooled = is_ordered(b, ptr) && b->kind == BLOCK_POOL;
        if (is_allocated(b, ptr) && !freed)
                c = b->context;
        else if (!is_ordered(b, ptr))
                r = CUDA_ERROR_INVALID_VALUE;
        space_unlock();
        /* Work submitted before the free, on any stream, may still use it. For memory of a pool the
         * driver relies on the program. */
        if (r == CUDA_SUCCESS && !pooled)
                r = context_wait(c);
        if (r != CUDA_SUCCESS)
                return r;
        return free_ordered(ptr, &r) ? r : memory_free(ptr);
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
        struct block *b;

        ordered_end(c, true, NULL);
        space_lock();
        peer_forget(c);
        for (size_t at = 0; (b = block_of_context(c, &at));)
                block_free(b); /* the next block takes its place in the table */
        space_unlock();
}
