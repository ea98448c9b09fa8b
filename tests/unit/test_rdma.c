/* test_rdma.c: memory that another device may access stays on the card until it is freed; a refusal
 * changes nothing. */
#include "unit.h"

#include "base/macros.h"
#include "preload/state/core.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/hooks_virtual.h"
#include "preload/move/export.h"
#include "fakes/preload.h"
#include "preload/hooks/rdma.h"
#include "preload/state/virtual.h"
#include "preload/state/request.h"

static struct gpu *const gpu = &core.gpus[0];
static CUdeviceptr at;
static struct block *block;
static size_t bound_bytes;
static uint64_t allocation; /* bytes of each allocation in the block; 0: the whole block */
static struct mapping mapped[2];
static unsigned mapping_count, fixes;
static CUresult fix_answer;

struct gpu *core_find(CUdeviceptr address, struct heap_place *ret)
{
        const uint64_t bytes = allocation ? allocation : block->bytes;

        *ret = (struct heap_place){.start = at, .bytes = bytes, .block = block};
        return address - at < bytes ? gpu : NULL;
}

/* The daemon refuses each request that a thread waits for. */
static void refuse(const struct core_wait *w)
{
        lock_acquire(&core_lock);
        export_refused(gpu);
        lock_release(&core_lock);
}

struct mapping *virtual_at(CUdeviceptr address)
{
        for (unsigned i = 0; i < mapping_count; i++)
                if (address - mapped[i].at.address < mapped[i].at.bytes)
                        return &mapped[i];
        return NULL;
}

static bool unmapped_meanwhile;

CUresult handle_make_unevictable(struct handle *h)
{
        want_lock();
        fixes++;
        if (unmapped_meanwhile)
                mapping_count = 0;
        return fix_answer;
}

static CUresult fake_bind(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr memory,
                          size_t size, unsigned long long flags)
{
        bound_bytes = size;
        assert_true(block->extents[0].exported && block->extents[1].exported);
        return CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        *ret = UINT64_C(0x700000000000);
        return CUDA_SUCCESS;
}

static int two_extents(void **state)
{
        struct heap_place p;
        uint64_t cost;

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 1};
        allocation = 0;
        meanwhile = refuse;
        mapping_count = fixes = 0;
        unmapped_meanwhile = false;
        fix_answer = CUDA_SUCCESS;
        real.cuMemAddressReserve = fake_reserve;
        heap_init(&gpu->heap, GIB);
        gpu->limit = GIB;
        assert_int_equal(
                heap_allocate(&gpu->heap, 2 * gpu->heap.extent_bytes, NULL, UINT64_MAX, &at, &cost),
                0);
        assert_true(heap_find(&gpu->heap, at, &p));
        block = p.block;
        block->extents[0].state = block->extents[1].state = EXTENT_RESIDENT;
        return 0;
}

static int no_extents(void **state)
{
        for (unsigned i = 0; i < 2; i++)
                export_extent_dies(gpu, &block->extents[i]);
        assert_int_equal(gpu->export_requested, 0);
        assert_int_equal(gpu->export_granted, 0);
        for (size_t i = 0; i < gpu->heap.count; i++) {
                free(gpu->heap.blocks[i]->extents);
                free(gpu->heap.blocks[i]);
        }
        free(gpu->heap.blocks);
        return 0;
}

static void memory_given_to_a_device_stays_on_the_card(void **state)
{
        gpu->export_allowed = GIB;
        assert_int_equal(rdma_keep(at, block->bytes), CUDA_SUCCESS);
        assert_true(block->extents[0].exported && block->extents[1].exported);
        assert_int_equal(gpu->export_granted, block->bytes);
}

static void pool_memory_given_to_a_device_stays_on_the_card(void **state)
{
        block->kind = BLOCK_POOL;
        gpu->export_allowed = GIB;
        assert_int_equal(rdma_keep(at, block->bytes), CUDA_SUCCESS);
        assert_int_equal(gpu->export_granted, block->bytes);
}

static void memory_bound_to_a_multicast_object_stays_on_the_card(void **state)
{
        real.cuMulticastBindAddr = fake_bind;
        gpu->export_allowed = GIB;
        bound_bytes = 0;
        assert_int_equal(hook_cuMulticastBindAddr(7, 0, at, block->bytes, 0), CUDA_SUCCESS);
        assert_int_equal(bound_bytes, block->bytes);
        assert_int_equal(gpu->export_granted, block->bytes);
}

static CUresult fake_bind_v2(CUmemGenericAllocationHandle mc, CUdevice device, size_t offset,
                             CUdeviceptr memory, size_t size, unsigned long long flags)
{
        bound_bytes = size;
        return CUDA_SUCCESS;
}

static CUresult fake_bind_endpoint(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t offset,
                                   void *memory, cuuint64_t size, unsigned long long flags)
{
        bound_bytes = size;
        return CUDA_SUCCESS;
}

static void memory_bound_by_the_newer_calls_stays_on_the_card(void **state)
{
        real.cuMulticastBindAddr_v2 = fake_bind_v2;
        real.cuLogicalEndpointBindAddr = fake_bind_endpoint;
        gpu->export_allowed = GIB;
        bound_bytes = 0;
        assert_int_equal(hook_cuMulticastBindAddr_v2(7, 0, 0, at, block->bytes / 2, 0),
                         CUDA_SUCCESS);
        assert_int_equal(bound_bytes, block->bytes / 2);
        assert_int_equal(gpu->export_granted, block->bytes / 2);
        assert_int_equal(hook_cuLogicalEndpointBindAddr(7, 0, 0, (void *)at, block->bytes, 0),
                         CUDA_SUCCESS);
        assert_int_equal(bound_bytes, block->bytes);
        assert_int_equal(gpu->export_granted, block->bytes);
}

static void memory_that_cannot_stay_on_the_card_is_not_bound_to_multicast(void **state)
{
        real.cuMulticastBindAddr = fake_bind;
        bound_bytes = 0;
        assert_int_equal(hook_cuMulticastBindAddr(7, 0, at, block->bytes, 0),
                         CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(hook_cuMulticastBindAddr_v2(7, 0, 0, at, block->bytes, 0),
                         CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(hook_cuLogicalEndpointBindAddr(7, 0, 0, (void *)at, block->bytes, 0),
                         CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bound_bytes, 0);
}

static void a_refused_request_no_longer_counts(void **state)
{
        lock_acquire(&core_lock);
        assert_int_equal(rdma_keep(at, block->bytes), CUDA_ERROR_OUT_OF_MEMORY);
        lock_release(&core_lock);
        assert_int_equal(gpu->export_requested, 0);
}

static void a_request_for_memory_on_the_host_fails_as_a_whole(void **state)
{
        gpu->export_allowed = GIB;
        block->extents[1].state = EXTENT_MAPPED;
        assert_int_equal(rdma_keep(at, block->bytes), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(gpu->export_requested, 0);
        assert_int_equal(gpu->export_granted, 0);
        assert_false(block->extents[0].exported || block->extents[1].exported);
}

/* A new daemon counts only backed bytes as unevictable. */
static void evicted_extents_are_requested_again_from_a_new_daemon(void **state)
{
        struct extent *there = &block->extents[0], *away = &block->extents[1];
        struct export *p;

        gpu->export_allowed = GIB;
        away->state = EXTENT_EVICTED;
        p = export_take(gpu, block, at, block->bytes);
        assert_int_equal(export_state(p), EXPORT_WAITING);
        assert_true(there->exported && away->exported);
        export_back(gpu);
        assert_true(there->exported && !away->exported);
        assert_int_equal(gpu->export_granted, there->bytes);
        assert_int_equal(gpu->export_requested, block->bytes);
        export_allowed(gpu, block->bytes);
        assert_true(away->exported);
        away->state = EXTENT_RESIDENT;
        assert_int_equal(export_state(p), EXPORT_READY);
        export_release(p);
}

static void only_the_allocation_of_a_pool_stays_on_the_card(void **state)
{
        const uint64_t extent = gpu->heap.extent_bytes;

        block->kind = BLOCK_POOL;
        allocation = extent;
        gpu->export_allowed = GIB;
        assert_int_equal(rdma_keep(at, 2 * extent), CUDA_SUCCESS);
        assert_int_equal(gpu->export_granted, extent);
        assert_true(block->extents[0].exported && !block->extents[1].exported);
}

static void only_requested_extents_stay_on_the_card(void **state)
{
        const uint64_t extent = gpu->heap.extent_bytes;

        gpu->export_allowed = GIB;
        assert_int_equal(rdma_keep(at + extent, 1), CUDA_SUCCESS);
        assert_true(!block->extents[0].exported && block->extents[1].exported);
        /* Memory past the end is not ours. */
        assert_int_equal(rdma_keep(at + extent - 1, GIB), CUDA_SUCCESS);
        assert_true(block->extents[0].exported && block->extents[1].exported);
}

static void foreign_and_managed_memory_is_left_to_the_driver(void **state)
{
        assert_int_equal(rdma_keep(at + block->bytes, 1), CUDA_SUCCESS);
        assert_int_equal(rdma_keep(at, 0), CUDA_SUCCESS);
        block->managed = true;
        assert_int_equal(rdma_keep(at, 1), CUDA_SUCCESS);
        block->managed = false;
        assert_int_equal(gpu->export_requested, 0);
}

static CUresult keep(CUdeviceptr from, uint64_t bytes)
{
        CUresult r;

        lock_acquire(&core_lock);
        r = rdma_keep(from, bytes);
        lock_release(&core_lock);
        return r;
}

static void mapped_handles_become_unevictable(void **state)
{
        const CUdeviceptr there = UINT64_C(0x10000000);
        struct handle *h = (struct handle *)&mapped; /* never dereferenced */

        for (unsigned i = 0; i < 2; i++)
                mapped[i] = (struct mapping){.at = {there + i * MIB, MIB}, .handle = h};
        mapping_count = 2;
        assert_int_equal(keep(there + MIB - 1, 1), CUDA_SUCCESS);
        assert_int_equal(fixes, 1);
        assert_int_equal(keep(there + MIB - 1, 2), CUDA_SUCCESS);
        assert_int_equal(fixes, 3);
        fix_answer = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(keep(there, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(fixes, 4);
        fix_answer = CUDA_SUCCESS;
        mapped[0].handle = NULL; /* a handle that the driver made */
        assert_int_equal(keep(there, 2 * MIB), CUDA_SUCCESS);
        assert_int_equal(fixes, 4);
        mapped[0].handle = h;
        unmapped_meanwhile = true;
        assert_int_equal(keep(there, 2 * MIB), CUDA_SUCCESS);
        assert_int_equal(fixes, 5);
}

static unsigned ranges;

static CUresult fake_range(void *handle, CUdeviceptr memory, size_t size, CUmemRangeHandleType type,
                           unsigned long long flags)
{
        ranges++;
        return CUDA_ERROR_INVALID_VALUE;
}

static CUresult range_of(void *handle, CUdeviceptr from, size_t bytes)
{
        return hook_cuMemGetHandleForAddressRange(handle, from, bytes, 0, 0);
}

static void memory_that_the_driver_refuses_to_bind_is_not_kept(void **state)
{
        int handle;

        real.cuMemGetHandleForAddressRange = fake_range;
        real.cuMulticastBindAddr = fake_bind;
        ranges = 0;
        gpu->export_allowed = GIB;
        assert_int_equal(range_of(NULL, at, 1), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(range_of(&handle, at, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(range_of(&handle, at, UINT64_MAX - at + 1), CUDA_ERROR_INVALID_VALUE);
        atomic_store(&core.bystander, true);
        assert_int_equal(range_of(&handle, at, 1), CUDA_ERROR_INVALID_VALUE);
        atomic_store(&core.bystander, false);
        assert_int_equal(gpu->export_requested, 0);
        assert_int_equal(ranges, 4);
        core_setups = 0;
        assert_int_equal(range_of(&handle, at, 1), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(core_setups, 1);
        assert_true(block->extents[0].exported);
        gpu->export_allowed = 0;
        assert_int_equal(range_of(&handle, at, block->bytes), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(ranges, 5);
}

#define RDMA_TEST(name) cmocka_unit_test_setup_teardown(name, two_extents, no_extents)

int main(void)
{
        const struct CMUnitTest tests[] = {
                RDMA_TEST(memory_given_to_a_device_stays_on_the_card),
                RDMA_TEST(pool_memory_given_to_a_device_stays_on_the_card),
                RDMA_TEST(memory_bound_to_a_multicast_object_stays_on_the_card),
                RDMA_TEST(memory_bound_by_the_newer_calls_stays_on_the_card),
                RDMA_TEST(memory_that_cannot_stay_on_the_card_is_not_bound_to_multicast),
                RDMA_TEST(a_refused_request_no_longer_counts),
                RDMA_TEST(a_request_for_memory_on_the_host_fails_as_a_whole),
                RDMA_TEST(evicted_extents_are_requested_again_from_a_new_daemon),
                RDMA_TEST(only_the_allocation_of_a_pool_stays_on_the_card),
                RDMA_TEST(only_requested_extents_stay_on_the_card),
                RDMA_TEST(foreign_and_managed_memory_is_left_to_the_driver),
                RDMA_TEST(mapped_handles_become_unevictable),
                RDMA_TEST(memory_that_the_driver_refuses_to_bind_is_not_kept),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
