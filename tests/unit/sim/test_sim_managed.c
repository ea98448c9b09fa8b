/* test_sim_managed.c: the simulated driver describes managed memory, allows the right accesses and
 * makes room for it. tests/system/test_managed.py tests how much the driver moves. */
#include "sim_unit.h"

#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (2 * UNIT_MIB)

static CUdeviceptr managed(size_t bytes)
{
        CUdeviceptr p;

        OK(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
        return p;
}

/* Returns a pointer with which the processor accesses managed memory. */
static volatile unsigned *word(CUdeviceptr p)
{
        return (volatile unsigned *)(uintptr_t)p;
}

SIM_TEST(the_driver_describes_managed_memory)
{
        CUcontext c = unit_begin(), of = NULL;
        CUdeviceptr p = managed(100), base = 0, device = 0;
        unsigned is_managed = 0, type = 0;
        int ordinal = -1, v = 0;
        size_t bytes = 0;
        void *host = NULL;

        OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
        CHECK_EQUAL(v, 1);
        OK(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
        CHECK_EQUAL(v, 1);
        OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p + 50));
        CHECK(is_managed);
        OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
        CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
        OK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p + 4));
        CHECK(host == (void *)(uintptr_t)(p + 4));
        OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 4));
        CHECK_EQUAL(device, p + 4);
        OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
        CHECK_EQUAL(ordinal, 0);
        OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
        CHECK(of == c);
        OK(cuMemGetAddressRange_v2(&base, &bytes, p + 99));
        CHECK(base == p && bytes == 100);
        OK(cuMemAlloc_v2(&device, 100));
        OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, device));
        CHECK(!is_managed);
        CHECK_EQUAL(cuMemFreeHost((void *)(uintptr_t)p), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemFree_v2(p));
        CHECK_EQUAL(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST(invalid_calls_for_managed_memory_are_refused)
{
        CUdeviceptr p, plain;
        CUstream s;

        (void)unit_begin();
        CHECK_EQUAL(cuMemAllocManaged(&p, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemAllocManaged(&p, 4, 0), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemAllocManaged(&p, 4, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemAllocManaged(NULL, 4, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
        p = managed(BLOCK);
        OK(cuMemAlloc_v2(&plain, BLOCK));
        OK(cuStreamCreate(&s, 0));
        CHECK_EQUAL(cuMemPrefetchAsync(plain, 4, 0, s), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemPrefetchAsync(p, 0, 0, s), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemPrefetchAsync(p, BLOCK + 1, 0, s), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemPrefetchAsync(p, 4, 1, s), CUDA_ERROR_INVALID_DEVICE);
        CHECK_EQUAL(cuMemAdvise(plain, 4, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
                    CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemAdvise(p, 4, (CUmem_advise)99, 0), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemAdvise(p, 4, CU_MEM_ADVISE_SET_ACCESSED_BY, 1), CUDA_ERROR_INVALID_DEVICE);
        CHECK_EQUAL(cuStreamAttachMemAsync(NULL, p, 0, CU_MEM_ATTACH_SINGLE),
                    CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuStreamAttachMemAsync(s, plain, 0, CU_MEM_ATTACH_SINGLE),
                    CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuStreamAttachMemAsync(s, p, 0, 8), CUDA_ERROR_INVALID_VALUE);
        OK(cuStreamAttachMemAsync(s, p, 0, CU_MEM_ATTACH_SINGLE));
        OK(cuCtxSynchronize());
}

static int range_attribute(CUmem_range_attribute which, CUdeviceptr p, size_t bytes)
{
        int v = 77;

        OK(cuMemRangeGetAttribute(&v, sizeof(v), which, p, bytes));
        return v;
}

SIM_TEST_WITH(advice_is_kept_for_the_range_it_was_given_for, "SIMCUDA_GPUS=2")
{
        const CUmemLocation second = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
        CUdeviceptr p;
        int who[4];

        (void)unit_begin();
        p = managed(2 * BLOCK);
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, BLOCK),
                    CU_DEVICE_INVALID);
        OK(cuMemAdvise(p, BLOCK, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, BLOCK), 1);
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, BLOCK + 1), 0);
        OK(cuMemAdvise(p, BLOCK, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, BLOCK), 0);
        OK(cuMemAdvise_v2(p, 2 * BLOCK, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, second));
        OK(cuMemAdvise(p + BLOCK, BLOCK, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, BLOCK), 1);
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p + BLOCK, BLOCK),
                    CU_DEVICE_CPU);
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 2 * BLOCK),
                    CU_DEVICE_INVALID);
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, p, BLOCK),
                    CU_MEM_LOCATION_TYPE_DEVICE);
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, p, BLOCK), 1);
        OK(cuMemAdvise(p, BLOCK, CU_MEM_ADVISE_SET_ACCESSED_BY, 1));
        OK(cuMemAdvise(p, BLOCK, CU_MEM_ADVISE_SET_ACCESSED_BY, CU_DEVICE_CPU));
        OK(cuMemRangeGetAttribute(who, sizeof(who), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, BLOCK));
        CHECK(who[0] == 1 && who[1] == CU_DEVICE_CPU && who[2] == CU_DEVICE_INVALID);
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, BLOCK),
                    CU_DEVICE_INVALID);
        OK(cuMemPrefetchAsync_v2(p, BLOCK, second, 0, NULL));
        CHECK_EQUAL(range_attribute(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, BLOCK), 1);
        CHECK_EQUAL(cuMemRangeGetAttribute(who, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 4),
                    CUDA_ERROR_INVALID_VALUE);
        OK(cuCtxSynchronize());
        CHECK_EQUAL(unit_totals(0).managed_h2d_bytes + unit_totals(1).managed_h2d_bytes, 0);
        CHECK_EQUAL(unit_used(1), BLOCK); /* the prefetched block is untouched, but uses the card */
}

SIM_TEST(processor_and_kernels_see_each_others_writes)
{
        CUfunction add_one;
        CUdeviceptr p;

        (void)unit_begin();
        add_one = unit_kernel("add_one");
        p = managed(3 * BLOCK);
        for (unsigned i = 0; i < 50; i++) {
                CUdeviceptr at = p + i % 7 * (UNIT_MIB / 2) + 4 * (i % 5);
                unsigned was = *word(at);

                OK(unit_launch(add_one, at, NULL));
                OK(cuCtxSynchronize());
                CHECK_EQUAL(*word(at), was + 1);
                *word(at) = was + 2;
                OK(unit_launch(add_one, at, NULL));
                OK(cuCtxSynchronize());
                CHECK_EQUAL(*word(at), was + 3);
        }
}

SIM_TEST(a_running_kernel_sees_what_the_processor_writes)
{
        CUdeviceptr p;
        CUstream s;

        (void)unit_begin();
        p = managed(BLOCK);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(unit_launch(unit_kernel("wait_flag"), p, s));
        CHECK_EQUAL(*word(p + 64), 0); /* the page moves to the host, and back for the kernel */
        *word(p) = 1;
        OK(cuStreamSynchronize(s));
}

static void add_two(void *p)
{
        *word((CUdeviceptr)(uintptr_t)p) += 2;
}

SIM_TEST(host_functions_touch_managed_memory_between_kernels)
{
        CUfunction add_one;
        CUdeviceptr p;

        (void)unit_begin();
        add_one = unit_kernel("add_one");
        p = managed(BLOCK);
        for (unsigned i = 0; i < 10; i++) {
                OK(unit_launch(add_one, p, NULL));
                OK(cuLaunchHostFunc(NULL, add_two, (void *)(uintptr_t)p));
        }
        OK(cuCtxSynchronize());
        CHECK_EQUAL(*word(p), 30);
}

SIM_TEST(streams_wait_for_values_in_managed_memory)
{
        CUdeviceptr p;
        CUstream s;

        (void)unit_begin();
        p = managed(BLOCK);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(cuStreamWaitValue32_v2(s, p, 5, CU_STREAM_WAIT_VALUE_EQ));
        OK(cuStreamWriteValue32_v2(s, p + 4, 6, 0));
        *word(p) = 5;
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(*word(p + 4), 6);
}

/* ---- invalid accesses ---- */

static sigjmp_buf back;

static void jump_back(int number)
{
        siglongjmp(back, number);
}

static void own_handler_first(bool after)
{
        struct sigaction mine = {.sa_handler = jump_back};
        CUdeviceptr p, plain;

        (void)unit_begin();
        if (!after)
                (void)sigaction(SIGSEGV, &mine, NULL);
        p = managed(BLOCK);
        OK(cuMemAlloc_v2(&plain, BLOCK));
        *word(p) = 7;
        if (after)
                (void)sigaction(SIGSEGV, &mine, NULL);
        OK(unit_launch(unit_kernel("add_one"), p, NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(*word(p), 8);
        if (sigsetjmp(back, 1) == 0) {
                *word(plain) = 1;
                CHECK(false);
        }
        CHECK_EQUAL(*word(p), 8);
}

SIM_TEST(an_earlier_handler_gets_faults_outside_managed_memory)
{
        own_handler_first(false);
}

SIM_TEST(a_later_handler_gets_faults_outside_managed_memory)
{
        own_handler_first(true);
}

/* Returns the signal that ends a child process in which deed(p) runs, or 0. */
static int dies_of(void (*deed)(CUdeviceptr p), CUdeviceptr p)
{
        int status;
        pid_t child = fork();

        if (child == 0) {
                deed(p);
                _exit(0);
        }
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch(CUdeviceptr p)
{
        *word(p) = 1;
}

static void touch_freed(CUdeviceptr none)
{
        CUdeviceptr p;

        (void)signal(SIGSEGV, SIG_DFL); /* remove the test runner's handler */
        (void)unit_begin();
        p = managed(BLOCK);
        *word(p) = 1;
        OK(cuMemFree_v2(p));
        *word(p) = 1;
}

SIM_TEST(freed_managed_memory_cannot_be_touched)
{
        CHECK_EQUAL(dies_of(touch_freed, 0), SIGSEGV);
}

SIM_TEST(a_forked_child_has_no_managed_memory)
{
        CUdeviceptr p;

        if (unit_emulated("MADV_DONTFORK"))
                return;
        (void)signal(SIGSEGV, SIG_DFL);
        (void)unit_begin();
        p = managed(BLOCK);
        *word(p) = 1;
        CHECK_EQUAL(dies_of(touch, p), SIGSEGV);
        *word(p) = 2;
        OK(unit_launch(unit_kernel("add_one"), p, NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(*word(p), 3);
}

/* ---- room ---- */

SIM_TEST_WITH(managed_memory_may_exceed_the_card_but_not_the_machine, "SIMCUDA_MEMORY=64MiB")
{
        uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        CUdeviceptr p;

        (void)unit_begin();
        CHECK_EQUAL(cuMemAllocManaged(&p, machine + 1, CU_MEM_ATTACH_GLOBAL),
                    CUDA_ERROR_OUT_OF_MEMORY);
        p = managed(128 * UNIT_MIB);
        OK(cuMemsetD8_v2(p, 9, 128 * UNIT_MIB));
        OK(cuCtxSynchronize());
        for (unsigned i = 0; i < 128; i++)
                CHECK_EQUAL(*word(p + i * UNIT_MIB), 0x09090909);
        OK(cuMemFree_v2(p));
        CHECK_EQUAL(unit_used(0), UNIT_MIB / 4); /* the context */
}

SIM_TEST_WITH(small_managed_allocations_take_little_of_the_card, "SIMCUDA_MEMORY=64MiB")
{
        CUfunction add_one;
        CUdeviceptr p[300];

        (void)unit_begin();
        add_one = unit_kernel("add_one");
        for (unsigned i = 0; i < 300; i++) {
                p[i] = managed(4 + i);
                *word(p[i]) = i;
                OK(unit_launch(add_one, p[i], NULL));
        }
        OK(cuCtxSynchronize());
        CHECK_EQUAL(unit_totals(0).evictions, 0);
        for (unsigned i = 0; i < 300; i++)
                CHECK_EQUAL(*word(p[i]), i + 1);
}

SIM_TEST_WITH(a_new_context_evicts_managed_memory_from_a_full_card,
              "SIMCUDA_MEMORY=64MiB SIMCUDA_CONTEXT=8MiB")
{
        CUcontext mine = unit_begin(), other;
        CUdeviceptr p = managed(80 * UNIT_MIB);

        OK(cuMemPrefetchAsync(p, 80 * UNIT_MIB, 0, NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(unit_used(0), 64 * UNIT_MIB);
        OK(cuCtxCreate_v2(&other, 0, 0));
        CHECK_EQUAL(unit_used(0), 64 * UNIT_MIB);
        OK(cuCtxDestroy_v2(other));
        OK(cuCtxSetCurrent(mine));
        OK(cuDevicePrimaryCtxRelease_v2(0));
        CHECK_EQUAL(unit_used(0), 0); /* managed memory ends with its context */
}

SIM_TEST_WITH(a_kernel_without_room_for_managed_memory_fails, "SIMCUDA_MEMORY=64MiB")
{
        CUdeviceptr p, rest;
        CUfunction store;

        (void)unit_begin();
        store = unit_kernel("store");
        p = managed(BLOCK);
        while (cuMemAlloc_v2(&rest, BLOCK) == CUDA_SUCCESS)
                ;
        OK(unit_launch(store, p, NULL));
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_OUT_OF_MEMORY);
}

SIM_TEST_WITH(managed_memory_follows_kernels_from_card_to_card, "SIMCUDA_GPUS=2")
{
        CUcontext first, second;
        CUfunction on_first, on_second;
        CUdeviceptr p;

        first = unit_begin();
        on_first = unit_kernel("add_one");
        OK(cuDevicePrimaryCtxRetain(&second, 1));
        OK(cuCtxSetCurrent(second));
        on_second = unit_kernel("add_one");
        p = managed(BLOCK);
        for (unsigned i = 0; i < 5; i++) {
                OK(cuCtxSetCurrent(first));
                OK(unit_launch(on_first, p, NULL));
                OK(cuCtxSynchronize());
                OK(cuCtxSetCurrent(second));
                OK(unit_launch(on_second, p, NULL));
                OK(cuCtxSynchronize());
        }
        CHECK_EQUAL(unit_totals(1).managed_h2d_bytes, 5 * 64 * 1024);
        CHECK_EQUAL(*word(p), 10);
}

SIM_TEST(captured_work_uses_managed_memory_but_cannot_prefetch_it)
{
        CUgraphExec exec;
        CUgraph graph;
        CUdeviceptr p;
        CUstream s;

        (void)unit_begin();
        p = managed(BLOCK);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK_EQUAL(cuMemPrefetchAsync(p, 4, 0, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(cuStreamEndCapture(s, &graph) != CUDA_SUCCESS);
        OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(unit_launch(unit_kernel("add_one"), p, s));
        OK(cuStreamEndCapture(s, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        for (unsigned i = 1; i < 5; i++) {
                OK(cuGraphLaunch(exec, s));
                OK(cuStreamSynchronize(s));
                CHECK_EQUAL(*word(p), i);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_driver_describes_managed_memory),
                cmocka_unit_test(invalid_calls_for_managed_memory_are_refused),
                cmocka_unit_test(advice_is_kept_for_the_range_it_was_given_for),
                cmocka_unit_test(processor_and_kernels_see_each_others_writes),
                cmocka_unit_test(a_running_kernel_sees_what_the_processor_writes),
                cmocka_unit_test(host_functions_touch_managed_memory_between_kernels),
                cmocka_unit_test(streams_wait_for_values_in_managed_memory),
                cmocka_unit_test(an_earlier_handler_gets_faults_outside_managed_memory),
                cmocka_unit_test(a_later_handler_gets_faults_outside_managed_memory),
                cmocka_unit_test(freed_managed_memory_cannot_be_touched),
                cmocka_unit_test(a_forked_child_has_no_managed_memory),
                cmocka_unit_test(managed_memory_may_exceed_the_card_but_not_the_machine),
                cmocka_unit_test(small_managed_allocations_take_little_of_the_card),
                cmocka_unit_test(a_new_context_evicts_managed_memory_from_a_full_card),
                cmocka_unit_test(a_kernel_without_room_for_managed_memory_fails),
                cmocka_unit_test(managed_memory_follows_kernels_from_card_to_card),
                cmocka_unit_test(captured_work_uses_managed_memory_but_cannot_prefetch_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
