/* test_sim_memory.c: device memory, virtual memory management, host memory. */
#include "sim_unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY  (256 * UNIT_MIB)
#define CONTEXT (MEMORY / 256)

static size_t free_bytes(void)
{
        size_t f, total;

        OK(cuMemGetInfo_v2(&f, &total));
        CHECK_EQUAL(total, MEMORY);
        return f;
}

SIM_TEST_WITH(allocated_bytes_are_missing_from_the_free_memory, "SIMCUDA_MEMORY=256MiB")
{
        CUdeviceptr a, b, c;

        (void)unit_begin();
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT);
        OK(cuMemAlloc_v2(&a, 5 * UNIT_MIB));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT - 6 * UNIT_MIB);
        OK(cuMemAlloc_v2(&b, 100));
        OK(cuMemAlloc_v2(&c, 100));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT - 8 * UNIT_MIB);
        CHECK(c != b && c % 512 == 0);
        OK(cuMemFree_v2(a));
        OK(cuMemFree_v2(b));
        OK(cuMemFree_v2(c));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT);
}

SIM_TEST_WITH(an_allocation_beyond_the_card_is_refused_and_loses_nothing, "SIMCUDA_MEMORY=256MiB")
{
        CUdeviceptr a, b;

        (void)unit_begin();
        CHECK_EQUAL(cuMemAlloc_v2(&a, MEMORY), CUDA_ERROR_OUT_OF_MEMORY);
        OK(cuMemAlloc_v2(&a, 200 * UNIT_MIB));
        CHECK_EQUAL(cuMemAlloc_v2(&b, 100 * UNIT_MIB), CUDA_ERROR_OUT_OF_MEMORY);
        OK(cuMemFree_v2(a));
        OK(cuMemAlloc_v2(&b, 100 * UNIT_MIB));
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
}

SIM_TEST(a_copy_or_fill_whose_size_wraps_is_refused)
{
        static char host[64];
        CUdeviceptr p;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 4096));
        CHECK_EQUAL(cuMemsetD8_v2(p, 1, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemsetD32_v2(p, 1, SIZE_MAX / 4 + 2), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemsetD2D8_v2(p, SIZE_MAX / 2 + 1, 1, 1, 3), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuMemcpyHtoD_v2(p, host, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
}

SIM_TEST_WITH(many_small_allocations_do_not_overlap_and_all_come_back, "SIMCUDA_MEMORY=256MiB")
{
        CUdeviceptr p[3000];

        (void)unit_begin();
        for (unsigned round = 0; round < 2; round++) {
                for (unsigned i = 0; i < 3000; i++) {
                        OK(cuMemAlloc_v2(&p[i], 4 + 7 * (i % 300)));
                        OK(cuMemsetD32_v2(p[i], i, 1));
                }
                for (unsigned i = 0; i < 3000; i++) {
                        unsigned v;

                        OK(cuMemcpyDtoH_v2(&v, p[i], 4));
                        CHECK_EQUAL(v, i);
                }
                for (unsigned i = 0; i < 3000; i++)
                        OK(cuMemFree_v2(p[(i * 7 + 11) % 3000]));
        }
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT);
}

SIM_TEST(a_handle_keeps_its_contents_while_it_is_not_mapped)
{
        CUmemGenericAllocationHandle h;
        unsigned v = 99;
        CUdeviceptr va;

        (void)unit_begin();
        va = unit_map(4 * UNIT_MIB, &h);
        OK(cuMemcpyDtoH_v2(&v, va + 3 * UNIT_MIB, 4));
        CHECK_EQUAL(v, 0); /* fresh memory is zero */
        OK(cuMemsetD32_v2(va, 0x12345678, UNIT_MIB));
        OK(cuCtxSynchronize());
        OK(cuMemUnmap(va, 4 * UNIT_MIB));
        CHECK_EQUAL(cuMemcpyDtoH_v2(&v, va, 4), CUDA_ERROR_INVALID_VALUE);
        unit_map_at(va, 4 * UNIT_MIB, h);
        OK(cuMemcpyDtoH_v2(&v, va + 3 * UNIT_MIB, 4));
        CHECK_EQUAL(v, 0x12345678);
}

SIM_TEST(one_handle_at_two_addresses_is_the_same_memory)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr a, b;
        unsigned v = 5;

        (void)unit_begin();
        a = unit_map(2 * UNIT_MIB, &h);
        OK(cuMemAddressReserve(&b, 2 * UNIT_MIB, 0, 0, 0));
        unit_map_at(b, 2 * UNIT_MIB, h);
        OK(cuMemcpyHtoD_v2(a + 64, &v, 4));
        v = 0;
        OK(cuMemcpyDtoH_v2(&v, b + 64, 4));
        CHECK_EQUAL(v, 5);
}

SIM_TEST_WITH(an_exported_handle_is_the_same_memory_and_charged_once, "SIMCUDA_MEMORY=256MiB")
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requestedHandleTypes =
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        CUmemGenericAllocationHandle made, imported;
        unsigned v = 11;
        CUdeviceptr a, b;
        int fd;

        (void)unit_begin();
        OK(cuMemAddressReserve(&a, 4 * UNIT_MIB, 0, 0, 0));
        b = a + 2 * UNIT_MIB;
        OK(cuMemCreate(&made, 2 * UNIT_MIB, &prop, 0));
        OK(cuMemExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        (void)close(fd);
        unit_map_at(a, 2 * UNIT_MIB, made);
        unit_map_at(b, 2 * UNIT_MIB, imported);
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT - 2 * UNIT_MIB);
        OK(cuMemcpyHtoD_v2(a + 8, &v, 4));
        v = 0;
        OK(cuMemcpyDtoH_v2(&v, b + 8, 4));
        CHECK_EQUAL(v, 11);
        OK(cuMemUnmap(a, 4 * UNIT_MIB));
        OK(cuMemRelease(made));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT);
        unit_map_at(b, 2 * UNIT_MIB, imported); /* the imported handle keeps the contents */
        OK(cuMemcpyDtoH_v2(&v, b + 8, 4));
        CHECK_EQUAL(v, 11);
        made = unit_create(2 * UNIT_MIB);
        CHECK_EQUAL(cuMemExportToShareableHandle(&fd, made,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                    CUDA_ERROR_INVALID_VALUE); /* the handle was not created for export */
}

SIM_TEST_WITH(memory_is_charged_while_a_handle_or_a_mapping_is_left, "SIMCUDA_MEMORY=256MiB")
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr va;

        (void)unit_begin();
        va = unit_map(64 * UNIT_MIB, &h);
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT - 64 * UNIT_MIB);
        OK(cuMemRelease(h));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT - 64 * UNIT_MIB);
        CHECK_EQUAL(cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemUnmap(va, 64 * UNIT_MIB));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT);
        h = unit_create(64 * UNIT_MIB);
        unit_map_at(va, 64 * UNIT_MIB, h);
        OK(cuMemUnmap(va, 64 * UNIT_MIB));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT - 64 * UNIT_MIB);
        OK(cuMemRelease(h));
        CHECK_EQUAL(free_bytes(), MEMORY - CONTEXT);
        OK(cuMemAddressFree(va, 64 * UNIT_MIB));
}

SIM_TEST(hundreds_of_mappings_keep_their_contents)
{
        enum { COUNT = 400 };
        static CUmemGenericAllocationHandle h[COUNT];
        CUdeviceptr va;
        unsigned v;

        (void)unit_begin();
        OK(cuMemAddressReserve(&va, COUNT * 2 * UNIT_MIB, 0, 0, 0));
        for (unsigned i = 0; i < COUNT; i++) {
                h[i] = unit_create(2 * UNIT_MIB);
                unit_map_at(va + i * 2 * UNIT_MIB, 2 * UNIT_MIB, h[i]);
                OK(cuMemsetD32_v2(va + i * 2 * UNIT_MIB, i, 2));
        }
        OK(cuCtxSynchronize());
        OK(cuMemUnmap(va, COUNT * 2 * UNIT_MIB));
        for (unsigned i = 0; i < COUNT; i++) /* maps the handles in reverse order */
                unit_map_at(va + i * 2 * UNIT_MIB, 2 * UNIT_MIB, h[COUNT - 1 - i]);
        for (unsigned i = 0; i < COUNT; i++) {
                OK(cuMemcpyDtoH_v2(&v, va + i * 2 * UNIT_MIB, 4));
                CHECK_EQUAL(v, COUNT - 1 - i);
        }
}

SIM_TEST(a_copy_over_several_mappings_is_one_copy)
{
        CUmemGenericAllocationHandle h1, h2;
        size_t bytes = 4 * UNIT_MIB;
        unsigned char *host;
        CUdeviceptr va;

        (void)unit_begin();
        host = unit_pinned(bytes);
        for (size_t i = 0; i < bytes; i++)
                host[i] = (unsigned char)(i * 31 + (i >> 12));
        OK(cuMemAddressReserve(&va, bytes, 0, 0, 0));
        h1 = unit_create(2 * UNIT_MIB);
        h2 = unit_create(2 * UNIT_MIB);
        unit_map_at(va, 2 * UNIT_MIB, h1);
        unit_map_at(va + 2 * UNIT_MIB, 2 * UNIT_MIB, h2);
        OK(cuMemcpyHtoD_v2(va, host, bytes));
        memset(host, 0, bytes);
        OK(cuMemcpyDtoH_v2(host, va, bytes));
        for (size_t i = 0; i < bytes; i++)
                CHECK_EQUAL(host[i], (unsigned char)(i * 31 + (i >> 12)));
        CHECK_EQUAL(unit_totals(0).h2d_copies, 1);
        CHECK_EQUAL(unit_totals(0).h2d_bytes, bytes);
        CHECK_EQUAL(unit_totals(0).d2h_bytes, bytes);
}

SIM_TEST(an_address_without_access_breaks_the_context_for_good)
{
        CUmemGenericAllocationHandle h;
        CUfunction store;
        CUdeviceptr va, p;
        CUevent e;

        (void)unit_begin();
        store = unit_kernel("store");
        OK(cuEventCreate(&e, 0));
        OK(cuMemAddressReserve(&va, 2 * UNIT_MIB, 0, 0, 0));
        h = unit_create(2 * UNIT_MIB);
        OK(cuMemMap(va, 2 * UNIT_MIB, 0, h, 0));
        OK(unit_launch(store, va, NULL)); /* the fault shows when the kernel runs */
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_EQUAL(cuMemAlloc_v2(&p, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_EQUAL(cuEventRecord(e, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_EQUAL(unit_launch(store, va, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
        OK(cuMemUnmap(va, 2 * UNIT_MIB)); /* memory can still be given back */
        OK(cuMemRelease(h));
}

SIM_TEST(a_kernel_whose_memory_is_unmapped_fails)
{
        CUmemGenericAllocationHandle h;
        CUfunction wait;
        CUdeviceptr va;
        CUstream s;

        (void)unit_begin();
        wait = unit_kernel("wait_flag");
        va = unit_map(2 * UNIT_MIB, &h);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(unit_launch(wait, va, s));
        while (unit_totals(0).launches == 0)
                (void)usleep(1000);
        (void)usleep(20000);
        OK(cuMemUnmap(va, 2 * UNIT_MIB)); /* unmapping does not wait for the kernel */
        CHECK_EQUAL(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

SIM_TEST(free_waits_for_the_work_submitted_before)
{
        CUfunction wait;
        unsigned *flag;
        CUdeviceptr p;
        CUstream s;
        pid_t other;

        (void)unit_begin();
        wait = unit_kernel("wait_flag");
        flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        OK(cuMemHostRegister_v2(flag, 4096, 0));
        OK(cuMemAlloc_v2(&p, 64));
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(unit_launch(wait, unit_address(flag), s));
        other = fork();
        if (other == 0) {
                (void)usleep(50000);
                unit_set_flag(flag);
                _exit(0);
        }
        OK(cuMemFree_v2(p));
        CHECK_EQUAL(*(volatile unsigned *)flag, 1); /* the free waited until the kernel could end */
        OK(cuStreamQuery(s));
        (void)waitpid(other, NULL, 0);
}

SIM_TEST(the_processor_cannot_touch_device_memory)
{
        CUdeviceptr p;
        int status;
        pid_t child;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 4 * UNIT_MIB));
        child = fork();
        if (child == 0) {
                (void)signal(SIGSEGV, SIG_DFL);
                *(volatile char *)(uintptr_t)p = 1;
                _exit(0);
        }
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) != 0); /* a sanitizer exits instead */
}

SIM_TEST(kernels_reach_pinned_and_registered_memory_at_its_own_address)
{
        static unsigned own[1024];
        unsigned *pinned;
        CUfunction store;
        CUdeviceptr d;

        (void)unit_begin();
        store = unit_kernel("store");
        pinned = unit_pinned(4096);
        OK(cuMemHostGetDevicePointer_v2(&d, pinned, 0));
        CHECK_EQUAL(d, unit_address(pinned));
        OK(unit_launch(store, d, NULL));
        OK(cuMemHostRegister_v2(own, sizeof(own), 0));
        OK(unit_launch(store, unit_address(&own[7]), NULL));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(pinned[0], 1);
        CHECK_EQUAL(own[7], 1);
        OK(cuMemHostUnregister(own));
        OK(unit_launch(store, unit_address(&own[7]), NULL));
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

SIM_TEST(pitched_copies_move_the_rows_and_nothing_else)
{
        enum { WIDTH = 100, HEIGHT = 37 };
        unsigned char from[HEIGHT][128], to[HEIGHT][160];
        CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                            .srcHost = from,
                            .srcPitch = 128,
                            .srcXInBytes = 3,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .WidthInBytes = WIDTH,
                            .Height = HEIGHT};
        CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = to,
                             .dstPitch = 160,
                             .dstXInBytes = 5,
                             .WidthInBytes = WIDTH,
                             .Height = HEIGHT};
        CUdeviceptr p;
        size_t pitch;

        (void)unit_begin();
        OK(cuMemAllocPitch_v2(&p, &pitch, WIDTH, HEIGHT, 4));
        for (unsigned y = 0; y < HEIGHT; y++)
                for (unsigned x = 0; x < 128; x++)
                        from[y][x] = (unsigned char)(y * 7 + x);
        memset(to, 0xee, sizeof(to));
        in.dstDevice = out.srcDevice = p;
        in.dstPitch = out.srcPitch = pitch;
        OK(cuMemcpy2D_v2(&in));
        OK(cuMemcpy2D_v2(&out));
        for (unsigned y = 0; y < HEIGHT; y++)
                for (unsigned x = 0; x < 160; x++)
                        CHECK_EQUAL(to[y][x], x >= 5 && x < 5 + WIDTH
                                                      ? (unsigned char)(y * 7 + x - 5 + 3)
                                                      : 0xee);
}

SIM_TEST(fills_of_every_width_fill_exactly_their_range)
{
        unsigned char host[256];
        CUdeviceptr p;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 256));
        OK(cuMemsetD8_v2(p, 0xaa, 256));
        OK(cuMemsetD16_v2(p + 10, 0x1234, 3));
        OK(cuMemsetD32_v2(p + 32, 0xdeadbeef, 2));
        OK(cuMemsetD2D8_v2(p + 64, 16, 0x55, 3, 4));
        OK(cuMemcpyDtoH_v2(host, p, 256));
        CHECK_EQUAL(memcmp(host + 9, "\xaa\x34\x12\x34\x12\x34\x12\xaa", 8), 0);
        CHECK_EQUAL(memcmp(host + 31, "\xaa\xef\xbe\xad\xde\xef\xbe\xad\xde\xaa", 10), 0);
        for (unsigned i = 64; i < 128; i++)
                CHECK_EQUAL(host[i], i % 16 < 3 ? 0x55 : 0xaa);
        CHECK_EQUAL(cuMemsetD32_v2(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST_WITH(injected_faults_hit_the_named_thread_and_no_other,
              "SIMCUDA_FAIL=cuMemAlloc@other:1:46,cuMemAlloc@this:2:46")
{
        CUdeviceptr p;

        (void)unit_begin();
        CHECK_EQUAL(prctl(PR_SET_NAME, "neither"), 0);
        OK(cuMemAlloc_v2(&p, 64));
        CHECK_EQUAL(prctl(PR_SET_NAME, "this"), 0);
        OK(cuMemAlloc_v2(&p, 64));
        CHECK_EQUAL(cuMemAlloc_v2(&p, 64), CUDA_ERROR_DEVICE_UNAVAILABLE);
        OK(cuMemAlloc_v2(&p, 64));
}

SIM_TEST_WITH(injected_faults_hit_the_named_call_and_no_other,
              "SIMCUDA_FAIL=cuMemCreate:2:2,cuMemAlloc:1:46")
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        CUmemGenericAllocationHandle h;
        CUdeviceptr p;

        (void)unit_begin();
        OK(cuMemCreate(&h, 2 * UNIT_MIB, &prop, 0));
        CHECK_EQUAL(cuMemCreate(&h, 2 * UNIT_MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
        OK(cuMemCreate(&h, 2 * UNIT_MIB, &prop, 0));
        CHECK_EQUAL(cuMemAlloc_v2(&p, 64), CUDA_ERROR_DEVICE_UNAVAILABLE);
        OK(cuMemAlloc_v2(&p, 64));
}

SIM_TEST_WITH(destroying_a_context_frees_all_its_memory, "SIMCUDA_MEMORY=256MiB")
{
        CUcontext mine;
        CUdeviceptr p;
        CUstream s;

        (void)unit_begin();
        OK(cuCtxCreate_v2(&mine, 0, 0));
        CHECK_EQUAL(unit_used(0), 2 * CONTEXT);
        OK(cuMemAlloc_v2(&p, 100));
        OK(cuMemAlloc_v2(&p, 40 * UNIT_MIB));
        OK(cuStreamCreate(&s, 0));
        OK(unit_launch(unit_kernel("store"), p, s));
        OK(cuCtxDestroy_v2(mine));
        CHECK_EQUAL(unit_used(0), CONTEXT);
        CHECK_EQUAL(cuCtxPushCurrent_v2(mine), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        OK(cuDevicePrimaryCtxRelease_v2(0));
        CHECK_EQUAL(unit_used(0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(allocated_bytes_are_missing_from_the_free_memory),
                cmocka_unit_test(an_allocation_beyond_the_card_is_refused_and_loses_nothing),
                cmocka_unit_test(a_copy_or_fill_whose_size_wraps_is_refused),
                cmocka_unit_test(many_small_allocations_do_not_overlap_and_all_come_back),
                cmocka_unit_test(a_handle_keeps_its_contents_while_it_is_not_mapped),
                cmocka_unit_test(one_handle_at_two_addresses_is_the_same_memory),
                cmocka_unit_test(an_exported_handle_is_the_same_memory_and_charged_once),
                cmocka_unit_test(memory_is_charged_while_a_handle_or_a_mapping_is_left),
                cmocka_unit_test(hundreds_of_mappings_keep_their_contents),
                cmocka_unit_test(a_copy_over_several_mappings_is_one_copy),
                cmocka_unit_test(an_address_without_access_breaks_the_context_for_good),
                cmocka_unit_test(a_kernel_whose_memory_is_unmapped_fails),
                cmocka_unit_test(free_waits_for_the_work_submitted_before),
                cmocka_unit_test(the_processor_cannot_touch_device_memory),
                cmocka_unit_test(kernels_reach_pinned_and_registered_memory_at_its_own_address),
                cmocka_unit_test(pitched_copies_move_the_rows_and_nothing_else),
                cmocka_unit_test(fills_of_every_width_fill_exactly_their_range),
                cmocka_unit_test(injected_faults_hit_the_named_thread_and_no_other),
                cmocka_unit_test(injected_faults_hit_the_named_call_and_no_other),
                cmocka_unit_test(destroying_a_context_frees_all_its_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
