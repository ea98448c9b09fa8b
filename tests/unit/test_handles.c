/* test_handles.c: handles of the program, used by several threads at once: a refused call keeps a
 * block that another thread holds, the last use gives the memory back, and no thread waits for
 * memory that cannot come back. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/move/extent.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/hooks_virtual.h"
#include "preload/stream/quiesce.h"
#include "preload/state/virtual.h"

static struct gpu *const gpu = &core.gpus[0];
static unsigned waits;
static uint64_t now_ns;

/* ---- fakes of other modules ---- */

static void a_second_passes(const struct core_wait *w)
{
        assert_true(++waits < 100);
        now_ns += NSEC_PER_SEC;
}

/* In place of the C library's clock. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(now_ns % NSEC_PER_SEC)};
        return 0;
}

void extent_place_back(const struct gpu *g, const struct extent *e)
{
}

CUresult extent_release(const struct extent *e)
{
        return CUDA_SUCCESS;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
        return CUDA_SUCCESS;
}

static CUresult fake_export(void *ret, CUmemGenericAllocationHandle handle,
                            CUmemAllocationHandleType type, unsigned long long flags)
{
        return CUDA_SUCCESS;
}

/* The handle that the driver was last given to bind. */
static CUmemGenericAllocationHandle bound;

static CUresult fake_bind(CUmemGenericAllocationHandle mc, size_t mc_offset,
                          CUmemGenericAllocationHandle memory, size_t offset, size_t size,
                          unsigned long long flags)
{
        bound = memory;
        return CUDA_SUCCESS;
}

static CUresult fake_bind_v2(CUmemGenericAllocationHandle mc, CUdevice device, size_t mc_offset,
                             CUmemGenericAllocationHandle memory, size_t offset, size_t size,
                             unsigned long long flags)
{
        bound = memory;
        return CUDA_SUCCESS;
}

static CUresult fake_bind_endpoint(CUlogicalEndpointId endpoint, CUdevice device, cuuint64_t at,
                                   CUmemGenericAllocationHandle memory, cuuint64_t offset,
                                   cuuint64_t size, unsigned long long flags)
{
        bound = memory;
        return CUDA_SUCCESS;
}

/* ---- the tests ---- */

static CUmemGenericAllocationHandle name;
static struct handle *handle;

static int one_handle(void **state)
{
        const CUmemAllocationProp prop = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        };

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 1};
        real.cuThreadExchangeStreamCaptureMode = fake_relax;
        real.cuMemRelease = fake_release;
        real.cuMemExportToShareableHandle = fake_export;
        heap_init(&gpu->heap, UINT64_C(1) << 30);
        gpu->passes = true;
        gpu->limit = 0;
        unevictable_room = 0;
        while_it_asks = NULL;
        meanwhile = a_second_passes;
        waits = gates = 0;
        quiesce_now = QUIESCE_DONE;
        assert_int_equal(hook_cuMemCreate(&name, HEAP_GRANULARITY, &prop, 0), CUDA_SUCCESS);
        handle = virtual_find(name);
        assert_non_null(handle);
        handle->block->extents[0].state = EXTENT_RESIDENT;
        handle->block->extents[0].handle = 1;
        return 0;
}

static int no_handle(void **state)
{
        assert_int_equal(gpu->unevictable, 0);
        assert_int_equal(core.unbooked, 0);
        assert_int_equal(gpu->heap.allocated, 0);
        free(gpu->heap.handles);
        return 0;
}

static CUresult export_it(void)
{
        int fd;

        return hook_cuMemExportToShareableHandle(&fd, name,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static void a_refused_export_keeps_a_block_that_another_thread_holds(void **state)
{
        handle_take(handle);
        assert_int_equal(export_it(), CUDA_ERROR_OUT_OF_MEMORY);
        assert_true(handle->block->held);
        handle_put(handle);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
}

static void release_it(void)
{
        lock_release(&core_lock);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
        lock_acquire(&core_lock);
}

static void a_handle_released_during_a_refused_export_is_freed(void **state)
{
        while_it_asks = release_it;
        assert_int_equal(export_it(), CUDA_ERROR_OUT_OF_MEMORY);
        assert_null(virtual_find(name));
}

static void a_handle_released_while_it_becomes_unevictable_is_freed(void **state)
{
        while_it_asks = release_it;
        lock_acquire(&core_lock);
        assert_int_equal(handle_make_unevictable(handle), CUDA_ERROR_OUT_OF_MEMORY);
        lock_release(&core_lock);
        assert_null(virtual_find(name));
}

static void no_thread_waits_for_memory_of_a_failed_gpu(void **state)
{
        unevictable_room = UINT64_MAX;
        handle->block->extents[0].state = EXTENT_EVICTED;
        lock_acquire(&core_lock);
        handle_use(handle);
        lock_release(&core_lock);
        core.bystander = true; /* the GPU fails before the wait */
        lock_acquire(&core_lock);
        assert_int_not_equal(handle_make_unevictable(handle), CUDA_SUCCESS);
        core.bystander = false;
        handle_unuse(handle);
        lock_release(&core_lock);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
}

static void lose_it(void)
{
        struct block *b = heap_orphan(&gpu->heap, NULL);

        b->next_late = gpu->lost;
        gpu->lost = b;
}

static void an_export_takes_its_lost_block_off_the_list_of_losses(void **state)
{
        unevictable_room = UINT64_MAX;
        while_it_asks = lose_it;
        assert_int_equal(export_it(), CUDA_SUCCESS);
        assert_null(handle->block);
        assert_null(gpu->lost);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
}

/* The work in flight may wait for the next call of the thread that exports. */
static void an_export_does_not_wait_for_ever_for_work_that_does_not_end(void **state)
{
        unevictable_room = UINT64_MAX;
        handle->block->extents[0].adopted = true; /* such memory has to be replaced for an export */
        gpu->heap.resident = handle->bytes;
        quiesce_now = QUIESCE_BUSY; /* and stays so */
        assert_int_equal(export_it(), CUDA_ERROR_NOT_READY);
        assert_int_equal(gpu->heap.resident, handle->bytes);
        assert_non_null(handle->block);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
}

/* The driver takes a handle for a pointer, so it must not get one of ours. */
static void the_driver_is_given_its_own_handle_to_bind(void **state)
{
        const CUmemGenericAllocationHandle theirs = 0x1000;

        unevictable_room = UINT64_MAX;
        handle->block->extents[0].handle = theirs;
        real.cuMulticastBindMem = fake_bind;
        real.cuMulticastBindMem_v2 = fake_bind_v2;
        real.cuLogicalEndpointBindMem = fake_bind_endpoint;
        assert_int_equal(hook_cuMulticastBindMem(7, 0, name, 0, 1, 0), CUDA_SUCCESS);
        assert_int_equal(bound, theirs);
        bound = 0;
        assert_int_equal(hook_cuMulticastBindMem_v2(7, 0, 0, name, 0, 1, 0), CUDA_SUCCESS);
        assert_int_equal(bound, theirs);
        bound = 0;
        assert_int_equal(hook_cuLogicalEndpointBindMem(7, 0, 0, name, 0, 1, 0), CUDA_SUCCESS);
        assert_int_equal(bound, theirs);
        assert_int_equal(handle->users, 0);
        /* A handle of the driver is passed on unchanged. */
        assert_int_equal(hook_cuMulticastBindMem_v2(7, 0, 0, 0x2000, 0, 1, 0), CUDA_SUCCESS);
        assert_int_equal(bound, 0x2000);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
}

static void memory_that_cannot_stay_on_the_card_is_not_bound(void **state)
{
        bound = 0;
        real.cuMulticastBindMem_v2 = fake_bind_v2;
        assert_int_equal(hook_cuMulticastBindMem_v2(7, 0, 0, name, 0, 1, 0),
                         CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bound, 0);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
}

#define HANDLE_TEST(name) cmocka_unit_test_setup_teardown(name, one_handle, no_handle)

static void a_program_that_must_be_shared_gets_no_memory_of_another_gpu(void **state)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUmemGenericAllocationHandle another;

        unshared = must_share = true;
        real.cuMemCreate = NULL; /* the driver must not be called */
        assert_int_equal(hook_cuMemCreate(&another, HEAP_GRANULARITY, &prop, 0),
                         CUDA_ERROR_OPERATING_SYSTEM);
        unshared = must_share = false;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_program_that_must_be_shared_gets_no_memory_of_another_gpu),
                HANDLE_TEST(a_refused_export_keeps_a_block_that_another_thread_holds),
                HANDLE_TEST(a_handle_released_during_a_refused_export_is_freed),
                HANDLE_TEST(a_handle_released_while_it_becomes_unevictable_is_freed),
                HANDLE_TEST(no_thread_waits_for_memory_of_a_failed_gpu),
                HANDLE_TEST(an_export_does_not_wait_for_ever_for_work_that_does_not_end),
                HANDLE_TEST(an_export_takes_its_lost_block_off_the_list_of_losses),
                HANDLE_TEST(the_driver_is_given_its_own_handle_to_bind),
                HANDLE_TEST(memory_that_cannot_stay_on_the_card_is_not_bound),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
