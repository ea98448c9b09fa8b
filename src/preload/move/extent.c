/* extent.c: owns the driver calls that put memory behind one extent and take it away. Must never
 * hold core_lock: these calls may take long.
 * Why: docs/decisions.md, "Evicted memory is handed over to the next process of the same user". */
#include "preload/move/extent.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/process/nap.h"
#include "preload/rm/freeze_watch.h"
#include "preload/freeze/mover.h"
#include "preload/move/trouble.h"
#include "preload/stream/quiesce.h"
#include "preload/driver/real.h"
#include "preload/state/poison.h"
#include "preload/state/virtual.h"

#define TRIES_MAX 9u /* attempts, in about half a second */

bool extent_may_leave(const struct gpu *g, const struct extent *e)
{
        const struct handle *h = e->block->handle;

        return g->passes && extent_is_whole(g, e) && (!h || !h->prop.allocFlags.compressionType);
}

bool extent_may_adopt(const struct gpu *g, const struct extent *e)
{
        const struct handle *h = e->block->handle;

        return extent_is_whole(g, e) && !e->own &&
               (!h ||
                (!h->prop.allocFlags.compressionType && !h->prop.allocFlags.gpuDirectRDMACapable &&
                 !(h->prop.allocFlags.usage & ~CU_MEM_CREATE_USAGE_HW_DECOMPRESS)));
}

static CUresult extent_create(const struct gpu *g, struct extent *e)
{
        CUmemAllocationProp prop = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)g->index},
                .allocFlags.gpuDirectRDMACapable = g->rdma,
        };

        if (e->block->handle)
                prop = e->block->handle->prop;
        if (g->unpacks) /* as cuMemAlloc does; for all memory, as any may be handed over */
                prop.allocFlags.usage |= CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
        if (extent_may_leave(g, e) ||
            (g->passes && !e->block->handle)) /* another process may open the memory (ipc.h) */
                prop.requestedHandleTypes |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        freeze_watch_call("cuMemCreate");
        return real.cuMemCreate(&e->handle, e->bytes, &prop, 0);
}

/* Import memory from a descriptor. The descriptor is closed even after a failure. */
static CUresult extent_import(struct extent *e, int fd)
{
        CUresult r;

        freeze_watch_call("cuMemImportFromShareableHandle");
        r = real.cuMemImportFromShareableHandle(&e->handle, (void *)(intptr_t)fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

        (void)close(fd);
        return r;
}

int extent_export(const struct extent *e)
{
        int fd = -EBADF;

        return real.cuMemExportToShareableHandle(
                       &fd, e->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS
                       ? fd
                       : -EBADF;
}

CUresult extent_release(const struct extent *e)
{
        CUresult r;

        freeze_watch_call("cuMemRelease");
        r = real.cuMemRelease(e->handle);
        if (r != CUDA_SUCCESS)
                log_debug("cuMemRelease of %llu bytes: CUDA error %d", (unsigned long long)e->bytes,
                          (int)r);
        return r;
}

/* Call it after n failures of a call that no later step repeats. If the call is to be made again,
 * sleeps and returns true. */
static bool is_tried_again(CUresult r, unsigned n)
{
        if (r == CUDA_SUCCESS || poison_sticks(r) || n >= TRIES_MAX)
                return false;
        if (n > 1)
                (void)nap(NSEC_PER_MSEC << n);
        return true;
}

/* Release memory that no later attempt uses. A failed release would be a leak, so it is
 * repeated. */
static void release_surely(const struct extent *e)
{
        for (unsigned n = 1; is_tried_again(extent_release(e), n); n++)
                continue;
}

/* Create host memory on the GPU's NUMA node. If that fails, use any host memory: the node may be
 * full, or a container may not let the driver choose the node (an invalid argument). */
static CUresult extent_create_host(const struct gpu *g, struct extent *e)
{
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}};
        int node = 0;
        CUresult r;

        (void)real.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                        (CUdevice)g->index);
        prop.location.id = MAX(node, 0);
        r = real.cuMemCreate(&e->handle, e->bytes, &prop, 0);
        if (r == CUDA_SUCCESS)
                return r;
        prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
        return real.cuMemCreate(&e->handle, e->bytes, &prop, 0);
}

/* ---- the addresses of an extent ---- */

/* Returns an address at which the extent can be copied, or 0. */
static CUdeviceptr extent_address(const struct extent *e)
{
        const struct handle *h = e->block->handle;

        if (e->block->kind != BLOCK_HANDLE)
                return e->address;
        return h && h->home ? h->home->at.address + e->offset : 0;
}

unsigned extent_access(uint32_t gpus, CUmemAccessDesc ret[static GPUS_MAX])
{
        unsigned n = 0;

        for (unsigned i = 0; i < GPUS_MAX; i++)
                if (gpus >> i & 1)
                        ret[n++] = (CUmemAccessDesc){
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)i},
                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        return n;
}

/* Maps the memory of an extent, without access. An earlier attempt may have failed half way, and
 * then failed to unmap: its mapping is taken away, so that the next attempt finds the address free.
 */
static CUresult map_memory(const struct extent *e, CUdeviceptr at)
{
        CUresult r;

        freeze_watch_call("cuMemMap");
        r = real.cuMemMap(at, e->bytes, 0, e->handle, 0);
        if (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY)
                (void)real.cuMemUnmap(at, e->bytes);
        return r;
}

static CUresult extent_unmap_at(const struct extent *e, CUdeviceptr at)
{
        CUresult r;

        freeze_watch_call("cuMemUnmap");
        r = real.cuMemUnmap(at, e->bytes);
        if (r != CUDA_SUCCESS)
                log_debug("cuMemUnmap of %llu bytes: CUDA error %d", (unsigned long long)e->bytes,
                          (int)r);
        return r;
}

/* Undo a mapping: while it is there, nothing else can be mapped at this address. */
static void unmap_surely(const struct extent *e, CUdeviceptr at)
{
        for (unsigned n = 1; is_tried_again(extent_unmap_at(e, at), n); n++)
                continue;
}

static CUresult extent_map_at(const struct gpu *g, const struct extent *e, CUdeviceptr at)
{
        CUmemAccessDesc access[GPUS_MAX];
        CUresult r = map_memory(e, at);

        if (r != CUDA_SUCCESS)
                return r;
        freeze_watch_call("cuMemSetAccess");
        r = real.cuMemSetAccess(at, e->bytes, access,
                                extent_access(UINT32_C(1) << g->index | e->peers, access));
        if (r != CUDA_SUCCESS)
                unmap_surely(e, at);
        return r;
}

void extent_allow(struct extent *e, uint32_t peers)
{
        for (unsigned i = 0; i < GPUS_MAX; i++) {
                CUmemAccessDesc access = {
                        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)i},
                        .flags = peers >> i & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                : CU_MEM_ACCESS_FLAGS_PROT_NONE};

                if ((e->peers ^ peers) >> i & 1)
                        (void)real.cuMemSetAccess(e->address, e->bytes, &access, 1);
        }
        e->peers = peers;
}

CUresult extent_open(struct gpu *g, const struct extent *e, unsigned window, CUdeviceptr *ret_at)
{
        CUdeviceptr at = extent_address(e);
        CUresult r = CUDA_SUCCESS;

        if (!at) {
                if (!g->windows)
                        r = real.cuMemAddressReserve(&g->windows,
                                                     EXTENT_WINDOWS * g->heap.extent_bytes,
                                                     HEAP_GRANULARITY, 0, 0);
                at = g->windows + window * g->heap.extent_bytes;
                if (r == CUDA_SUCCESS)
                        r = extent_map_at(g, e, at);
        }
        *ret_at = r == CUDA_SUCCESS ? at : 0;
        return r;
}

void extent_close(const struct extent *e, CUdeviceptr *at)
{
        if (*at && *at != extent_address(e))
                unmap_surely(e, *at); /* the window is needed again */
        *at = 0;
}

/* Returns the mappings of the program's handle. NULL: there are none, or the program has released
 * the handle. */
static const struct mapping *extent_mappings(const struct extent *e)
{
        return e->block->handle ? e->block->handle->mappings : NULL;
}

static CUresult place_mapping(const struct extent *e, const struct mapping *m)
{
        CUdeviceptr at = m->at.address + e->offset;
        CUmemAccessDesc access[GPUS_MAX];
        unsigned n = mapping_access(m, access);
        CUresult r = map_memory(e, at);

        if (r != CUDA_SUCCESS || n == 0)
                return r;
        r = real.cuMemSetAccess(at, e->bytes, access, n);
        if (r != CUDA_SUCCESS)
                unmap_surely(e, at);
        return r;
}

/* The program's memory is no longer mapped at this address: give the GPU up before the program uses
 * it. */
static void give_up(const struct gpu *g, CUdeviceptr at, CUresult why)
{
        log_warning(
                "GPU %u: the driver does not map memory of this program at %llx any more (CUDA "
                "error %d): the memory is lost, and all further work on this GPU gets that error",
                g->index, (unsigned long long)at, (int)why);
        lock_acquire(&core_lock);
        trouble_give_up(&core.gpus[g->index], why);
        lock_release(&core_lock);
}

/* Maps an extent again at an address of the program's where it was just unmapped. */
static void place_back(const struct gpu *g, const struct extent *e, const struct mapping *m)
{
        CUresult r = place_mapping(e, m);

        for (unsigned n = 1; is_tried_again(r, n); n++)
                r = place_mapping(e, m);
        if (r != CUDA_SUCCESS)
                give_up(g, m->at.address + e->offset, r);
}

void extent_place_back(const struct gpu *g, const struct extent *e)
{
        for (const struct mapping *m = extent_mappings(e); m; m = m->next)
                place_back(g, e, m);
}

/* Unmaps an extent at all of its addresses, or at none if that fails. */
static CUresult extent_unplace(const struct gpu *g, const struct extent *e)
{
        CUresult r = CUDA_SUCCESS;

        if (e->block->kind != BLOCK_HANDLE)
                return extent_unmap_at(e, e->address);
        for (const struct mapping *m = extent_mappings(e); m && r == CUDA_SUCCESS; m = m->next) {
                r = extent_unmap_at(e, m->at.address + e->offset);
                if (r == CUDA_SUCCESS)
                        continue;
                for (const struct mapping *back = extent_mappings(e); back != m; back = back->next)
                        place_back(g, e, back);
        }
        return r;
}

/* Maps memory that exists already at all addresses of the extent, or at none if that fails. */
static CUresult extent_place(const struct gpu *g, const struct extent *e)
{
        const struct mapping *m;
        CUresult r = CUDA_SUCCESS;

        if (e->block->kind != BLOCK_HANDLE)
                return extent_map_at(g, e, e->address);
        for (m = extent_mappings(e); m; m = m->next) {
                r = place_mapping(e, m);
                if (r != CUDA_SUCCESS)
                        break;
        }
        for (const struct mapping *done = extent_mappings(e); r != CUDA_SUCCESS && done != m;
             done = done->next)
                unmap_surely(e, done->at.address + e->offset);
        return r;
}

CUresult extent_map_host(const struct gpu *g, struct extent *e)
{
        CUresult r = extent_create_host(g, e);

        if (r != CUDA_SUCCESS)
                return r;
        e->peers = __atomic_load_n(&g->peers, __ATOMIC_RELAXED);
        r = extent_map_at(g, e, e->address);
        if (r != CUDA_SUCCESS)
                release_surely(e);
        return r;
}

/* Maps again memory of the program that was just unmapped. Its contents are nowhere else, so the
 * GPU is given up if all attempts fail. */
static void map_back(const struct gpu *g, const struct extent *e)
{
        CUresult r = extent_map_at(g, e, e->address);

        for (unsigned n = 1; is_tried_again(r, n); n++)
                r = extent_map_at(g, e, e->address);
        if (r != CUDA_SUCCESS)
                give_up(g, e->address, r);
}

CUresult extent_exchange(const struct gpu *g, struct extent *e, struct extent *other)
{
        const struct extent old = *e;
        CUresult r;

        (void)extent_unmap_at(other, other->address);
        r = extent_unmap_at(e, e->address);
        if (r != CUDA_SUCCESS) {
                release_surely(other);
                return r;
        }
        e->handle = other->handle;
        e->peers = other->peers;
        r = extent_map_at(g, e, e->address);
        if (r == CUDA_SUCCESS) {
                e->adopted = false;
                release_surely(&old);
                return r;
        }
        e->handle = old.handle;
        e->peers = old.peers;
        release_surely(other); /* the driver may need its room to map the old memory again */
        map_back(g, e);
        return r;
}

CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd)
{
        CUresult r;

        if (e->managed)
                return CUDA_SUCCESS;
        e->peers =
                e->block->kind == BLOCK_HANDLE ? 0 : __atomic_load_n(&g->peers, __ATOMIC_RELAXED);
        e->adopted = passed_fd >= 0 && extent_import(e, passed_fd) == CUDA_SUCCESS;
        if (!e->adopted) {
                r = extent_create(g, e);
                if (r != CUDA_SUCCESS)
                        return r;
        }
        r = extent_place(g, e);
        if (r != CUDA_SUCCESS)
                release_surely(e);
        return r;
}

CUresult extent_unmap(const struct gpu *g, const struct extent *e)
{
        CUresult r;

        if (e->managed)
                return CUDA_SUCCESS;
        r = extent_unplace(g, e);
        if (r != CUDA_SUCCESS)
                return r;
        r = extent_release(e);
        if (r == CUDA_SUCCESS || extent_place(g, e) == CUDA_SUCCESS)
                return r;
        release_surely(e); /* what cannot be mapped again is gone, whatever the driver says */
        return CUDA_SUCCESS;
}

/* ---- a test of all that moving memory needs ---- */

static CUresult use_probe(const struct gpu *g, const struct extent *e, CUstream stream)
{
        uint64_t word = 1;
        CUresult r = extent_map_at(g, e, e->address), awaited;

        if (r != CUDA_SUCCESS)
                return r;
        r = real.cuMemsetD32Async(e->address, 0, 2, stream);
        if (r == CUDA_SUCCESS)
                r = real.cuMemcpyDtoHAsync_v2(&word, e->address, sizeof(word), stream);
        awaited = trouble_await(stream); /* even after a failure: the copy writes to `word` */
        r = r != CUDA_SUCCESS ? r : awaited;
        if (r == CUDA_SUCCESS && word != 0)
                r = CUDA_ERROR_UNKNOWN;
        if (extent_unmap_at(e, e->address) != CUDA_SUCCESS && r == CUDA_SUCCESS)
                r = CUDA_ERROR_UNMAP_FAILED;
        return r;
}

CUresult extent_probe(const struct gpu *g, CUstream stream)
{
        struct block b = {.kind = BLOCK_LARGE};
        struct extent e = {.bytes = HEAP_GRANULARITY, .block = &b};
        CUresult r = extent_create(g, &e), released;

        if (r != CUDA_SUCCESS)
                return r == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : r;
        r = real.cuMemAddressReserve(&e.address, e.bytes, HEAP_GRANULARITY, 0, 0);
        if (r == CUDA_SUCCESS) {
                r = use_probe(g, &e, stream);
                (void)real.cuMemAddressFree(e.address, e.bytes);
        }
        released = extent_release(&e);
        return r != CUDA_SUCCESS ? r : released;
}

/* ---- replacing the memory of an extent ---- */

static CUresult extent_copy(const struct gpu *g, CUdeviceptr to, const struct extent *e)
{
        CUcontext context = mover_context_of(g);
        CUcontext popped;
        CUstream stream;
        CUresult r;

        if (!context || real.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
                return CUDA_ERROR_INVALID_CONTEXT;
        r = real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        if (r == CUDA_SUCCESS) {
                r = real.cuMemcpyDtoDAsync_v2(to, e->address, e->bytes, stream);
                if (r == CUDA_SUCCESS)
                        r = trouble_await(stream);
                (void)real.cuStreamDestroy_v2(stream);
        }
        (void)real.cuCtxPopCurrent_v2(&popped);
        return r;
}

/* Moves the fresh memory from its temporary address to that of the extent; releases the old
 * memory. */
static CUresult extent_swap(const struct gpu *g, struct extent *e, const struct extent *fresh)
{
        struct extent old = *e;
        CUresult r;

        r = extent_unmap_at(e, e->address);
        if (r != CUDA_SUCCESS)
                return r;
        r = extent_map_at(g, fresh, e->address);
        if (r == CUDA_SUCCESS) {
                release_surely(&old);
                e->handle = fresh->handle;
                e->adopted = false;
        } else {
                map_back(g, &old);
        }
        return r;
}

int extent_replace(const struct gpu *g, struct extent *e)
{
        CUstreamCaptureMode mode = core_relax();
        struct extent fresh = *e;
        CUdeviceptr aside = 0;
        CUresult r = extent_create(g, &fresh);

        if (r != CUDA_SUCCESS)
                goto relaxed;
        r = real.cuMemAddressReserve(&aside, e->bytes, HEAP_GRANULARITY, 0, 0);
        if (r != CUDA_SUCCESS)
                goto release;
        r = extent_map_at(g, &fresh, aside);
        if (r == CUDA_SUCCESS) {
                r = extent_copy(g, aside, e);
                (void)extent_unmap_at(e, aside);
        }
        if (r == CUDA_SUCCESS)
                r = extent_swap(g, e, &fresh);
        (void)real.cuMemAddressFree(aside, e->bytes);
release:
        if (r != CUDA_SUCCESS)
                release_surely(&fresh);
relaxed:
        core_unrelax(mode);
        return r == CUDA_SUCCESS ? 0 : -ENOMEM;
}
