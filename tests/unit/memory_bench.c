/* memory_bench.c: fakes of the modules and of the driver that the memory hooks call. */
#include "unit.h"

#include "memory_bench.h"

#include <errno.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/move/unevictable.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks_virtual.h"
#include "preload/share/ipc.h"
#include "preload/hooks/managed.h"
#include "preload/overflow/overflow.h"
#include "preload/heap/suballocator.h"
#include "preload/pool/pool.h"
#include "preload/hooks/rdma.h"
#include "preload/move/swap.h"
#include "preload/state/request.h"
#include "preload/pool/late_frees.h"

struct bench bench;

static struct suballocator suballocator;
static struct block *pool_block;

/* ---- fakes of other modules; the library calls all but a few with the lock held ---- */

int request_commit(struct gpu *g, uint64_t bytes)
{
        give_up_lock();
        assert_true(bench.asks < ARRAY_SIZE(bench.asked));
        bench.asked[bench.asks++] = bytes;
        if (bytes > bench.daemon_has)
                return -ENOMEM;
        g->commit = MAX(g->commit, bytes);
        return 0;
}

CUcontext quiesce_owner(CUcontext current)
{
        want_lock();
        return current == CURRENT ? OWNER : current;
}

bool quiesce_capture_forbids(void)
{
        want_lock();
        return bench.forbids;
}

void swap_disown(struct gpu *g, struct block *b)
{
        give_up_lock();
        bench.disowned++;
        g->heap.allocated -= b->bytes;
        g->heap.managed_bytes -= b->bytes;
        heap_withdraw(&g->heap, b);
}

void home_find_out(struct gpu *g)
{
        want_no_lock();
        if (bench.home)
                bench.home();
}

void managed_freed(CUdeviceptr address)
{
}

int managed_provide(struct gpu *g, uint64_t bytes)
{
        give_up_lock();
        return bench.provides ? heap_provide(&g->heap, driver_managed(bytes), bytes) : -ENOMEM;
}

uint64_t overflow_card_most(const struct gpu *g, uint64_t bytes)
{
        return bench.card_room;
}

uint64_t overflow_free(const struct gpu *g, uint64_t promised)
{
        want_lock();
        return promised - g->heap.allocated + core.host.most - g->heap.mapped;
}

int overflow_allocate(struct gpu *g, uint64_t bytes, CUcontext owner, CUdeviceptr *ret_address)
{
        struct block *b;

        give_up_lock();
        if (bytes > bench.host_room)
                return -ENOMEM;
        b = heap_allocate_aside(&g->heap, bytes, owner, 0);
        for (unsigned i = 0; i < b->extent_count; i++) {
                b->extents[i].busy = false;
                b->extents[i].state = EXTENT_MAPPED;
                g->heap.mapped += b->extents[i].bytes;
        }
        *ret_address = b->address;
        return 0;
}

void overflow_allocated(struct gpu *g, CUdeviceptr address, uint64_t bytes)
{
        want_lock();
        bench.told = address;
}

bool pool_reclaim(struct gpu *g, uint64_t bytes)
{
        give_up_lock();
        return bench.reclaim && bench.reclaim(bytes);
}

uint64_t pool_settle(const struct gpu *g)
{
        give_up_lock();
        return bench.pools;
}

/* The work that a stream has had by now. */
CUresult quiesce_ask_stream(CUstream stream, CUcontext context)
{
        want_lock();
        return stream == bench.busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult pool_free(const struct block *b, CUdeviceptr address, const struct pool_stream *s)
{
        struct suballocation *n = suballocator_at(&suballocator, address);

        want_lock();
        assert_null(s);
        assert_non_null(n);
        heap_unuse(pool_block, address, n->requested);
        suballocator_give(&suballocator, n, &suballocator.common, 0);
        bench.pool_freed = address;
        return THE_DRIVER; /* the hook must return the result of the pool unchanged */
}

CUmemoryPool pool_handle(const struct block *b)
{
        return b->kind == BLOCK_POOL ? bench.pool : NULL;
}

bool ipc_find(CUdeviceptr address, struct heap_place *ret, struct gpu **ret_gpu)
{
        want_lock();
        if (address - bench.opened.start >= bench.opened.bytes)
                return false;
        *ret = bench.opened;
        *ret_gpu = gpu;
        return true;
}

void ipc_export_freed(CUdeviceptr start)
{
        want_lock();
        bench.export_freed = start;
}

CUresult virtual_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
        want_lock();
        if (ptr - bench.mapped >= EXTENT || attribute != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
                return CUDA_ERROR_NOT_SUPPORTED;
        *(CUdeviceptr *)data = bench.mapped;
        return CUDA_SUCCESS;
}

bool virtual_range(CUdeviceptr ptr, CUdeviceptr *ret_base, size_t *ret_bytes)
{
        want_lock();
        if (ptr - bench.mapped >= EXTENT)
                return false;
        if (ret_base)
                *ret_base = bench.mapped;
        if (ret_bytes)
                *ret_bytes = EXTENT;
        return true;
}

CUresult rdma_keep(CUdeviceptr from, uint64_t bytes)
{
        give_up_lock();
        bench.kept = from;
        bench.kept_bytes = bytes;
        return bench.keeps;
}

/* Hands out all bytes that the daemon has; the next call fails. */
int unevictable_ask_room(struct gpu *g, uint64_t *room)
{
        want_lock();
        if (bench.daemon_has == 0)
                return -ENOMEM;
        *room = bench.daemon_has;
        g->unevictable += *room;
        bench.daemon_has = 0;
        return 0;
}

void unevictable_return_room(struct gpu *g, uint64_t *room)
{
        want_lock();
        g->unevictable -= *room;
        *room = 0;
}

/* ---- the driver's own answers ---- */

static CUresult driver_says(void)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        bench.passed++;
        return bench.driver;
}

static CUresult fake_current(CUcontext *ret)
{
        *ret = CURRENT;
        return bench.contextless ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult fake_allocate(CUdeviceptr *ret, size_t bytes)
{
        return driver_says();
}

static CUresult fake_pitch(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height,
                           unsigned element)
{
        return driver_says();
}

static CUresult fake_free(CUdeviceptr at)
{
        return driver_says();
}

static CUresult fake_info(size_t *ret_free, size_t *ret_total)
{
        if (ret_free)
                *ret_free = 3;
        if (ret_total)
                *ret_total = 4;
        return driver_says();
}

static CUresult fake_graph_memory(CUdevice device, CUgraphMem_attribute which, void *ret)
{
        assert_int_equal(device, 0);
        assert_int_equal(which, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
        *(cuuint64_t *)ret = bench.graphs;
        return CUDA_SUCCESS;
}

static CUresult fake_total(size_t *ret, CUdevice device)
{
        *ret = 4;
        return driver_says();
}

static CUresult fake_range(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr at)
{
        return driver_says();
}

static CUresult fake_ask(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
        return driver_says();
}

/* The library may hold the lock here: it asks for one attribute of an address that it knows. */
static CUresult fake_ask_several(unsigned count, CUpointer_attribute *attributes, void **data,
                                 CUdeviceptr at)
{
        bench.passed++;
        return bench.driver;
}

static CUresult fake_tell(const void *value, CUpointer_attribute attribute, CUdeviceptr at)
{
        return driver_says();
}

/* ---- the program ---- */

CUdeviceptr allocate(uint64_t bytes)
{
        CUdeviceptr at = 0;

        assert_int_equal(hook_cuMemAlloc_v2(&at, bytes), CUDA_SUCCESS);
        return at;
}

void release(CUdeviceptr at)
{
        assert_int_equal(hook_cuMemFree_v2(at), CUDA_SUCCESS);
}

struct block *block_at(CUdeviceptr at)
{
        struct heap_place p;

        assert_true(heap_find(&gpu->heap, at, &p));
        return p.block;
}

CUdeviceptr allocate_from_pool(uint64_t bytes)
{
        struct suballocation *n;

        if (!pool_block) {
                pool_block = heap_take_pool(&gpu->heap, 2 * POOL_STEP, EXTENT);
                assert_non_null(pool_block);
                assert_int_equal(suballocator_add(&suballocator, pool_block), 0);
        }
        n = suballocator_take(&suballocator, suballocator_fit(&suballocator.common, bytes, false),
                              bytes);
        assert_non_null(n);
        n->requested = bytes;
        heap_use(&gpu->heap, pool_block, n->address, bytes);
        return n->address;
}

bool reap(void)
{
        bool more;

        lock_acquire(&core_lock);
        more = late_tend(0) != UINT64_MAX;
        lock_release(&core_lock);
        return more;
}

int begin_memory(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        driver_reset(CARD);
        real.cuCtxGetCurrent = fake_current;
        real.cuMemAlloc_v2 = fake_allocate;
        real.cuMemAllocPitch_v2 = fake_pitch;
        real.cuMemFree_v2 = fake_free;
        real.cuMemGetInfo_v2 = fake_info;
        real.cuDeviceTotalMem_v2 = fake_total;
        real.cuDeviceGetGraphMemAttribute = fake_graph_memory;
        real.cuMemGetAddressRange_v2 = fake_range;
        real.cuPointerGetAttribute = fake_ask;
        real.cuPointerGetAttributes = fake_ask_several;
        real.cuPointerSetAttribute = fake_tell;
        gpu->known = gpu->managed = gpu->attached = true;
        gpu->total = gpu->visible = CARD;
        gpu->commit = gpu->limit = CARD;
        heap_init(&gpu->heap, CARD);
        assert_int_equal(gpu->heap.extent_bytes, EXTENT);
        current_gpu = gpu;
        quiesce_now = QUIESCE_DONE;
        discarded = quiesce_begins = room_changes = 0;
        back_answer = 0;
        no_ipc = true;
        while_it_drains = NULL;
        bench = (struct bench){
                .card_room = UINT64_MAX,
                .mapped = UINT64_C(0x123000000),
                .pool = (CUmemoryPool)(uintptr_t)0x99,
                .driver = THE_DRIVER,
        };
        fake_capturing = false;
        daemon_room = UINT64_MAX;
        atomic_store(&gate_bits, 0);
        request_kicks = 0;
        return 0;
}

int end_memory(void **state)
{
        if (pool_block) {
                suballocator_remove(&suballocator, pool_block->chunk);
                suballocator_clear(&suballocator);
                heap_bury(&gpu->heap, pool_block);
                pool_block = NULL;
        }
        assert_int_equal(gpu->heap.allocated, 0);
        assert_int_equal(gpu->heap.resident, 0);
        assert_int_equal(gpu->heap.mapped, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        assert_false(reap());
        while (gpu->heap.count)
                free(gpu->heap.blocks[--gpu->heap.count]);
        free(gpu->heap.blocks);
        free(gpu->heap.holes);
        return 0;
}
