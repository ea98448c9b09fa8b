/* hooks_memory.c: the calls by which a program allocates, frees and asks about memory. Must never
 * grant more than the daemon has promised, nor release memory that submitted work may still use.
 * Why: docs/decisions.md, "`cuMemFree` waits by one event of the whole context" and "Without a
 * daemon from the start, memory comes at once or not at all". */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/move/unevictable.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/share/ipc.h"
#include "cuda/cuda_pointer.h"
#include "preload/hooks/hooks_virtual.h"
#include "preload/hooks/managed.h"
#include "preload/overflow/overflow.h"
#include "preload/state/poison.h"
#include "preload/pool/late_frees.h"
#include "preload/pool/pool.h"
#include "preload/pool/room.h"
#include "preload/stream/quiesce.h"
#include "preload/hooks/rdma.h"
#include "preload/move/swap.h"
#include "preload/state/request.h"

/* Returns the size that the program sees. With overflow, the host memory that was available when
 * the process began counts, too. Lock held. */
static uint64_t told_total(const struct gpu *g) REQUIRES(core_lock)
{
        return g->visible + (g->overflow ? core.host.most : 0);
}

/* Back new memory at once: no daemon can make room later, so the answer has to come now, as from
 * the plain driver. Lock held. */
static int back_alone(struct gpu *g, CUdeviceptr address) UNLOCKS(core_lock)
{
        struct block *dead = NULL;
        struct heap_place p;

        if (!heap_find(&g->heap, address, &p) || swap_back_block(g, p.block) == 0)
                return 0;
        if (heap_free(&g->heap, address, &dead) == 0 && dead)
                swap_discard(g, dead);
        return -ENOMEM;
}

/* Allocate memory of the card. most: the value that heap.allocated may reach. ret_cost: as in
 * heap_allocate(). */
static int allocate_on_card(struct gpu *g, uint64_t bytes, CUcontext owner, uint64_t most,
                            CUdeviceptr *ret_ptr, uint64_t *ret_cost) UNLOCKS(core_lock)
{
        int r;

        /* Other threads may take the granted room before this thread uses it: then request
         * again. */
        for (;;) {
                r = heap_allocate(&g->heap, bytes, owner, MIN(room_allowed(g), most), ret_ptr,
                                  ret_cost);
                if (r == -ENOBUFS ? managed_provide(g, *ret_cost) < 0
                                  : r != -ENOSPC || g->heap.allocated + *ret_cost > most ||
                                            !room_grow(g, *ret_cost))
                        break;
        }
        return r == 0 && g->limit == UINT64_MAX ? back_alone(g, *ret_ptr) : r;
}

static int allocate_with_overflow(struct gpu *g, uint64_t bytes, CUcontext owner,
                                  CUdeviceptr *ret_ptr, uint64_t *ret_cost) UNLOCKS(core_lock)
{
        int r = allocate_on_card(g, bytes, owner, overflow_card_most(g, bytes), ret_ptr, ret_cost);

        if (r < 0)
                r = overflow_allocate(g, bytes, owner, ret_ptr);
        if (r == 0)
                overflow_allocated(g, *ret_ptr, bytes);
        return r;
}

static CUresult allocate(struct gpu *g, uint64_t bytes, CUcontext owner, CUdeviceptr *ret_ptr)
{
        uint64_t cost = 0;
        int r;

        lock_acquire(&core_lock);
        owner = quiesce_owner(owner);
        r = g->overflow ? allocate_with_overflow(g, bytes, owner, ret_ptr, &cost)
                        : allocate_on_card(g, bytes, owner, UINT64_MAX, ret_ptr, &cost);
        if (r == 0) {
                swap_back_new(g);
                room_taken(g);
        } else {
                room_tell(g, MAX(bytes, cost));
        }
        lock_release(&core_lock);
        return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool hooks_capture_forbids(void)
{
        bool forbids;

        if (!quiesce_capturing())
                return false;
        lock_acquire(&core_lock);
        forbids = quiesce_capture_forbids();
        lock_release(&core_lock);
        return forbids;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
        CUcontext owner = NULL;
        struct gpu *g;

        (void)core_setup();
        g = core_current_gpu();
        if (!g || !dptr || bytesize == 0 || poison_current() ||
            real.cuCtxGetCurrent(&owner) != CUDA_SUCCESS)
                return real.cuMemAlloc_v2(dptr, bytesize);
        if (hooks_capture_forbids())
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        return allocate(g, bytesize, owner, dptr);
}

CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                 size_t Height, unsigned int ElementSizeBytes)
{
        CUcontext owner = NULL;
        struct gpu *g;
        uint64_t pitch;
        CUresult r;

        (void)core_setup();
        g = core_current_gpu();
        if (!g || !dptr || !pPitch || WidthInBytes == 0 || Height == 0 || Height > g->total ||
            (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) ||
            poison_current() || real.cuCtxGetCurrent(&owner) != CUDA_SUCCESS)
                return real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height,
                                               ElementSizeBytes);
        pitch = align_up(WidthInBytes, HEAP_SMALL_ALIGN);
        if (pitch > g->total || Height > g->total / pitch)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (hooks_capture_forbids())
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        r = allocate(g, pitch * Height, owner, dptr);
        if (r == CUDA_SUCCESS)
                *pPitch = pitch;
        return r;
}

/* Returns the GPU of an address that we handle: one of the heap, or one opened from another
 * process. The driver handles the program's managed memory. Lock held. */
static struct gpu *find_ours(CUdeviceptr address, struct heap_place *ret) UNLOCKS(core_lock)
{
        struct gpu *g = core_find(address, ret);

        if (g && late_is(ret)) {
                (void)late_settle();
                g = core_find(address, ret);
        }
        if (!g && !core_passive() && ipc_find(address, ret, &g))
                return g;
        return g && ret->block->kind != BLOCK_ADOPTED ? g : NULL;
}

/* True for an address between the program's allocations where memory of ours lies, so that the
 * driver's answer would be wrong. Lock held. */
static bool is_gap(CUdeviceptr address)
{
        for (unsigned i = 0; i < core.gpu_count && !core_passive(); i++)
                if (core.gpus[i].managed && heap_gap(&core.gpus[i].heap, address))
                        return true;
        return false;
}

static bool begins_at(const struct gpu *g, CUdeviceptr address, struct heap_place *ret)
{
        return heap_find(&g->heap, address, ret) && ret->start == address;
}

static CUresult free_ours(struct gpu *g, const struct heap_place *found, CUdeviceptr dptr)
        UNLOCKS(core_lock)
{
        struct block *dead = NULL;
        struct heap_place p;

        if (found->start != dptr || late_is(found))
                return CUDA_ERROR_INVALID_VALUE;
        /* The driver does not wait for work that uses memory of a pool: the program has done so. */
        if (found->block->kind == BLOCK_POOL)
                return pool_free(found->block, dptr, NULL);
        /* The driver's cuMemFree waits for all work submitted before; cuMemUnmap does not.
         * During a capture no stream can be queried: the agent frees the block when the capture
         * has ended. */
        if (!quiesce_capturing())
                quiesce_wait_all();
        if (quiesce_capturing() && begins_at(g, dptr, &p))
                return late_free(g, &p, NULL);
        if (g->error) /* an error that the wait has found */
                return g->error;
        ipc_export_freed(dptr);
        if (heap_free(&g->heap, dptr, &dead) < 0)
                return CUDA_ERROR_INVALID_VALUE; /* freed by another thread while we waited */
        if (dead) {
                swap_discard(g, dead);
                core_room_changed(g); /* other programs may use the block's room */
                request_kick(); /* a freed piece of a slab changes no figure, so nothing else wakes
                                   the agent */
        }
        return CUDA_SUCCESS;
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr)
{
        CUresult r = CUDA_SUCCESS;
        struct heap_place p;
        struct gpu *g;

        (void)core_setup();
        if (core_passive() || dptr == 0 || poison_current())
                return real.cuMemFree_v2(dptr);
        if (hooks_capture_forbids())
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        lock_acquire(&core_lock);
        g = core_find(dptr, &p);
        if (g)
                r = free_ours(g, &p, dptr);
        else
                managed_freed(dptr);
        lock_release(&core_lock);
        return g ? r : real.cuMemFree_v2(dptr);
}

/* Returns the bytes that the driver holds for graphs. */
static uint64_t graph_memory(const struct gpu *g)
{
        cuuint64_t bytes = 0;
        CUresult r = real.cuDeviceGetGraphMemAttribute(
                (CUdevice)g->index, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);

        return r == CUDA_SUCCESS ? bytes : 0;
}

/* Returns the bytes that cuMemAlloc would give now, in one piece: what the daemon would grant, as
 * far as the program's own unevictable bytes and those of graphs leave room for it. Lock held. */
static uint64_t told_free(struct gpu *g, uint64_t graphs) UNLOCKS(core_lock)
{
        uint64_t most, pools;

        request_room(g);
        pools = pool_settle(g);
        most = sub_sat(MIN(g->room, sub_sat(g->visible, core_own_unevictable(g))), graphs);
        return g->overflow ? sub_sat(overflow_free(g, most), pools)
                           : sub_sat(most, g->heap.allocated + pools) & ~(HEAP_GRANULARITY - 1);
}

CUresult hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
        uint64_t graphs;
        struct gpu *g;
        CUresult r;

        (void)core_setup();
        g = core_current_gpu();
        if (g) {
                lock_acquire(&core_lock);
                (void)late_settle(); /* first: without a daemon the driver's figure counts */
                lock_release(&core_lock);
        }
        r = real.cuMemGetInfo_v2(free_bytes, total);
        if (r != CUDA_SUCCESS || !g)
                return r;
        graphs = graph_memory(g);
        lock_acquire(&core_lock);
        if (free_bytes && g->attached)
                *free_bytes = told_free(g, graphs);
        if (total)
                *total = told_total(g);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
        struct gpu *g;
        CUresult r;

        (void)core_setup();
        r = real.cuDeviceTotalMem_v2(bytes, dev);
        if (r != CUDA_SUCCESS)
                return r;
        g = core_attach(dev);
        if (!g)
                return r;
        lock_acquire(&core_lock);
        *bytes = told_total(g);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
        struct heap_place p;
        bool ours, mapped, gap;

        (void)core_setup();
        lock_acquire(&core_lock);
        ours = find_ours(dptr, &p);
        mapped = !ours && virtual_range(dptr, pbase, psize);
        gap = !ours && !mapped && is_gap(dptr);
        lock_release(&core_lock);
        if (mapped)
                return CUDA_SUCCESS;
        if (gap)
                return CUDA_ERROR_NOT_FOUND;
        if (!ours)
                return real.cuMemGetAddressRange_v2(pbase, psize, dptr);
        if (pbase)
                *pbase = p.start;
        if (psize)
                *psize = p.bytes;
        return CUDA_SUCCESS;
}

static bool ipc_capable(const struct gpu *g, const struct heap_place *p, CUdeviceptr ptr)
{
        struct heap_place own; /* found in the heap, not opened from another process */

        return g->passes && ipc_works() && !pool_handle(p->block) && core_find(ptr, &own);
}

/* Returns the driver's answers for cuMemAlloc memory (recorded from CUDA 13.0), so that our answers
 * do not depend on whether the memory is mapped now. Attributes that are not listed are 0. */
static uint64_t place_attribute(CUpointer_attribute which, const struct gpu *g,
                                const struct heap_place *p, CUdeviceptr ptr)
{
        const struct block *b = p->block;
        const bool pooled = pool_handle(b) != NULL;
        const uint64_t step = pooled ? (ptr - b->address) & ~(POOL_STEP - 1) : 0;
        const uint64_t values[POINTER_ATTRIBUTES] = {
                [CU_POINTER_ATTRIBUTE_CONTEXT] = (uintptr_t)b->owner,
                [CU_POINTER_ATTRIBUTE_MEMORY_TYPE] = CU_MEMORYTYPE_DEVICE,
                [CU_POINTER_ATTRIBUTE_DEVICE_POINTER] = ptr,
                [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS] = heap_sync(p),
                [CU_POINTER_ATTRIBUTE_BUFFER_ID] =
                        b->id << 32 | (p->start - b->address) / HEAP_SMALL_ALIGN,
                [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = g->index,
                [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR] = p->start,
                [CU_POINTER_ATTRIBUTE_RANGE_SIZE] = p->bytes,
                [CU_POINTER_ATTRIBUTE_MAPPED] = true,
                [CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE] = g->rdma && !pooled,
                [CU_POINTER_ATTRIBUTE_ACCESS_FLAGS] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                [CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE] = (uintptr_t)pool_handle(b),
                [CU_POINTER_ATTRIBUTE_MAPPING_SIZE] = pooled ? POOL_STEP : b->bytes,
                [CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR] = b->address + step,
                [CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID] = b->id,
                /* True even if the GPU cannot decompress at all, as in the driver. */
                [CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE] = !pooled,
        };

        if (which == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
                return ipc_capable(g, p,
                                   ptr); /* not in the table, because the answer takes a search */
        return values[which];
}

/* Answers an attribute of memory that we handle. CUDA_ERROR_NOT_SUPPORTED: ask the driver. */
static CUresult pointer_attribute(void *data, CUpointer_attribute which, const struct gpu *g,
                                  const struct heap_place *p, CUdeviceptr ptr)
{
        if (!pointer_attribute_exists(which))
                return CUDA_ERROR_NOT_SUPPORTED;
        if (which == CU_POINTER_ATTRIBUTE_P2P_TOKENS) {
                heap_set_sync(p,
                              true); /* programs that use the tokens want synchronous copies, too */
                memset(data, 0, 2 * sizeof(uint64_t));
                return CUDA_SUCCESS;
        }
        pointer_attribute_write(data, which, place_attribute(which, g, p, ptr));
        return which == CU_POINTER_ATTRIBUTE_HOST_POINTER ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Answers an attribute of any address. CUDA_ERROR_NOT_SUPPORTED: ask the driver. Lock held. */
static CUresult known_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
        UNLOCKS(core_lock)
{
        struct heap_place p;
        struct gpu *g = find_ours(ptr, &p);

        if (g)
                return pointer_attribute(data, attribute, g, &p, ptr);
        return is_gap(ptr) ? CUDA_ERROR_INVALID_VALUE : virtual_attribute(data, attribute, ptr);
}

/* Stores the value that the driver stores for an address that it does not know. */
static void attribute_of_nothing(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
        const uint64_t values[POINTER_ATTRIBUTES] = {
                [CU_POINTER_ATTRIBUTE_HOST_POINTER] = ptr,
                [CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL] = (uint64_t)CU_DEVICE_INVALID,
        };

        if (which != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR &&
            which != CU_POINTER_ATTRIBUTE_RANGE_SIZE)
                pointer_attribute_write(data, which, values[which]);
}

/* False: the driver refuses the call whatever the pointer is. */
static bool are_attributes(unsigned count, const CUpointer_attribute *attributes, void *const *data)
{
        for (unsigned i = 0; i < count; i++)
                if (!data[i] || !pointer_attribute_exists(attributes[i]))
                        return false;
        return count > 0;
}

/* The program has announced that a device will register the address: keep the memory in place. No
 * later call shows that, because nvidia-peermem takes plain addresses. */
static CUresult keep_announced(CUdeviceptr ptr) UNLOCKS(core_lock)
{
        struct heap_place p;
        struct gpu *g = find_ours(ptr, &p);

        return g && g->rdma ? rdma_keep(p.start, p.bytes) : CUDA_SUCCESS;
}

CUresult hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
        CUresult r = CUDA_ERROR_NOT_SUPPORTED;

        (void)core_setup();
        lock_acquire(&core_lock);
        if (data)
                r = known_attribute(data, attribute, ptr);
        if (r == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
                r = keep_announced(ptr);
        lock_release(&core_lock);
        return r == CUDA_ERROR_NOT_SUPPORTED ? real.cuPointerGetAttribute(data, attribute, ptr) : r;
}

CUresult hook_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                     void **data, CUdeviceptr ptr)
{
        CUresult r = CUDA_SUCCESS;
        bool tokens = false, ours, gap;
        struct heap_place p;

        (void)core_setup();
        if (!attributes || !data || !are_attributes(numAttributes, attributes, data))
                return real.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
        lock_acquire(&core_lock);
        ours = find_ours(ptr, &p) || virtual_range(ptr, NULL, NULL);
        gap = !ours && is_gap(ptr);
        if (!ours && !gap) {
                lock_release(&core_lock);
                return real.cuPointerGetAttributes(numAttributes, attributes, data, ptr);
        }
        for (unsigned i = 0; i < numAttributes && gap; i++)
                attribute_of_nothing(data[i], attributes[i], ptr);
        for (unsigned i = 0; i < numAttributes && ours; i++) {
                /* As in the driver, attributes that do not apply are left at zero, and the call
                 * succeeds. */
                if (known_attribute(data[i], attributes[i], ptr) == CUDA_ERROR_NOT_SUPPORTED)
                        (void)real.cuPointerGetAttributes(1, &attributes[i], &data[i], ptr);
                tokens = tokens || attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS;
        }
        if (tokens)
                r = keep_announced(ptr);
        lock_release(&core_lock);
        return r;
}

/* Only SYNC_MEMOPS can be set: it makes copies without "async" in their name wait, whatever they
 * copy. The driver refuses it for mapped memory. Our memory is mapped, so the value is kept and
 * answered here. */
CUresult hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                    CUdeviceptr ptr)
{
        CUresult r = CUDA_SUCCESS;
        struct heap_place p;
        struct gpu *ours;
        bool gap, mapped;

        (void)core_setup();
        lock_acquire(&core_lock);
        ours = find_ours(ptr, &p);
        gap = !ours && is_gap(ptr);
        mapped = !ours && !gap && virtual_range(ptr, NULL, NULL);
        if (ours && value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
                heap_set_sync(&p, *(const unsigned *)value);
                /* Programs set SYNC_MEMOPS before they register the address. */
                if (*(const unsigned *)value)
                        r = keep_announced(ptr);
        }
        lock_release(&core_lock);
        if (!ours && !gap && !mapped)
                return real.cuPointerSetAttribute(value, attribute, ptr);
        if (gap || !value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
                return CUDA_ERROR_INVALID_VALUE;
        return ours ? r : CUDA_ERROR_NOT_SUPPORTED;
}
