/* test_share.c: a program's own handles from creation to release, with a driver that has memory. A
 * handle that becomes unevictable keeps its contents, addresses and access; if that fails, nothing
 * changes. */
#include "unit.h"

#include <errno.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/hooks_virtual.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/state/virtual.h"
#include "preload/state/request.h"
#include "preload/pool/room.h"

#define PAGE   HEAP_GRANULARITY
#define EXTENT (2 * PAGE)
#define PAGES  5u
#define BYTES  (PAGES * PAGE) /* three extents, the last one half used */
#define FD     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define THEIRS UINT64_C(0x4321) /* a handle that the driver made */

static struct gpu *const gpu = &core.gpus[1];
static struct context context = {.handle = (CUcontext)(uintptr_t)0xc0};
static CUdeviceptr at[2]; /* the addresses at which the handle is mapped */
static CUmemGenericAllocationHandle name;
static struct handle *handle;
static bool no_back;
static unsigned grows, waits, passed_on;
static unsigned rooms; /* how often more room can be had */
static uint64_t asked;

/* ---- fakes of other modules ---- */

static void bring_in(void);

struct gate_thread *gate_enter_slow(struct gate_thread *t, CUstream stream, uint64_t work,
                                    bool may_end)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        assert_false(handle->block->held);
        gates++;
        bring_in(); /* the process has its turn now */
        return NULL;
}

bool room_grow(struct gpu *g, uint64_t more)
{
        asked = more;
        gpu_room += PAGE;
        return grows-- > 0;
}

bool hooks_more_room(struct gpu *g, uint64_t *room)
{
        assert_ptr_equal(g, gpu);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        return rooms && rooms--;
}

int swap_back_block(struct gpu *g, struct block *b)
{
        return no_back ? -ENOMEM : 0;
}

/* ---- the driver ---- */

static CUresult (*unmap_one)(CUdeviceptr at, size_t bytes);

/* Unmaps a range that may hold several mappings, or none. */
static CUresult unmap_range(CUdeviceptr from, size_t bytes)
{
        for (uint64_t i = 0, n; i < bytes; i += n) {
                CUmemGenericAllocationHandle h = driver_handle(from + i);

                for (n = PAGE; h && i + n < bytes && driver_handle(from + i + n) == h;)
                        n += PAGE;
                if (h)
                        (void)unmap_one(from + i, n);
        }
        return CUDA_SUCCESS;
}

static CUresult fake_count(int *ret)
{
        *ret = 3;
        return CUDA_SUCCESS;
}

static CUresult fake_can(int *ret, CUdevice from, CUdevice to)
{
        *ret = 1;
        return CUDA_SUCCESS;
}

static CUresult (*export_one)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                              unsigned long long);

/* Counts exports of names that are no handles of the fake driver. */
static CUresult export_any(void *ret, CUmemGenericAllocationHandle h,
                           CUmemAllocationHandleType type, unsigned long long flags)
{
        if (driver_prop(h))
                return export_one(ret, h, type, flags);
        passed_on++;
        return h == THEIRS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult release_any(CUmemGenericAllocationHandle h)
{
        passed_on++;
        return h == THEIRS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- the program ---- */

static CUmemAllocationProp prop_of(int device)
{
        return (CUmemAllocationProp){
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                .requestedHandleTypes = FD};
}

/* Backs every extent that has no memory, and maps it at each of the handle's addresses. */
static void bring_in(void)
{
        for (unsigned i = 0; i < handle->block->extent_count; i++) {
                struct extent *e = &handle->block->extents[i];

                if (e->state == EXTENT_RESIDENT)
                        continue;
                assert_int_equal(real.cuMemCreate(&e->handle, e->bytes, &handle->prop, 0), 0);
                extent_place_back(gpu, e);
                e->state = EXTENT_RESIDENT;
                gpu->heap.resident += e->bytes;
                gpu->heap.backed += e->bytes;
        }
}

static void write_words(void)
{
        for (unsigned i = 0; i < PAGES; i++)
                *driver_word(at[0] + i * PAGE, 1) = 100 + i;
}

/* Checks contents and access at both addresses. */
static void assert_as_it_was(void)
{
        for (unsigned i = 0; i < PAGES; i++) {
                for (unsigned device = 0; device < 3; device++) {
                        const uint64_t *first = driver_word(at[0] + i * PAGE, device),
                                       *second = driver_word(at[1] + i * PAGE, device);

                        assert_int_equal(first != NULL, device > 0);
                        assert_int_equal(second != NULL, device == 1);
                        if (first)
                                assert_int_equal(*first, 100 + i);
                        if (second)
                                assert_int_equal(*second, 100 + i);
                }
        }
}

static CUresult allow(CUdeviceptr where, int device)
{
        const CUmemAccessDesc desc = {
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

        return hook_cuMemSetAccess(where, BYTES, &desc, 1);
}

static int begin(void **state)
{
        const CUmemAllocationProp prop = prop_of(1);

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 3};
        real = (struct real_driver){0};
        driver_reset(GIB);
        driver.unlocked = true;
        driver.device = 1;
        unmap_one = real.cuMemUnmap;
        export_one = real.cuMemExportToShareableHandle;
        real.cuMemUnmap = unmap_range;
        real.cuMemExportToShareableHandle = export_any;
        real.cuDeviceGetCount = fake_count;
        real.cuDeviceCanAccessPeer = fake_can;
        gpu->index = 1;
        gpu->passes = true;
        gpu->context = &context;
        heap_init(&gpu->heap, GIB);
        gpu->heap.extent_bytes = EXTENT;
        no_back = anybody_inside = fake_capturing = false;
        unevictable_room = UINT64_MAX;
        quiesce_now = QUIESCE_DONE;
        more_rooms = 1;
        gates = grows = waits = passed_on = rooms = 0;
        gpu_room = UINT64_MAX;
        meanwhile = NULL;
        atomic_store(&gate_bits, 0);
        assert_int_equal(hook_cuMemCreate(&name, BYTES, &prop, 0), CUDA_SUCCESS);
        handle = virtual_find(name);
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(hook_cuMemAddressReserve(&at[i], BYTES, 0, 0, 0), CUDA_SUCCESS);
                assert_int_equal(hook_cuMemMap(at[i], BYTES, 0, name, 0), CUDA_SUCCESS);
                assert_int_equal(allow(at[i], 1), CUDA_SUCCESS);
        }
        assert_int_equal(allow(at[0], 2), CUDA_SUCCESS);
        return 0;
}

static int end(void **state)
{
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(hook_cuMemUnmap(at[i], BYTES), CUDA_SUCCESS);
                assert_int_equal(hook_cuMemAddressFree(at[i], BYTES), CUDA_SUCCESS);
        }
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
        assert_null(virtual_find(name));
        assert_int_equal(driver_handles() + driver_mappings(), 0);
        assert_int_equal(driver.streams + driver.reservations + driver.relaxed, 0);
        assert_null(driver.current);
        assert_int_equal(gpu->unevictable + gpu->unevictable_handles, 0);
        assert_int_equal(gpu->heap.allocated + gpu->heap.resident + gpu->heap.backed, 0);
        assert_int_equal(core.unbooked, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        free(gpu->heap.handles);
        return 0;
}

static CUresult fix(void)
{
        CUresult r;

        lock_acquire(&core_lock);
        r = handle_make_unevictable(handle);
        lock_release(&core_lock);
        assert_int_equal(core.unbooked, 0);
        return r;
}

static void assert_unevictable(void)
{
        assert_null(handle->block);
        assert_int_equal(handle->users, 0);
        assert_int_equal(driver_handle(at[0]), handle->unevictable);
        assert_int_equal(driver_handle(at[1] + BYTES - 1), handle->unevictable);
        assert_int_equal(driver_handles(), 1);
        assert_int_equal(driver_prop(handle->unevictable)->requestedHandleTypes, FD);
        assert_int_equal(gpu->unevictable, BYTES);
        assert_int_equal(gpu->unevictable_handles, BYTES);
        assert_int_equal(gpu->heap.allocated + gpu->heap.resident + gpu->heap.backed, 0);
}

/* ---- a handle becomes unevictable ---- */

static void a_handle_that_becomes_unevictable_keeps_address_and_contents(void **state)
{
        bring_in();
        write_words();
        request_kicks = 0;
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_unevictable();
        assert_as_it_was();
        assert_int_equal(request_kicks, 1);
        /* Threads may not submit until the memory is backed. */
        assert_true(atomic_load(&gate_bits) & GATE_UNBACKED);
        /* A second call succeeds without any effect. */
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_int_equal(gpu->unevictable, BYTES);
}

static void check_failures(unsigned in_a_row)
{
        CUresult r = CUDA_ERROR_UNKNOWN;
        unsigned n;

        bring_in();
        write_words();
        for (n = 1; r != CUDA_SUCCESS; n++) {
                assert_true(n < 40);
                driver.more = in_a_row - 1;
                driver_fail(n, CUDA_ERROR_OUT_OF_MEMORY);
                r = fix();
                driver_fail(0, CUDA_SUCCESS);
                driver.more = 0;
                assert_as_it_was();
                assert_int_equal(driver.reservations, 2);
                assert_int_equal(driver.streams, 0);
                if (r == CUDA_SUCCESS)
                        break;
                assert_int_equal(r, CUDA_ERROR_OUT_OF_MEMORY);
                assert_non_null(handle->block);
                assert_false(handle->block->held);
                assert_int_equal(driver_handles(), 3);
                assert_int_equal(gpu->heap.resident, BYTES);
                assert_int_equal(gpu->unevictable + gpu->unevictable_handles, 0);
        }
        assert_true(n > 10);
        assert_unevictable();
}

static void a_failure_leaves_the_handle_evictable_and_intact(void **state)
{
        check_failures(1);
}

static void failures_in_a_row_leave_the_handle_evictable_and_intact(void **state)
{
        check_failures(3);
}

static void contents_cannot_be_copied_without_a_context(void **state)
{
        bring_in();
        write_words();
        gpu->context = NULL;
        assert_int_equal(fix(), CUDA_ERROR_INVALID_CONTEXT);
        assert_as_it_was();
        assert_int_equal(driver_handles(), 3);
}

static void a_handle_without_contents_becomes_unevictable_at_once(void **state)
{
        gpu->context = NULL;
        quiesce_now = QUIESCE_BUSY; /* no context, so no work can use the memory */
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_unevictable();
        assert_int_equal(gates, 0);
        assert_int_equal(atomic_load(&gate_bits), 0);
        assert_non_null(driver_word(at[0], 2));
        assert_null(driver_word(at[1], 2));
}

static void a_card_that_is_full_for_a_moment_gets_room_for_the_memory(void **state)
{
        rooms = 1;
        driver_fail(1, CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_unevictable();
        assert_int_equal(rooms, 0);
}

static void evicted_extents_are_restored_before_the_copy(void **state)
{
        bring_in();
        write_words();
        handle->block->extents[1].state = EXTENT_EVICTED;
        extent_release(&handle->block->extents[1]);
        for (unsigned i = 0; i < 2; i++)
                (void)unmap_one(at[i] + EXTENT, EXTENT);
        gpu->heap.resident -= EXTENT;
        gpu->heap.backed -= EXTENT;
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_int_equal(gates, 1);
        assert_unevictable();
        assert_int_equal(*driver_word(at[1] + BYTES - PAGE, 1), 104);
}

static void a_handle_of_one_own_extent_needs_no_copy(void **state)
{
        const CUmemAllocationProp prop = prop_of(1);
        CUmemGenericAllocationHandle one;
        struct handle *was = handle;
        unsigned calls;

        assert_int_equal(hook_cuMemCreate(&one, PAGE, &prop, 0), CUDA_SUCCESS);
        handle = virtual_find(one);
        bring_in();
        calls = driver.calls;
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_int_equal(driver.calls, calls);
        assert_int_equal(gpu->unevictable_handles, PAGE);
        assert_int_equal(atomic_load(&gate_bits), 0);
        assert_int_equal(hook_cuMemRelease(one), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemCreate(&one, PAGE, &prop, 0), CUDA_SUCCESS);
        handle = virtual_find(one);
        bring_in();
        handle->block->extents[0].adopted = true; /* the driver does not export imported memory */
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_true(driver.calls > calls + 2);
        assert_int_equal(hook_cuMemRelease(one), CUDA_SUCCESS);
        handle = was;
}

static void a_handle_stays_evictable_without_room_for_it(void **state)
{
        unevictable_room = 0;
        assert_int_equal(fix(), CUDA_ERROR_OUT_OF_MEMORY);
        assert_non_null(handle->block);
        assert_false(handle->block->held);
        assert_int_equal(handle->users, 0);
}

static void end_the_work(const struct core_wait *w)
{
        if (++waits < 3)
                return;
        anybody_inside = false;
        quiesce_now = QUIESCE_DONE;
}

static void begin_a_capture(const struct core_wait *w)
{
        fake_capturing = true;
}

static void work_in_flight_ends_before_the_copy(void **state)
{
        bring_in();
        write_words();
        fake_capturing = true;
        assert_int_equal(fix(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        fake_capturing = false;
        quiesce_now = QUIESCE_BUSY;
        meanwhile = begin_a_capture;
        assert_int_equal(fix(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        fake_capturing = false;
        assert_int_equal(gpu->heap.resident, BYTES);
        assert_as_it_was();
        anybody_inside = true;
        meanwhile = end_the_work;
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_int_equal(waits, 3);
        assert_as_it_was();
}

static void a_small_handle_mapped_many_times_counts_as_everywhere(void **state)
{
        static const struct {
                unsigned places;
                bool everywhere;
        } cases[] = {{31, false}, {32, true}, {33, false}, {48, false},
                     {63, false}, {64, true}, {96, false}, {128, true}};
        struct handle h = {.bytes = 8 * MIB, .block = handle->block};

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                h.mapping_count = cases[i].places;
                assert_int_equal(handle_is_everywhere(&h), cases[i].everywhere);
        }
        h.bytes++;
        assert_false(handle_is_everywhere(&h));
        h.bytes--;
        /* A thread would have to wait for the other extents. */
        h.block->extents[0].state = EXTENT_RESIDENT;
        assert_false(handle_is_everywhere(&h));
        h.block->extents[0].state = EXTENT_UNBACKED;
        bring_in();
        assert_true(handle_is_everywhere(&h));
        h.block = NULL;
        assert_false(handle_is_everywhere(&h));
}

/* ---- exports ---- */

static void an_exported_handle_becomes_unevictable(void **state)
{
        CUmemGenericAllocationHandle imported;
        int fd = -1;

        bring_in();
        write_words();
        assert_int_equal(hook_cuMemExportToShareableHandle(&fd, name, FD, 0), CUDA_SUCCESS);
        assert_unevictable();
        assert_as_it_was();
        assert_int_equal(real.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, FD),
                         CUDA_SUCCESS);
        (void)close(fd);
        assert_int_equal(real.cuMemRelease(imported), CUDA_SUCCESS);
        assert_int_equal(passed_on, 0);
}

static void an_export_of_another_kind_than_at_creation_is_refused(void **state)
{
        int fd;

        assert_int_equal(hook_cuMemExportToShareableHandle(NULL, name, FD, 0),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemExportToShareableHandle(&fd, name, FD, 1),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemExportToShareableHandle(&fd, name, CU_MEM_HANDLE_TYPE_FABRIC, 0),
                         CUDA_ERROR_INVALID_VALUE);
        assert_non_null(handle->block);
        assert_int_equal(passed_on, 0);
}

static void handles_that_are_not_ours_go_to_the_driver(void **state)
{
        CUresult (*release)(CUmemGenericAllocationHandle) = real.cuMemRelease;
        int fd;

        assert_int_equal(hook_cuMemExportToShareableHandle(&fd, THEIRS, FD, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemExportToShareableHandle(&fd, name ^ 0x800, FD, 0),
                         CUDA_ERROR_INVALID_HANDLE);
        real.cuMemRelease = release_any;
        assert_int_equal(hook_cuMemRelease(THEIRS), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemRelease(name ^ 0x800), CUDA_ERROR_INVALID_HANDLE);
        atomic_store(&core.bystander, true);
        assert_int_equal(hook_cuMemRelease(name), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(hook_cuMemExportToShareableHandle(&fd, name, FD, 0),
                         CUDA_ERROR_INVALID_HANDLE);
        atomic_store(&core.bystander, false);
        real.cuMemRelease = release;
        assert_int_equal(passed_on, 6);
}

static CUresult bind(CUmemGenericAllocationHandle mc, size_t mc_offset,
                     CUmemGenericAllocationHandle h, size_t offset, size_t size,
                     unsigned long long flags)
{
        return CUDA_SUCCESS;
}

static void each_call_sets_the_library_up(void **state)
{
        const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
        CUmemAllocationProp prop = prop_of(1);
        unsigned long long flags;
        CUmemGenericAllocationHandle h;
        CUdeviceptr address;
        int fd;

        real.cuMulticastBindMem = bind;
        core_setups = 0;
        (void)hook_cuMemExportToShareableHandle(&fd, THEIRS, FD, 0);
        assert_int_equal(core_setups, 1);
        (void)hook_cuMulticastBindMem(1, 0, THEIRS, 0, 1, 0);
        assert_int_equal(core_setups, 2);
        (void)hook_cuMemCreate(&h, 1, &prop, 0);
        assert_int_equal(core_setups, 3);
        (void)hook_cuMemGetAllocationPropertiesFromHandle(&prop, name);
        assert_int_equal(core_setups, 4);
        (void)hook_cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)at[0]);
        assert_int_equal(core_setups, 5);
        (void)hook_cuMemRelease(h);
        assert_int_equal(core_setups, 6);
        (void)hook_cuMemAddressReserve(&address, PAGE, 0, 0, 0);
        assert_int_equal(core_setups, 7);
        (void)hook_cuMemAddressFree(address, PAGE);
        assert_int_equal(core_setups, 8);
        (void)hook_cuMemMap(at[0], 0, 0, name, 0);
        assert_int_equal(core_setups, 9);
        (void)hook_cuMemSetAccess(at[0], 0, NULL, 0);
        assert_int_equal(core_setups, 10);
        (void)hook_cuMemGetAccess(&flags, &here, at[0]);
        assert_int_equal(core_setups, 11);
        (void)hook_cuMemUnmap(at[0], 0);
        assert_int_equal(core_setups, 12);
}

/* ---- creation and release ---- */

static void a_handle_lives_while_it_is_retained_or_mapped(void **state)
{
        CUmemGenericAllocationHandle again = 0;
        void *const inside_it = (void *)(uintptr_t)(at[1] + BYTES - 1);

        bring_in();
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
        assert_ptr_equal(virtual_find(name), handle); /* the handle is still mapped */
        assert_int_equal(hook_cuMemRelease(name), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemRetainAllocationHandle(&again, inside_it), CUDA_SUCCESS);
        assert_int_equal(again, name);
        assert_int_equal(hook_cuMemRetainAllocationHandle(&again, inside_it), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemRelease(name), CUDA_SUCCESS);
        assert_int_equal(driver_handles(), 3);
}

static void a_reservation_with_mappings_is_not_freed(void **state)
{
        assert_int_equal(hook_cuMemAddressFree(at[0], BYTES), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemAddressFree(at[0], PAGE), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemAddressFree(at[0] + PAGE, BYTES - PAGE),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(driver.reservations, 2);
}

static void a_handles_properties_are_those_of_its_creation(void **state)
{
        CUmemAllocationProp prop = {0};

        handle->prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
        assert_int_equal(hook_cuMemGetAllocationPropertiesFromHandle(&prop, name), CUDA_SUCCESS);
        assert_int_equal(prop.requestedHandleTypes, FD);
        assert_int_equal(prop.location.id, 1);
        assert_int_equal(prop.allocFlags.usage, 0); /* the driver does not report it either */
        assert_int_equal(hook_cuMemGetAllocationPropertiesFromHandle(NULL, name),
                         CUDA_ERROR_INVALID_VALUE);
        handle->prop.allocFlags.usage = 0;
}

static void a_creation_requests_room_until_it_is_refused(void **state)
{
        const CUmemAllocationProp prop = prop_of(1);
        CUmemGenericAllocationHandle h = 7;

        gpu_room = BYTES;
        grows = 1;
        assert_int_equal(hook_cuMemCreate(&h, 2 * PAGE, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(h, 7);
        assert_int_equal(asked, 2 * PAGE);
        gpu_room = BYTES;
        grows = 2;
        assert_int_equal(hook_cuMemCreate(&h, 2 * PAGE, &prop, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemRelease(h), CUDA_SUCCESS);
        gpu->limit = UINT64_MAX; /* no daemon that could make room later */
        gpu_room = UINT64_MAX;
        no_back = true;
        h = 7;
        assert_int_equal(hook_cuMemCreate(&h, 2 * PAGE, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(h, 7);
        assert_int_equal(gpu->heap.allocated, BYTES);
}

static void memory_that_cannot_move_is_created_by_the_driver(void **state)
{
        CUmemAllocationProp prop = prop_of(1);
        CUmemGenericAllocationHandle h;
        unsigned i = 0;

        for (; i < 5; i++) {
                prop = prop_of(1);
                if (i == 0)
                        prop.location.id = 7; /* a card that we do not manage */
                else if (i == 1)
                        prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
                else if (i == 2)
                        prop.win32HandleMetaData = &prop;
                else if (i == 3)
                        prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
                else
                        gpu->error = CUDA_ERROR_ILLEGAL_ADDRESS;
                assert_int_equal(hook_cuMemCreate(&h, PAGE, &prop, 0), CUDA_SUCCESS);
                assert_null(virtual_find(h));
                assert_int_equal(hook_cuMemRelease(h), CUDA_SUCCESS);
        }
        gpu->error = CUDA_SUCCESS;
        prop = prop_of(1);
        assert_int_equal(hook_cuMemCreate(&h, 0, &prop, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemCreate(&h, PAGE + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(driver_handles(), 0);
}

static void the_driver_is_asked_once_about_a_new_kind_of_memory(void **state)
{
        CUmemAllocationProp prop = prop_of(1);
        CUmemGenericAllocationHandle h;
        unsigned calls = driver.calls;

        prop.allocFlags.gpuDirectRDMACapable = 1;
        driver_fail(1, CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(hook_cuMemCreate(&h, PAGE, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
        driver_fail(1, CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(hook_cuMemCreate(&h, PAGE, &prop, 0), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemRelease(h), CUDA_SUCCESS);
        driver_fail(0, CUDA_SUCCESS);
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(hook_cuMemCreate(&h, PAGE, &prop, 0), CUDA_SUCCESS);
                assert_non_null(virtual_find(h));
                assert_int_equal(hook_cuMemRelease(h), CUDA_SUCCESS);
                assert_int_equal(driver.calls, calls + 3);
        }
        heap_init(&core.gpus[2].heap, GIB);
        prop.location.id = 2;
        assert_int_equal(hook_cuMemCreate(&h, PAGE, &prop, 0), CUDA_SUCCESS);
        assert_int_equal(driver.calls, calls + 4);
        assert_int_equal(hook_cuMemRelease(h), CUDA_SUCCESS);
        assert_int_equal(driver_handles() + core.unbooked, 0);
        free(core.gpus[2].heap.handles);
}

static void the_driver_is_asked_each_time_about_kinds_beyond_eight(void **state)
{
        CUmemAllocationProp prop = prop_of(1);
        CUmemGenericAllocationHandle h;

        prop.allocFlags.gpuDirectRDMACapable = 1;
        for (unsigned i = 0; i < 3; i++)
                for (unsigned kind = 1; kind <= 20; kind++) {
                        unsigned calls = driver.calls;

                        prop.allocFlags.compressionType = (unsigned char)kind;
                        assert_int_equal(hook_cuMemCreate(&h, PAGE, &prop, 0), CUDA_SUCCESS);
                        assert_int_equal(hook_cuMemRelease(h), CUDA_SUCCESS);
                        /* Eight kinds are remembered, including those of other tests. */
                        if (kind > 8)
                                assert_int_equal(driver.calls, calls + 1);
                        else if (i > 0 && kind <= 6)
                                assert_int_equal(driver.calls, calls);
                }
}

static void put_it_back(const struct core_wait *w)
{
        waits++;
        lock_acquire(&core_lock);
        handle_put(handle);
        lock_release(&core_lock);
}

static void a_handle_has_one_user_at_a_time(void **state)
{
        lock_acquire(&core_lock);
        handle_take(handle);
        lock_release(&core_lock);
        meanwhile = put_it_back;
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_int_equal(waits, 1);
        assert_unevictable();
}

static void let_it_be(const struct core_wait *w)
{
        waits++;
        lock_acquire(&core_lock);
        handle->block->extents[2].busy = false;
        request_released();
        lock_release(&core_lock);
}

static void taking_a_handle_waits_for_moves_in_progress(void **state)
{
        handle->block->extents[2].busy = true;
        meanwhile = let_it_be;
        assert_int_equal(fix(), CUDA_SUCCESS);
        assert_int_equal(waits, 1);
}

static void releasing_a_handle_of_a_failed_card_leaves_its_memory(void **state)
{
        const CUmemAllocationProp prop = prop_of(1);
        CUmemGenericAllocationHandle h;
        struct block *lost;

        assert_int_equal(hook_cuMemCreate(&h, PAGE, &prop, 0), CUDA_SUCCESS);
        lost = virtual_find(h)->block;
        lost->dying = true;
        assert_int_equal(hook_cuMemRelease(h), CUDA_SUCCESS);
        assert_null(virtual_find(h));
        assert_null(lost->handle);
        assert_int_equal(gpu->heap.allocated, BYTES + PAGE);
        heap_bury(&gpu->heap, lost);
}

#define SHARE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                SHARE_TEST(a_handle_that_becomes_unevictable_keeps_address_and_contents),
                SHARE_TEST(a_failure_leaves_the_handle_evictable_and_intact),
                SHARE_TEST(failures_in_a_row_leave_the_handle_evictable_and_intact),
                SHARE_TEST(contents_cannot_be_copied_without_a_context),
                SHARE_TEST(a_handle_without_contents_becomes_unevictable_at_once),
                SHARE_TEST(a_card_that_is_full_for_a_moment_gets_room_for_the_memory),
                SHARE_TEST(evicted_extents_are_restored_before_the_copy),
                SHARE_TEST(a_handle_of_one_own_extent_needs_no_copy),
                SHARE_TEST(a_handle_stays_evictable_without_room_for_it),
                SHARE_TEST(work_in_flight_ends_before_the_copy),
                SHARE_TEST(a_small_handle_mapped_many_times_counts_as_everywhere),
                SHARE_TEST(an_exported_handle_becomes_unevictable),
                SHARE_TEST(an_export_of_another_kind_than_at_creation_is_refused),
                SHARE_TEST(handles_that_are_not_ours_go_to_the_driver),
                SHARE_TEST(each_call_sets_the_library_up),
                SHARE_TEST(a_handle_lives_while_it_is_retained_or_mapped),
                SHARE_TEST(a_reservation_with_mappings_is_not_freed),
                SHARE_TEST(a_handles_properties_are_those_of_its_creation),
                SHARE_TEST(a_creation_requests_room_until_it_is_refused),
                SHARE_TEST(memory_that_cannot_move_is_created_by_the_driver),
                SHARE_TEST(the_driver_is_asked_once_about_a_new_kind_of_memory),
                SHARE_TEST(the_driver_is_asked_each_time_about_kinds_beyond_eight),
                SHARE_TEST(a_handle_has_one_user_at_a_time),
                SHARE_TEST(taking_a_handle_waits_for_moves_in_progress),
                SHARE_TEST(releasing_a_handle_of_a_failed_card_leaves_its_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
