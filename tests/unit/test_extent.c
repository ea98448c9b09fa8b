/* test_extent.c: the memory behind an extent: its creation, its mappings, the GPUs that may access
 * it, and that a failing driver call leaves nothing behind. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/move/extent.h"
#include "preload/stream/quiesce.h"
#include "preload/state/virtual.h"

#define PAGE  HEAP_GRANULARITY
#define BYTES (4 * PAGE)
#define AT    UINT64_C(0x7f0000000000)
#define FD    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static struct gpu *const gpu = &core.gpus[2]; /* a GPU whose ordinal is not 0 */
static struct context context = {.handle = (CUcontext)(uintptr_t)0xc0};
static struct block block;
static struct extent extent;

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 4};
        driver_reset(GIB);
        driver.unlocked = true;
        driver.device = 2;
        gpu->index = 2;
        gpu->heap.extent_bytes = BYTES;
        gpu->context = &context;
        context.gpu = gpu;
        block = (struct block){.kind = BLOCK_LARGE, .bytes = BYTES, .extent_bytes = BYTES};
        extent = (struct extent){.address = AT, .bytes = BYTES, .block = &block};
        return 0;
}

static int end(void **state)
{
        assert_int_equal(driver_mappings(), 0);
        assert_int_equal(driver_handles(), 0);
        assert_int_equal(driver.streams, 0);
        assert_int_equal(driver.relaxed, 0);
        assert_int_equal(driver.current, NULL);
        return 0;
}

static const CUmemAllocationProp *prop(void)
{
        return driver_prop(extent.handle);
}

static void an_extent_is_created_on_its_gpu_and_mapped_for_it(void **state)
{
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(prop()->location.type, CU_MEM_LOCATION_TYPE_DEVICE);
        assert_int_equal(prop()->location.id, 2);
        assert_int_equal(prop()->requestedHandleTypes, 0);
        assert_int_equal(prop()->allocFlags.gpuDirectRDMACapable, 0);
        assert_int_equal(prop()->allocFlags.usage, 0);
        assert_false(extent.adopted);
        for (unsigned i = 0; i < 4; i++)
                for (unsigned g = 0; g < 4; g++)
                        assert_int_equal(driver_word(AT + i * PAGE, g) != NULL, g == 2);
        assert_int_equal(driver.used, BYTES);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        assert_int_equal(driver.used, 0);
}

static void other_gpus_reach_an_extent_only_if_its_gpu_allows_them(void **state)
{
        gpu->peers = 1 << 0 | 1 << 3;
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(extent.peers, gpu->peers);
        for (unsigned g = 0; g < 4; g++)
                assert_int_equal(driver_word(AT, g) != NULL, g != 1);
        extent_allow(&extent, 1 << 1 | 1 << 3);
        for (unsigned g = 0; g < 4; g++)
                assert_int_equal(driver_word(AT, g) != NULL, g != 0);
        assert_int_equal(extent.peers, 1 << 1 | 1 << 3);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        /* The same GPUs reach the extent while it lies in host memory. */
        assert_int_equal(extent_map_host(gpu, &extent), CUDA_SUCCESS);
        assert_int_equal(extent.peers, gpu->peers);
        for (unsigned g = 0; g < 4; g++)
                assert_int_equal(driver_word(AT, g) != NULL, g != 1);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
}

static void memory_is_created_for_all_abilities_of_the_card(void **state)
{
        gpu->rdma = gpu->unpacks = gpu->passes = true;
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(prop()->allocFlags.gpuDirectRDMACapable, 1);
        assert_int_equal(prop()->allocFlags.usage, CU_MEM_CREATE_USAGE_HW_DECOMPRESS);
        assert_int_equal(prop()->requestedHandleTypes, FD);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        extent.bytes =
                PAGE; /* a small extent is not handed over, but other processes may open it */
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(prop()->requestedHandleTypes, FD);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
}

static void managed_memory_is_neither_mapped_nor_handed_over(void **state)
{
        extent.managed = true;
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        assert_int_equal(driver.calls, 0);
        gpu->passes = true;
        assert_false(extent_may_leave(gpu, &extent));
        assert_false(extent_may_adopt(gpu, &extent));
}

static void memory_of_a_special_kind_is_not_handed_over(void **state)
{
        struct handle h = {.bytes = BYTES};

        gpu->passes = true;
        block.kind = BLOCK_HANDLE;
        block.handle = &h;
        assert_true(extent_may_leave(gpu, &extent));
        assert_true(extent_may_adopt(gpu, &extent));
        h.prop.allocFlags.gpuDirectRDMACapable = 1;
        assert_true(extent_may_leave(gpu, &extent));
        assert_false(extent_may_adopt(gpu, &extent));
        h.prop.allocFlags.gpuDirectRDMACapable = 0;
        h.prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
        assert_true(extent_may_adopt(gpu, &extent));
        h.prop.allocFlags.usage |= 1;
        assert_false(extent_may_adopt(gpu, &extent));
        h.prop.allocFlags.usage = 0;
        h.prop.allocFlags.compressionType = 1;
        assert_false(extent_may_leave(gpu, &extent));
        assert_false(extent_may_adopt(gpu, &extent));
        block.handle = NULL;
        assert_true(extent_may_adopt(gpu, &extent));
        extent.own = true;
        assert_false(extent_may_adopt(gpu, &extent));
        assert_true(extent_may_leave(gpu, &extent));
        extent.bytes -= PAGE;
        assert_false(extent_may_leave(gpu, &extent));
        gpu->passes = false;
        extent.bytes = BYTES;
        assert_false(extent_may_leave(gpu, &extent));
}

static void memory_handed_over_is_adopted_and_its_descriptor_closed(void **state)
{
        unsigned before = open_descriptors();
        int fd = driver_foreign(BYTES, 42);

        gpu->passes = true;
        assert_int_equal(extent_map(gpu, &extent, fd), CUDA_SUCCESS);
        assert_true(extent.adopted);
        assert_int_equal(*driver_word(AT, 2), 42);
        assert_int_equal(open_descriptors(), before);
        assert_int_equal(extent_export(&extent), -EBADF); /* the driver exports memory only once */
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        /* A descriptor that the driver does not import is closed, and new memory is created. */
        assert_int_equal(extent_map(gpu, &extent, open("/dev/null", O_RDONLY)), CUDA_SUCCESS);
        assert_false(extent.adopted);
        assert_int_equal(open_descriptors(), before);
        fd = extent_export(&extent);
        assert_true(fd >= 0);
        (void)close(fd);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
}

static void host_memory_lies_on_the_gpus_node_if_possible(void **state)
{
        assert_int_equal(extent_map_host(gpu, &extent), CUDA_SUCCESS);
        assert_int_equal(prop()->location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
        assert_int_equal(prop()->location.id, 3);
        assert_non_null(driver_word(AT, 2));
        assert_int_equal(driver.used, 0);
        assert_int_equal(driver.host, BYTES);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        driver.no_numa = true;
        assert_int_equal(extent_map_host(gpu, &extent), CUDA_SUCCESS);
        assert_int_equal(prop()->location.type, CU_MEM_LOCATION_TYPE_HOST);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
}

/* ---- extents of the program's own handles ---- */

static struct handle *handle;

static void make_handle(void)
{
        const CUmemAllocationProp as = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 2}};

        handle = virtual_create(gpu, &as, 2 * BYTES);
        assert_non_null(handle);
        block = (struct block){
                .kind = BLOCK_HANDLE, .bytes = 2 * BYTES, .extent_bytes = BYTES, .handle = handle};
        extent = (struct extent){.bytes = BYTES, .offset = BYTES, .block = &block};
        handle->block = &block;
}

static struct mapping *map_for(CUdeviceptr at, unsigned device, CUmemAccess_flags flags)
{
        const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, (int)device}, flags};
        struct mapping *m = virtual_map(handle, at, handle->bytes);

        assert_non_null(m);
        if (flags)
                mapping_allow(m, &access, 1);
        return m;
}

static void forget_handle(void)
{
        while (handle->mappings)
                virtual_unmap(handle->mappings);
        virtual_forget(handle);
        free(handle);
}

static void an_extent_is_mapped_wherever_the_program_mapped_its_handle(void **state)
{
        make_handle();
        gpu->peers = 1 << 3; /* concerns only the heap's own memory */
        (void)map_for(AT, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        (void)map_for(AT + 16 * BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        (void)map_for(AT + 32 * BYTES, 0, 0);
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(extent.peers, 0);
        assert_int_equal(driver_mappings(), 3);
        for (unsigned g = 0; g < 4; g++) {
                assert_null(driver_word(AT, g)); /* the handle's other extent lies there */
                assert_int_equal(driver_word(AT + BYTES, g) != NULL, g == 2);
                assert_int_equal(driver_word(AT + 17 * BYTES, g) != NULL, g == 1);
                assert_null(driver_word(AT + 33 * BYTES, g));
        }
        assert_int_equal(driver_handle(AT + 33 * BYTES), extent.handle);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        forget_handle();
}

static void an_extent_that_its_gpu_cannot_write_is_copied_through_a_window(void **state)
{
        CUdeviceptr at, another;

        make_handle();
        (void)map_for(AT, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(extent_open(gpu, &extent, 0, &at), CUDA_SUCCESS);
        assert_int_equal(at, AT + BYTES);
        extent_close(&extent, &at);
        assert_int_equal(at, 0);
        extent_close(&extent, &at); /* a second close does nothing */
        assert_non_null(driver_word(AT + BYTES, 2));
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        virtual_unmap(handle->mappings);
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        assert_int_equal(driver_mappings(), 0);
        assert_int_equal(extent_open(gpu, &extent, 1, &at), CUDA_SUCCESS);
        assert_int_equal(extent_open(gpu, &extent, 7, &another), CUDA_SUCCESS);
        assert_int_equal(driver.reservations, 1);
        assert_int_equal(another - at, 6 * BYTES);
        assert_non_null(driver_word(at, 2));
        assert_ptr_equal(driver_word(at, 2), driver_word(another, 2));
        extent_close(&extent, &at);
        extent_close(&extent, &another);
        assert_int_equal(driver_mappings(), 0);
        block.handle = NULL; /* the program has released the handle */
        assert_int_equal(extent_open(gpu, &extent, 0, &at), CUDA_SUCCESS);
        extent_close(&extent, &at);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        gpu->windows = 0;
        forget_handle();
}

/* ---- driver calls that fail ---- */

static CUresult map_own(void)
{
        return extent_map(gpu, &extent, -EBADF);
}

static CUresult map_host(void)
{
        return extent_map_host(gpu, &extent);
}

static CUresult map_foreign(void)
{
        return extent_map(gpu, &extent, driver_foreign(BYTES, 1));
}

static void check_tries(CUresult (*try)(void), unsigned calls)
{
        unsigned before = open_descriptors(), n = 1;

        for (CUresult r = CUDA_ERROR_UNKNOWN; r != CUDA_SUCCESS || driver.failed; n++) {
                driver_fail(n, CUDA_ERROR_UNKNOWN);
                r = try();
                assert_int_equal(open_descriptors(), before);
                if (r == CUDA_SUCCESS)
                        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
                assert_int_equal(driver_mappings(), 0);
                assert_int_equal(driver_handles(), 0);
                assert_int_equal(driver.used + driver.host, 0);
                if (!driver.failed)
                        break;
        }
        assert_int_equal(n, calls + 1); /* each call has failed once */
}

static void a_call_that_fails_leaves_nothing_behind(void **state)
{
        check_tries(map_own, 3); /* calls: create, map, access */
        check_tries(map_host, 3);
        check_tries(map_foreign, 3); /* calls: import, map, access */
        make_handle();
        (void)map_for(AT, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        (void)map_for(AT + 16 * BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        (void)map_for(AT + 32 * BYTES, 0, 0);
        check_tries(map_own, 6); /* one of the three mappings gives no GPU access */
        forget_handle();
}

/* Otherwise each later map at that address would fail: the memory would never come back. */
static void a_mapping_that_could_not_be_undone_goes_with_the_next_attempt(void **state)
{
        driver.ends_fail = true;
        driver.more = 9; /* the unmaps that undo the map */
        driver_fail(3, CUDA_ERROR_UNKNOWN);
        assert_int_equal(map_own(), CUDA_ERROR_UNKNOWN);
        assert_int_equal(driver_mappings(), 1);
        driver.more = 0;
        driver_fail(0, CUDA_SUCCESS);
        assert_int_not_equal(map_own(), CUDA_SUCCESS);
        assert_int_equal(driver_mappings(), 0);
        assert_int_equal(map_own(), CUDA_SUCCESS);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        assert_int_equal(driver.used, 0);
}

static void a_failed_window_leaves_no_mapping(void **state)
{
        CUdeviceptr at = 1;

        make_handle();
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        for (unsigned n = 1; n <= 3; n++) { /* calls: reserve, map, access */
                driver_fail(n == 1 ? 1 : n, CUDA_ERROR_UNKNOWN);
                gpu->windows = 0;
                assert_int_equal(extent_open(gpu, &extent, 2, &at), CUDA_ERROR_UNKNOWN);
                assert_int_equal(at, 0);
                assert_int_equal(driver_mappings(), 0);
        }
        driver_fail(0, CUDA_SUCCESS);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        forget_handle();
}

static CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                       unsigned long long);
static unsigned maps_that_fail;
static CUresult map_error;

static CUresult map_fails(CUdeviceptr at, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle name, unsigned long long flags)
{
        if (maps_that_fail == 0)
                return map(at, bytes, offset, name, flags);
        maps_that_fail--;
        return map_error;
}

static unsigned unmaps;
static CUresult (*unmap)(CUdeviceptr at, size_t bytes);

static CUresult fail_the_third_unmap(CUdeviceptr at, size_t bytes)
{
        return ++unmaps == 3 ? CUDA_ERROR_UNKNOWN : unmap(at, bytes);
}

/* Takes an extent away that is mapped at three addresses: the last unmap fails, and then n maps. */
static void unmap_while_maps_fail(unsigned n)
{
        (void)map_for(AT, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        (void)map_for(AT + 16 * BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        (void)map_for(AT + 32 * BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        map = real.cuMemMap;
        unmap = real.cuMemUnmap;
        real.cuMemMap = map_fails;
        real.cuMemUnmap = fail_the_third_unmap;
        maps_that_fail = n;
        map_error = CUDA_ERROR_UNKNOWN;
        unmaps = 0;
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_ERROR_UNKNOWN);
        real.cuMemMap = map;
        real.cuMemUnmap = unmap;
}

static void an_extent_that_one_address_keeps_stays_at_all_of_them(void **state)
{
        for (unsigned n = 0; n < 4; n++) {
                make_handle();
                unmap_while_maps_fail(n);
                assert_int_equal(driver_mappings(), 3);
                assert_non_null(driver_word(AT + BYTES, 2));
                assert_non_null(driver_word(AT + 17 * BYTES, 1));
                assert_non_null(driver_word(AT + 33 * BYTES, 0));
                assert_int_equal(gpu->error, CUDA_SUCCESS);
                assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
                forget_handle();
        }
}

static void an_address_that_is_lost_ends_the_programs_work_on_its_gpu(void **state)
{
        make_handle();
        unmap_while_maps_fail(1000);
        assert_int_equal(gpu->error, CUDA_ERROR_UNKNOWN);
        gpu->error = CUDA_SUCCESS;
        assert_int_equal(driver_mappings(), 1);
        (void)real.cuMemUnmap(AT + BYTES, BYTES); /* the address that kept it */
        (void)extent_release(&extent);
        forget_handle();
}

/* ---- replacing memory ---- */

static void fill(CUdeviceptr at, uint64_t word)
{
        for (unsigned i = 0; i < 4; i++)
                *driver_word(at + i * PAGE, 2) = word + i;
}

static void check_filled(CUdeviceptr at, uint64_t word)
{
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(*driver_word(at + i * PAGE, 2), word + i);
}

static void replaced_memory_has_the_same_contents_and_can_be_exported(void **state)
{
        unsigned n;

        gpu->passes = true;
        gpu->peers = 1 << 0;
        for (n = 1;; n++) {
                CUmemGenericAllocationHandle before;
                int r;

                assert_int_equal(extent_map(gpu, &extent, driver_foreign(BYTES, 5)), CUDA_SUCCESS);
                fill(AT, 100 * n);
                before = extent.handle;
                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                r = extent_replace(gpu, &extent);
                check_filled(AT, 100 * n);
                assert_int_equal(driver.used, BYTES);
                assert_int_equal(driver_mappings(), 1);
                assert_int_equal(driver.reservations, 0);
                assert_int_equal(driver.streams, 0);
                assert_null(driver.current);
                assert_int_equal(driver_handle(AT), extent.handle);
                assert_int_equal(r, driver.failed ? -ENOMEM : 0);
                assert_int_equal(extent.adopted, r != 0);
                assert_int_equal(extent.handle == before, r != 0);
                assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
                if (!driver.failed)
                        break;
        }
        /* The calls: create, reserve, map, access, push, stream, copy, map, access. */
        assert_int_equal(n, 10);
        driver_fail(0, CUDA_SUCCESS);
        assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
        gpu->context = NULL;
        assert_int_equal(extent_replace(gpu, &extent), -ENOMEM);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
}

static void memory_mapped_aside_replaces_an_extents_memory(void **state)
{
        struct extent aside = {.address = AT + 64 * BYTES, .bytes = BYTES, .block = &block};

        assert_int_equal(extent_map_host(gpu, &extent), CUDA_SUCCESS);
        extent.adopted = true;
        gpu->peers = 1 << 1;
        assert_int_equal(extent_map(gpu, &aside, -EBADF), CUDA_SUCCESS);
        fill(aside.address, 7);
        assert_int_equal(extent_exchange(gpu, &extent, &aside), CUDA_SUCCESS);
        check_filled(AT, 7);
        assert_int_equal(extent.peers, 1 << 1);
        assert_non_null(driver_word(AT, 1));
        assert_false(extent.adopted);
        assert_int_equal(driver.host, 0);
        assert_int_equal(driver.used, BYTES);
        assert_int_equal(driver_mappings(), 1);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
}

static void a_failed_exchange_keeps_the_old_memory(void **state)
{
        for (unsigned n = 1; n <= 2; n++) {
                struct extent aside = {.address = AT + 64 * BYTES, .bytes = BYTES, .block = &block};

                driver_fail(0, CUDA_SUCCESS);
                assert_int_equal(extent_map(gpu, &extent, -EBADF), CUDA_SUCCESS);
                fill(AT, 3);
                assert_int_equal(extent_map_host(gpu, &aside), CUDA_SUCCESS);
                fill(aside.address, 7);
                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                assert_int_equal(extent_exchange(gpu, &extent, &aside), CUDA_ERROR_OUT_OF_MEMORY);
                check_filled(AT, 3);
                assert_int_equal(driver.host, 0);
                assert_int_equal(driver_mappings(), 1);
                assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        }
        driver_fail(0, CUDA_SUCCESS);
}

/* Exchanges the extent's memory while the next n maps fail. Peer 3 came after the extent's map. */
static CUresult exchange_while_maps_fail(unsigned n, CUresult error)
{
        struct extent aside = {.address = AT + 64 * BYTES, .bytes = BYTES, .block = &block};
        CUresult r;

        gpu->peers = 1 << 0;
        assert_int_equal(extent_map_host(gpu, &extent), CUDA_SUCCESS);
        fill(AT, 3);
        gpu->peers |= 1 << 3;
        assert_int_equal(extent_map(gpu, &aside, -EBADF), CUDA_SUCCESS);
        map = real.cuMemMap;
        real.cuMemMap = map_fails;
        maps_that_fail = n;
        map_error = error;
        r = extent_exchange(gpu, &extent, &aside);
        real.cuMemMap = map;
        assert_int_equal(driver.used, 0);
        assert_int_equal(driver.host, BYTES);
        assert_int_equal(extent.peers, 1 << 0);
        return r;
}

static void a_failed_exchange_keeps_the_gpus_that_reach_the_memory(void **state)
{
        assert_int_equal(exchange_while_maps_fail(1, CUDA_ERROR_OUT_OF_MEMORY),
                         CUDA_ERROR_OUT_OF_MEMORY);
        check_filled(AT, 3);
        for (unsigned g = 0; g < 4; g++)
                assert_int_equal(driver_word(AT, g) != NULL, g == 0 || g == 2);
        assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
}

static void an_exchange_puts_the_old_memory_back_although_that_fails_at_first(void **state)
{
        for (unsigned n = 2; n <= 3; n++) {
                assert_int_equal(exchange_while_maps_fail(n, CUDA_ERROR_OUT_OF_MEMORY),
                                 CUDA_ERROR_OUT_OF_MEMORY);
                check_filled(AT, 3);
                assert_int_equal(extent_unmap(gpu, &extent), CUDA_SUCCESS);
        }
}

static void lost_memory_ends_the_programs_work_on_its_gpu(void **state)
{
        gpu->error = CUDA_SUCCESS;
        assert_int_equal(exchange_while_maps_fail(9, CUDA_ERROR_UNKNOWN), CUDA_ERROR_UNKNOWN);
        assert_int_equal(gpu->error, CUDA_SUCCESS);
        check_filled(AT, 3);
        (void)extent_unmap(gpu, &extent);
        assert_int_equal(exchange_while_maps_fail(1000, CUDA_ERROR_OPERATING_SYSTEM),
                         CUDA_ERROR_OPERATING_SYSTEM);
        assert_int_equal(driver_mappings(), 0);
        assert_in_range(maps_that_fail, 1, 999); /* it has given up */
        assert_int_equal(gpu->error, CUDA_ERROR_OPERATING_SYSTEM);
        gpu->error = CUDA_SUCCESS;
        (void)extent_release(&extent);
}

#define EXTENT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                EXTENT_TEST(an_extent_is_created_on_its_gpu_and_mapped_for_it),
                EXTENT_TEST(other_gpus_reach_an_extent_only_if_its_gpu_allows_them),
                EXTENT_TEST(memory_is_created_for_all_abilities_of_the_card),
                EXTENT_TEST(managed_memory_is_neither_mapped_nor_handed_over),
                EXTENT_TEST(memory_of_a_special_kind_is_not_handed_over),
                EXTENT_TEST(memory_handed_over_is_adopted_and_its_descriptor_closed),
                EXTENT_TEST(host_memory_lies_on_the_gpus_node_if_possible),
                EXTENT_TEST(an_extent_is_mapped_wherever_the_program_mapped_its_handle),
                EXTENT_TEST(an_extent_that_its_gpu_cannot_write_is_copied_through_a_window),
                EXTENT_TEST(a_call_that_fails_leaves_nothing_behind),
                EXTENT_TEST(a_mapping_that_could_not_be_undone_goes_with_the_next_attempt),
                EXTENT_TEST(a_failed_window_leaves_no_mapping),
                EXTENT_TEST(an_extent_that_one_address_keeps_stays_at_all_of_them),
                EXTENT_TEST(an_address_that_is_lost_ends_the_programs_work_on_its_gpu),
                EXTENT_TEST(replaced_memory_has_the_same_contents_and_can_be_exported),
                EXTENT_TEST(memory_mapped_aside_replaces_an_extents_memory),
                EXTENT_TEST(a_failed_exchange_keeps_the_old_memory),
                EXTENT_TEST(a_failed_exchange_keeps_the_gpus_that_reach_the_memory),
                EXTENT_TEST(an_exchange_puts_the_old_memory_back_although_that_fails_at_first),
                EXTENT_TEST(lost_memory_ends_the_programs_work_on_its_gpu),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
