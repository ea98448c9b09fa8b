/* test_pointers.c: queries about the card and about addresses. The library answers them for its own
 * memory, as the driver would; the driver answers all others. */
#include "unit.h"

#include "memory_bench.h"

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/pool/pool.h"

#define NOBODYS ((CUdeviceptr)UINT64_C(0x7000))

static CUresult ask(CUpointer_attribute which, CUdeviceptr at, uint64_t *ret)
{
        *ret = 0;
        return hook_cuPointerGetAttribute(ret, which, at);
}

static uint64_t told(CUpointer_attribute which, CUdeviceptr at)
{
        uint64_t value;

        assert_int_equal(ask(which, at, &value), CUDA_SUCCESS);
        return value;
}

/* Opens memory that is part of another process's block. */
static CUdeviceptr opened_elsewhere(struct block *b)
{
        *b = (struct block){.kind = BLOCK_LARGE, .address = UINT64_C(0x5500000000), .id = 9};
        bench.opened = (struct heap_place){b->address + PAGE, 3000, b};
        return bench.opened.start;
}

/* ---- sizes ---- */

static void free_memory_is_what_the_program_may_still_allocate(void **state)
{
        size_t free_bytes, total;
        CUdeviceptr at = allocate(12 * MIB);

        bench.driver = CUDA_SUCCESS;
        gpu->visible = 100 * MIB;
        gpu->unevictable = 6 * MIB;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
        assert_int_equal(free_bytes, 82 * MIB);
        assert_int_equal(total, 100 * MIB);
        /* Allocated and unevictable bytes together exceed the visible size. */
        gpu->unevictable = 95 * MIB;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, NULL), CUDA_SUCCESS);
        assert_int_equal(free_bytes, 0);
        assert_int_equal(hook_cuMemGetInfo_v2(NULL, &total), CUDA_SUCCESS);
        assert_int_equal(total, 100 * MIB);
        /* Without a daemon the driver's figure counts. */
        gpu->attached = false;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
        assert_int_equal(free_bytes, 3);
        assert_int_equal(total, 100 * MIB);
        current_gpu = NULL;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
        assert_int_equal(total, 4);
        current_gpu = gpu;
        bench.driver = THE_DRIVER;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, &total), THE_DRIVER);
        assert_int_equal(total, 4);
        release(at);
}

static void free_bytes_are_those_that_the_daemon_would_grant_in_whole_pages(void **state)
{
        CUdeviceptr at = allocate(12 * MIB);
        size_t free_bytes;

        bench.driver = CUDA_SUCCESS;
        gpu->visible = 100 * MIB;
        daemon_room = 40 * MIB;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, NULL), CUDA_SUCCESS);
        assert_int_equal(free_bytes, 28 * MIB);
        daemon_room = 39 * MIB;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, NULL), CUDA_SUCCESS);
        assert_int_equal(free_bytes, 26 * MIB);
        daemon_room = 8 * MIB;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, NULL), CUDA_SUCCESS);
        assert_int_equal(free_bytes, 0);
        release(at);
}

static void host_memory_counts_as_card_memory_in_overflow_mode(void **state)
{
        size_t free_bytes, total;

        bench.driver = CUDA_SUCCESS;
        core.host.most = 60 * MIB;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
        assert_int_equal(total, CARD);
        gpu->overflow = true;
        gpu->heap.mapped = 7 * MIB;
        assert_int_equal(hook_cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
        gpu->heap.mapped = 0;
        assert_int_equal(total, CARD + 60 * MIB);
        assert_int_equal(free_bytes, CARD + 53 * MIB);
}

static void the_size_of_a_device_is_its_visible_size(void **state)
{
        size_t total = 0;

        bench.driver = CUDA_SUCCESS;
        gpu->visible = 100 * MIB;
        assert_int_equal(hook_cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
        assert_int_equal(total, 100 * MIB);
        /* A device that we do not manage. */
        assert_int_equal(hook_cuDeviceTotalMem_v2(&total, 1), CUDA_SUCCESS);
        assert_int_equal(total, 4);
        bench.driver = THE_DRIVER;
        assert_int_equal(hook_cuDeviceTotalMem_v2(&total, 0), THE_DRIVER);
        assert_int_equal(total, 4);
}

/* ---- ranges ---- */

static void check_range(CUdeviceptr at, CUdeviceptr start, size_t bytes)
{
        CUdeviceptr base = 0;
        size_t size = 0;

        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, at), CUDA_SUCCESS);
        assert_int_equal(base, start);
        assert_int_equal(size, bytes);
        base = 0;
        size = 0;
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, NULL, at), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemGetAddressRange_v2(NULL, &size, at), CUDA_SUCCESS);
        assert_int_equal(base, start);
        assert_int_equal(size, bytes);
}

static void the_range_around_an_address_is_its_allocation(void **state)
{
        CUdeviceptr large = allocate(11 * MIB), small = allocate(1000), managed, base = 7,
                    elsewhere;
        struct block other;
        uint64_t cost;
        size_t size = 7;

        elsewhere = opened_elsewhere(&other);
        check_range(large + 10 * MIB, large, 11 * MIB);
        check_range(small + 999, small, 1000);
        check_range(bench.mapped + 5, bench.mapped, EXTENT);
        check_range(elsewhere + 2999, elsewhere, 3000);
        assert_int_equal(bench.passed, 0);
        /* An address of ours between two allocations belongs to neither. */
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, small + 1000),
                         CUDA_ERROR_NOT_FOUND);
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, large + 11 * MIB),
                         CUDA_ERROR_NOT_FOUND);
        assert_int_equal(bench.passed, 0);
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, NOBODYS), THE_DRIVER);
        /* The driver answers queries about managed memory. */
        managed = driver_managed(4 * MIB);
        assert_int_equal(heap_adopt(&gpu->heap, managed, 4 * MIB, OWNER, UINT64_MAX, &cost), 0);
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, managed), THE_DRIVER);
        assert_int_equal(base, 7);
        assert_int_equal(size, 7);
        lock_acquire(&core_lock);
        heap_withdraw(&gpu->heap, heap_adopted(&gpu->heap, managed, 1));
        gpu->heap.allocated -= 4 * MIB;
        lock_release(&core_lock);
        /* For a bystander the driver answers, except about the bystander's own allocations. */
        atomic_store(&core.bystander, true);
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, small + 1000), THE_DRIVER);
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, elsewhere), THE_DRIVER);
        atomic_store(&core.bystander, false);
        gpu->managed = false;
        assert_int_equal(hook_cuMemGetAddressRange_v2(&base, &size, small + 1000), THE_DRIVER);
        gpu->managed = true;
        release(large);
        release(small);
}

/* ---- attributes ---- */

static void an_allocation_has_the_attributes_of_the_drivers_own(void **state)
{
        CUdeviceptr at = allocate(11 * MIB), inside = at + 9 * MIB;
        uint64_t value = 1, bytes[3] = {5, 5, 5};

        gpu->index = 0;
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_CONTEXT, inside), (uintptr_t)OWNER);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CU_MEMORYTYPE_DEVICE);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
        assert_int_equal(
                hook_cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside),
                CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(value, 0);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 0);
        gpu->index = 3;
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside), 3);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), at);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 11 * MIB);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MAPPED, inside), 1);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), 0);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside), 0);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside),
                         CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, inside), 0);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside), at);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), 12 * MIB);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, inside), 1);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside), 0);
        assert_int_equal(hook_cuPointerGetAttribute(bytes, CU_POINTER_ATTRIBUTE_P2P_TOKENS, inside),
                         CUDA_SUCCESS);
        assert_true(bytes[0] == 0 && bytes[1] == 0 && bytes[2] == 5);
        assert_int_equal(bench.kept, 0); /* no other device can access the memory */
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, inside), 1);
        assert_int_equal(bench.passed, 0);
        release(at);
}

static void each_allocation_has_an_id_of_its_own(void **state)
{
        CUdeviceptr at[] = {allocate(4 * MIB), allocate(4 * MIB), allocate(1000), allocate(1000)};
        static const CUpointer_attribute id = CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                         block = CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;

        for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
                for (unsigned k = 0; k < i; k++)
                        assert_int_not_equal(told(id, at[i]), told(id, at[k]));
        assert_int_equal(told(id, at[0]), told(id, at[0] + 3 * MIB));
        assert_int_equal(told(id, at[3]), told(id, at[3] + 600));
        assert_int_not_equal(told(block, at[0]), told(block, at[1]));
        assert_int_equal(told(block, at[2]), told(block, at[3])); /* both lie in one block */
        for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
                release(at[i]);
}

static void memory_of_a_pool_has_the_attributes_of_the_pool(void **state)
{
        CUdeviceptr low = allocate_from_pool(POOL_STEP), at = allocate_from_pool(MIB);

        gpu->rdma = gpu->passes = true;
        no_ipc = false;
        assert_int_equal(at, low + POOL_STEP);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at), (uintptr_t)bench.pool);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at), POOL_STEP);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, low + POOL_STEP - 1), low);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at + 7), at);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + 7), at);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + 7), MIB);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, at), 0);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at), 0);
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, at), 0);
        (void)hook_cuMemFree_v2(at);
        (void)hook_cuMemFree_v2(low);
}

static void attributes_tell_whether_memory_can_be_shared(void **state)
{
        static const CUpointer_attribute ipc = CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                         rdma = CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE;
        CUdeviceptr at = allocate(4 * MIB), elsewhere;
        struct block other;

        elsewhere = opened_elsewhere(&other);
        assert_int_equal(told(rdma, at), 0);
        assert_int_equal(told(ipc, at), 0);
        gpu->rdma = gpu->passes = true;
        assert_int_equal(told(rdma, at), 1);
        assert_int_equal(told(ipc, at), 0);
        no_ipc = false;
        assert_int_equal(told(ipc, at), 1);
        /* Another process's memory cannot be exported again. */
        assert_int_equal(told(ipc, elsewhere), 0);
        gpu->passes = false;
        assert_int_equal(told(ipc, at), 0);
        release(at);
}

static void memory_that_a_device_will_access_stays_on_the_card(void **state)
{
        static const CUpointer_attribute tokens = CU_POINTER_ATTRIBUTE_P2P_TOKENS,
                                         sync = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        CUdeviceptr at = allocate(4 * MIB);
        const unsigned on = 1, off = 0;
        uint64_t value[2];
        void *data[] = {&value};
        CUpointer_attribute one[] = {tokens};

        gpu->rdma = true;
        (void)told(sync, at);
        assert_int_equal(bench.kept, 0); /* reading the attribute exports nothing */
        assert_int_equal(hook_cuPointerGetAttribute(value, tokens, at + PAGE), CUDA_SUCCESS);
        assert_int_equal(bench.kept, at);
        assert_int_equal(bench.kept_bytes, 4 * MIB);
        bench.kept = 0;
        assert_int_equal(hook_cuPointerGetAttributes(1, one, data, at + PAGE), CUDA_SUCCESS);
        assert_int_equal(bench.kept, at);
        bench.kept = 0;
        assert_int_equal(hook_cuPointerSetAttribute(&off, sync, at + PAGE), CUDA_SUCCESS);
        assert_int_equal(bench.kept, 0);
        assert_int_equal(hook_cuPointerSetAttribute(&on, sync, at + PAGE), CUDA_SUCCESS);
        assert_int_equal(bench.kept, at);
        bench.keeps = CUDA_ERROR_OUT_OF_MEMORY;
        assert_int_equal(hook_cuPointerGetAttribute(value, tokens, at), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(hook_cuPointerGetAttributes(1, one, data, at), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(hook_cuPointerSetAttribute(&on, sync, at), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(bench.passed, 0);
        release(at);
}

static void sync_memops_is_set_for_one_allocation_at_a_time(void **state)
{
        static const CUpointer_attribute sync = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        CUdeviceptr at[] = {allocate(4 * MIB), allocate(4 * MIB), allocate(1000), allocate(1000)};
        const unsigned on = 1, off = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(at); i++) {
                assert_int_equal(hook_cuPointerSetAttribute(&on, sync, at[i] + 5), CUDA_SUCCESS);
                for (unsigned k = 0; k < ARRAY_SIZE(at); k++)
                        assert_int_equal(told(sync, at[k]), k == i);
                assert_int_equal(hook_cuPointerSetAttribute(&off, sync, at[i]), CUDA_SUCCESS);
                assert_int_equal(told(sync, at[i]), 0);
        }
        assert_int_equal(bench.passed, 0);
        /* No other attribute can be set. */
        assert_int_equal(hook_cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MAPPED, at[0]),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuPointerSetAttribute(NULL, sync, at[0]), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(told(sync, at[0]), 0);
        assert_int_equal(hook_cuPointerSetAttribute(&on, sync, at[3] + 1000),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuPointerSetAttribute(&on, sync, bench.mapped),
                         CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(hook_cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MAPPED, bench.mapped),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(bench.passed, 0);
        assert_int_equal(hook_cuPointerSetAttribute(&on, sync, NOBODYS), THE_DRIVER);
        for (unsigned i = 0; i < ARRAY_SIZE(at); i++)
                release(at[i]);
}

static void the_driver_answers_queries_about_other_addresses(void **state)
{
        CUdeviceptr at = allocate(4 * MIB - 512);
        uint64_t value;

        assert_int_equal(ask(CU_POINTER_ATTRIBUTE_MAPPED, NOBODYS, &value), THE_DRIVER);
        assert_int_equal(hook_cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MAPPED, at),
                         THE_DRIVER);
        assert_int_equal(ask((CUpointer_attribute)999, at, &value), THE_DRIVER);
        assert_int_equal(bench.passed, 3);
        /* virtual.c answers for mappings of the program, and the driver for all else. */
        assert_int_equal(told(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, bench.mapped + 9),
                         bench.mapped);
        assert_int_equal(ask(CU_POINTER_ATTRIBUTE_MAPPED, bench.mapped, &value), THE_DRIVER);
        assert_int_equal(bench.passed, 4);
        assert_int_equal(ask(CU_POINTER_ATTRIBUTE_MAPPED, at + 4 * MIB - 1, &value),
                         CUDA_ERROR_INVALID_VALUE); /* between allocations */
        assert_int_equal(bench.passed, 4);
        release(at);
}

static CUresult ask_several(unsigned count, CUpointer_attribute *which, uint64_t *values,
                            CUdeviceptr at)
{
        void *data[32];

        for (unsigned i = 0; i < count; i++)
                data[i] = &values[i];
        return hook_cuPointerGetAttributes(count, which, data, at);
}

static void one_call_answers_several_attributes(void **state)
{
        CUdeviceptr at = allocate(4 * MIB);
        CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                       CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                       CU_POINTER_ATTRIBUTE_RANGE_SIZE};
        uint64_t values[3] = {1, 1, 1};

        assert_int_equal(ask_several(3, which, values, at + PAGE), CUDA_SUCCESS);
        assert_int_equal(values[0], at);
        assert_int_equal(values[1], 0);
        assert_int_equal(values[2], 4 * MIB);
        assert_int_equal(bench.passed, 0);
        /* The driver answers, one by one, what virtual.c does not know about the program's own
         * mapping. */
        assert_int_equal(ask_several(3, which, values, bench.mapped + PAGE), CUDA_SUCCESS);
        assert_int_equal(values[0], bench.mapped);
        assert_int_equal(bench.passed, 2);
        assert_int_equal(ask_several(3, which, values, NOBODYS), THE_DRIVER);
        assert_int_equal(bench.passed, 3);
        release(at);
}

static void invalid_queries_for_several_attributes_go_to_the_driver(void **state)
{
        CUdeviceptr at = allocate(4 * MIB);
        CUpointer_attribute first = CU_POINTER_ATTRIBUTE_CONTEXT,
                            last = CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
                            below = (CUpointer_attribute)(first - 1),
                            above = (CUpointer_attribute)(last + 1), two[2];
        uint64_t values[2];
        void *data[] = {&values[0], NULL};

        assert_int_equal(ask_several(1, &first, values, at), CUDA_SUCCESS);
        assert_int_equal(ask_several(1, &last, values, at), CUDA_SUCCESS);
        assert_int_equal(bench.passed, 0);
        assert_int_equal(ask_several(1, &below, values, at), THE_DRIVER);
        assert_int_equal(ask_several(1, &above, values, at), THE_DRIVER);
        assert_int_equal(ask_several(0, &first, values, at), THE_DRIVER);
        two[0] = two[1] = first;
        assert_int_equal(hook_cuPointerGetAttributes(2, two, data, at), THE_DRIVER);
        two[1] = above;
        assert_int_equal(ask_several(2, two, values, at), THE_DRIVER);
        assert_int_equal(hook_cuPointerGetAttributes(1, NULL, data, at), THE_DRIVER);
        assert_int_equal(hook_cuPointerGetAttributes(1, &first, NULL, at), THE_DRIVER);
        assert_int_equal(bench.passed, 7);
        release(at);
}

/* Each answer writes as many bytes as the driver would, and no more. */
static void an_address_between_allocations_has_empty_attributes(void **state)
{
        static const struct {
                CUpointer_attribute which;
                uint64_t left; /* bits that stay set in a value of all ones */
        } answers[] = {
                {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, UINT64_MAX},
                {CU_POINTER_ATTRIBUTE_RANGE_SIZE, UINT64_MAX},
                {CU_POINTER_ATTRIBUTE_CONTEXT, 0},
                {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 0},
                {CU_POINTER_ATTRIBUTE_P2P_TOKENS, 0},
                {CU_POINTER_ATTRIBUTE_BUFFER_ID, 0},
                {CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 0},
                {CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 0},
                {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 0},
                {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 0},
                {CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, 0},
                {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, UINT64_MAX << 32},
                {CU_POINTER_ATTRIBUTE_MAPPED, UINT64_MAX << 32},
                {CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, UINT64_MAX << 32},
                {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                 UINT64_MAX << 32 | (uint32_t)CU_DEVICE_INVALID},
        };
        CUdeviceptr at = allocate(4 * MIB), gap = at + 4 * MIB;

        for (unsigned i = 0; i < ARRAY_SIZE(answers); i++) {
                CUpointer_attribute which[] = {answers[i].which, CU_POINTER_ATTRIBUTE_HOST_POINTER};
                uint64_t values[2] = {UINT64_MAX, UINT64_MAX};

                assert_int_equal(ask_several(2, which, values, gap), CUDA_SUCCESS);
                assert_int_equal(values[0], answers[i].left);
                assert_int_equal(values[1], gap);
        }
        assert_int_equal(bench.passed, 0);
        assert_int_equal(bench.kept, 0);
        release(at);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                MEMORY_TEST(free_memory_is_what_the_program_may_still_allocate),
                MEMORY_TEST(free_bytes_are_those_that_the_daemon_would_grant_in_whole_pages),
                MEMORY_TEST(host_memory_counts_as_card_memory_in_overflow_mode),
                MEMORY_TEST(the_size_of_a_device_is_its_visible_size),
                MEMORY_TEST(the_range_around_an_address_is_its_allocation),
                MEMORY_TEST(an_allocation_has_the_attributes_of_the_drivers_own),
                MEMORY_TEST(each_allocation_has_an_id_of_its_own),
                MEMORY_TEST(memory_of_a_pool_has_the_attributes_of_the_pool),
                MEMORY_TEST(attributes_tell_whether_memory_can_be_shared),
                MEMORY_TEST(memory_that_a_device_will_access_stays_on_the_card),
                MEMORY_TEST(sync_memops_is_set_for_one_allocation_at_a_time),
                MEMORY_TEST(the_driver_answers_queries_about_other_addresses),
                MEMORY_TEST(one_call_answers_several_attributes),
                MEMORY_TEST(invalid_queries_for_several_attributes_go_to_the_driver),
                MEMORY_TEST(an_address_between_allocations_has_empty_attributes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
