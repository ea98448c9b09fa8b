/* test_mapping.c: a program maps its own handles, sets access to them and asks about them, with the
 * same results whether their memory is on the card or evicted. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/hooks/hooks.h"
#include "preload/hooks/hooks_virtual.h"
#include "preload/state/virtual.h"

#define AT      UINT64_C(0x7000000000) /* addresses that the program has reserved */
#define ROOM    (64 * MIB)
#define BYTES   (12 * MIB) /* size of the handle: three extents, the second one evicted */
#define EXTENT  (4 * MIB)
#define HEAP    UINT64_C(0x6000000000) /* addresses that the heap has reserved */
#define DRIVERS UINT64_C(0x77)         /* a handle that the driver made */
#define RW      CU_MEM_ACCESS_FLAGS_PROT_READWRITE
#define READ    CU_MEM_ACCESS_FLAGS_PROT_READ
#define NONE    CU_MEM_ACCESS_FLAGS_PROT_NONE

static struct gpu *const gpu = &core.gpus[1];
static struct handle *handle;
static char calls[1024]; /* calls of the driver: name, MiB from AT + size in MiB */
static unsigned failing; /* the driver call with this number fails; 0: none */
static unsigned number, taken, unevictable, current;
static bool everywhere, cannot_reach;
static CUresult no_context;
static void (*while_taking)(void);

/* ---- fakes of other modules ---- */

bool core_holds(CUdeviceptr address, uint64_t bytes)
{
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        return address + bytes > HEAP && address < HEAP + ROOM;
}

void handle_take(struct handle *h)
{
        void (*other)(void) = while_taking;

        assert_ptr_equal(h, handle);
        taken++;
        while_taking = NULL;
        if (other)
                other();
}

void handle_put(struct handle *h)
{
        assert_int_not_equal(atomic_load(&core_lock.word), 0);
        assert_int_equal(taken--, 1);
}

bool handle_is_everywhere(const struct handle *h)
{
        return everywhere;
}

CUresult handle_make_unevictable(struct handle *h)
{
        assert_int_equal(taken, 0);
        unevictable++;
        return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- the driver ---- */

static CUresult called(const char *what, CUdeviceptr at, uint64_t bytes, uint64_t detail)
{
        size_t used = strlen(calls);

        assert_int_equal(atomic_load(&core_lock.word), 0);
        (void)snprintf(calls + used, sizeof(calls) - used, "%s%s %d+%d", used ? ", " : "", what,
                       (int)((at - AT) / MIB), (int)(bytes / MIB));
        used = strlen(calls);
        if (detail)
                (void)snprintf(calls + used, sizeof(calls) - used, " %d", (int)detail);
        return ++number == failing ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle h, unsigned long long flags)
{
        assert_int_equal(offset + flags, 0);
        return called("map", at, bytes, h);
}

static CUresult fake_unmap(CUdeviceptr at, size_t bytes)
{
        return called("unmap", at, bytes, 0);
}

static CUresult fake_set(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
        return called("access", at, bytes, count);
}

static CUresult fake_get(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr at)
{
        return called("get", at, 0, 0);
}

static CUresult fake_count(int *ret)
{
        *ret = 3;
        return CUDA_SUCCESS;
}

static CUresult fake_can(int *ret, CUdevice from, CUdevice to)
{
        assert_int_not_equal(from, to);
        assert_int_equal(to, 1);
        *ret = !cannot_reach;
        return CUDA_SUCCESS;
}

static CUresult fake_device(CUdevice *ret)
{
        *ret = (CUdevice)current;
        return no_context;
}

static CUstreamCaptureMode capture_mode;
static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        CUstreamCaptureMode was = capture_mode;

        capture_mode = *mode;
        *mode = was;
        return CUDA_SUCCESS;
}

#define assert_calls(expected)                        \
        do {                                          \
                assert_string_equal(calls, expected); \
                calls[0] = '\0';                      \
        } while (0)

static int begin(void **state)
{
        const CUmemAllocationProp prop = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};

        core_lock = (struct lock){0};

        core = (struct core){.gpu_count = 3};
        gpu->index = 1;
        heap_init(&gpu->heap, GIB);
        gpu->heap.extent_bytes = EXTENT;
        calls[0] = '\0';
        failing = number = taken = unevictable = 0;
        current = 1;
        everywhere = cannot_reach = false;
        no_context = CUDA_SUCCESS;
        while_taking = NULL;
        real = (struct real_driver){.cuMemMap = fake_map,
                                    .cuMemUnmap = fake_unmap,
                                    .cuMemSetAccess = fake_set,
                                    .cuMemGetAccess = fake_get,
                                    .cuDeviceGetCount = fake_count,
                                    .cuDeviceCanAccessPeer = fake_can,
                                    .cuCtxGetDevice = fake_device,
                                    .cuThreadExchangeStreamCaptureMode = fake_relax};
        handle = virtual_create(gpu, &prop, BYTES);
        assert_int_equal(heap_create(&gpu->heap, BYTES, handle, UINT64_MAX, &handle->block), 0);
        for (unsigned i = 0; i < 3; i++) {
                handle->block->extents[i].state = i == 1 ? EXTENT_EVICTED : EXTENT_RESIDENT;
                handle->block->extents[i].handle = 10 + i;
        }
        assert_int_equal(virtual_reserve(AT, ROOM / 2), 0);
        assert_int_equal(virtual_reserve(AT + ROOM / 2, ROOM / 2), 0);
        return 0;
}

static int end(void **state)
{
        struct mapping *m;

        atomic_store(&core.bystander, false);
        while ((m = virtual_from(0)))
                virtual_unmap(m);
        virtual_unreserve(AT);
        virtual_unreserve(AT + ROOM / 2);
        if (handle->block)
                heap_bury(&gpu->heap, handle->block);
        free(gpu->heap.handles);
        virtual_forget(handle);
        free(handle);
        assert_int_equal(taken, 0);
        assert_int_equal(capture_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        return 0;
}

static CUresult map_at(uint64_t mib)
{
        return hook_cuMemMap(AT + mib * MIB, BYTES, 0, handle->name, 0);
}

static CUresult unmap_at(uint64_t mib, uint64_t bytes)
{
        return hook_cuMemUnmap(AT + mib * MIB, bytes * MIB);
}

static void mapped(uint64_t mib)
{
        assert_int_equal(map_at(mib), CUDA_SUCCESS);
        calls[0] = '\0';
}

/* Makes the handle unevictable: the driver owns its memory. */
static void become_unevictable(void)
{
        heap_bury(&gpu->heap, handle->block);
        handle->block = NULL;
        handle->unevictable = 99;
}

static void evict_all(void)
{
        for (unsigned i = 0; i < 3; i++)
                handle->block->extents[i].state = EXTENT_EVICTED;
}

/* ---- mapping ---- */

static void resident_extents_are_mapped_at_the_right_offsets(void **state)
{
        assert_int_equal(map_at(16), CUDA_SUCCESS);
        assert_calls("map 16+4 10, map 24+4 12");
        assert_ptr_equal(virtual_at(AT + 16 * MIB)->handle, handle);
        assert_ptr_equal(virtual_at(AT + 28 * MIB - 1), virtual_at(AT + 16 * MIB));
        assert_null(virtual_at(AT + 28 * MIB));
        evict_all();
        assert_int_equal(map_at(28), CUDA_SUCCESS);
        assert_calls("");
        assert_non_null(virtual_at(AT + 28 * MIB));
        /* The new mapping ends where the first one begins. */
        assert_int_equal(map_at(4), CUDA_SUCCESS);
        assert_int_equal(unevictable, 0);
}

static void invalid_mappings_are_refused(void **state)
{
        const CUmemGenericAllocationHandle h = handle->name;

        assert_int_equal(hook_cuMemMap(AT, BYTES, 0, h, 1), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemMap(AT, 0, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemMap(AT + MIB, BYTES, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemMap(AT, BYTES - EXTENT, 0, h, 0), CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(hook_cuMemMap(AT, BYTES, EXTENT, h, 0), CUDA_ERROR_NOT_SUPPORTED);
        /* The end of this range is not reserved. */
        assert_int_equal(map_at(ROOM / MIB - 10), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
        assert_null(virtual_from(0));
        mapped(16);
        assert_int_equal(map_at(6), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(map_at(26), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(map_at(16), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
        assert_int_equal(handle->mapping_count, 1);
        assert_int_equal(unevictable, 0);
}

static void a_failed_mapping_leaves_nothing_mapped(void **state)
{
        failing = 2;
        assert_int_equal(map_at(0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_calls("map 0+4 10, map 8+4 12, unmap 0+12");
        assert_null(virtual_from(0));
        become_unevictable();
        number = 1;
        assert_int_equal(map_at(0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_calls("map 0+12 99");
        assert_null(virtual_from(0));
        assert_int_equal(map_at(0), CUDA_SUCCESS);
        assert_calls("map 0+12 99");
}

static void a_handle_mapped_everywhere_becomes_unevictable(void **state)
{
        everywhere = true;
        failing = 1;
        assert_int_equal(map_at(0), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(unevictable, 0);
        assert_int_equal(map_at(0), CUDA_SUCCESS); /* maps even if it cannot be made unevictable */
        assert_int_equal(unevictable, 1);
}

static CUresult map_drivers(uint64_t mib)
{
        return hook_cuMemMap(AT + mib * MIB, BYTES, 0, DRIVERS, 0);
}

static void handles_of_the_driver_are_mapped_beside_ours(void **state)
{
        mapped(16);
        assert_int_equal(map_drivers(6), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(map_drivers(27), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemMap(HEAP, BYTES, 0, DRIVERS, 0), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
        assert_int_equal(map_drivers(28), CUDA_SUCCESS);
        assert_int_equal(map_drivers(4), CUDA_SUCCESS);
        assert_calls("map 28+12 119, map 4+12 119");
        assert_null(virtual_at(AT + 28 * MIB)->handle);
        assert_int_equal(map_at(40), CUDA_SUCCESS);
        assert_int_equal(map_at(30), CUDA_ERROR_INVALID_VALUE);
        calls[0] = '\0';
        failing = number + 1;
        /* The driver, and not we, reports that its own handle is mapped there already. */
        assert_int_equal(map_drivers(28), CUDA_ERROR_OUT_OF_MEMORY);
        assert_calls("map 28+12 119");
        failing = number + 1;
        assert_int_equal(map_drivers(52), CUDA_ERROR_OUT_OF_MEMORY);
        assert_null(virtual_at(AT + 52 * MIB));
}

static void a_bystander_leaves_all_mappings_to_the_driver(void **state)
{
        atomic_store(&core.bystander, true);
        assert_int_equal(map_drivers(0), CUDA_SUCCESS);
        assert_int_equal(unmap_at(0, 12), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemSetAccess(AT, BYTES, NULL, 5), CUDA_SUCCESS);
        assert_calls("map 0+12 119, unmap 0+12, access 0+12 5");
        assert_int_equal(map_at(0), CUDA_SUCCESS);
        assert_calls("map 0+12"); /* the driver got the handle, not the heap */
        assert_null(virtual_from(0));
}

/* ---- unmapping ---- */

static void only_whole_mappings_are_unmapped(void **state)
{
        mapped(4);
        mapped(16);
        assert_int_equal(unmap_at(4, 11), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(unmap_at(5, 11), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(unmap_at(4, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(unmap_at(0, 17), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
        assert_int_equal(handle->mapping_count, 2);
        assert_int_equal(unmap_at(4, 12), CUDA_SUCCESS);
        assert_calls("unmap 4+12");
        mapped(0);
        assert_int_equal(unmap_at(0, 40), CUDA_SUCCESS); /* the range has gaps */
        assert_calls("unmap 0+12, unmap 16+12");
        assert_null(virtual_from(0));
        assert_int_equal(unmap_at(0, 40), CUDA_SUCCESS);
        assert_calls("");
}

static void evicted_memory_is_not_unmapped_from_the_card(void **state)
{
        mapped(0);
        evict_all();
        assert_int_equal(unmap_at(0, 12), CUDA_SUCCESS);
        assert_calls("");
        assert_null(virtual_from(0));
        handle->block->extents[2].state = EXTENT_RESIDENT;
        mapped(0);
        assert_int_equal(unmap_at(0, 12), CUDA_SUCCESS);
        assert_calls("unmap 0+12");
        become_unevictable();
        mapped(0);
        assert_int_equal(unmap_at(0, 12), CUDA_SUCCESS);
        assert_calls("unmap 0+12");
}

static void unmapping_stops_at_an_error_of_the_driver(void **state)
{
        mapped(0);
        mapped(12);
        failing = number + 1;
        assert_int_equal(unmap_at(0, 24), CUDA_ERROR_OUT_OF_MEMORY);
        assert_calls("unmap 0+12");
        assert_non_null(virtual_at(AT + 12 * MIB));
}

static void the_driver_unmaps_its_own_handles(void **state)
{
        assert_int_equal(map_drivers(0), CUDA_SUCCESS);
        assert_int_equal(unmap_at(0, 12), CUDA_SUCCESS);
        assert_calls("map 0+12 119, unmap 0+12");
        assert_null(virtual_from(0));
        assert_int_equal(unmap_at(ROOM / MIB, 12), CUDA_SUCCESS); /* reserved by the driver alone */
        assert_calls("unmap 64+12");
        assert_int_equal(hook_cuMemUnmap(HEAP, MIB), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
}

static void unmap_first(void)
{
        virtual_unmap(virtual_from(0));
}

static void a_mapping_that_another_thread_removes_is_unmapped_once(void **state)
{
        const CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                      .flags = RW};

        mapped(0);
        while_taking = unmap_first;
        assert_int_equal(unmap_at(0, 12), CUDA_SUCCESS);
        assert_calls("");
        mapped(0);
        while_taking = unmap_first;
        assert_int_equal(hook_cuMemSetAccess(AT, BYTES, &desc, 1), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
}

/* ---- access ---- */

static CUmemAccessDesc access_of(CUmemLocationType type, int id, unsigned flags)
{
        return (CUmemAccessDesc){.location = {.type = type, .id = id},
                                 .flags = (CUmemAccess_flags)flags};
}

static CUresult allow_at(uint64_t mib, uint64_t bytes, CUmemAccessDesc desc)
{
        return hook_cuMemSetAccess(AT + mib * MIB, bytes * MIB, &desc, 1);
}

static CUresult allow(CUmemLocationType type, int id, unsigned flags)
{
        return allow_at(0, 12, access_of(type, id, flags));
}

static void access_is_set_for_resident_extents_and_kept_for_evicted_ones(void **state)
{
        const CUmemAccessDesc mine = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, RW);
        const CUmemAccessDesc both[] = {access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, NONE),
                                        access_of(CU_MEM_LOCATION_TYPE_DEVICE, 2, READ)};

        mapped(0);
        assert_int_equal(allow_at(0, 12, mine), CUDA_SUCCESS);
        assert_calls("access 0+4 1, access 8+4 1");
        assert_int_equal(virtual_at(AT)->access[1], RW);
        handle->block->extents[1].state = EXTENT_RESIDENT;
        assert_int_equal(hook_cuMemSetAccess(AT, BYTES, both, 2), CUDA_SUCCESS);
        assert_calls("access 0+12 2"); /* adjacent extents in one call */
        assert_int_equal(virtual_at(AT)->access[1], NONE);
        assert_int_equal(virtual_at(AT)->access[2], READ);
        evict_all();
        assert_int_equal(allow_at(0, 12, mine), CUDA_SUCCESS);
        assert_calls("");
        assert_int_equal(virtual_at(AT)->access[1], RW);
        mapped(12);
        handle->block->extents[0].state = EXTENT_RESIDENT;
        assert_int_equal(allow_at(0, 24, mine), CUDA_SUCCESS);
        assert_calls("access 0+4 1, access 12+4 1");
}

static void access_that_the_driver_refuses_is_not_kept(void **state)
{
        mapped(0);
        failing = number + 2;
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 1, RW), CUDA_ERROR_OUT_OF_MEMORY);
        assert_calls("access 0+4 1, access 8+4 1");
        assert_int_equal(virtual_at(AT)->access[1], NONE);
        failing = number + 1;
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 1, RW), CUDA_ERROR_OUT_OF_MEMORY);
        assert_calls("access 0+4 1");
}

static void access_is_set_only_for_whole_mappings(void **state)
{
        const CUmemAccessDesc mine = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 1, RW);

        mapped(0);
        mapped(16);
        assert_int_equal(allow_at(0, 8, mine), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow_at(4, 8, mine), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow_at(0, 28, mine), CUDA_ERROR_INVALID_VALUE); /* across a gap */
        assert_int_equal(allow_at(0, 0, mine), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow_at(40, 12, mine), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemSetAccess(AT, BYTES, NULL, 1), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuMemSetAccess(AT, BYTES, &mine, 0), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
}

static void access_is_refused_with_the_drivers_error_codes(void **state)
{
        mapped(0);
        evict_all(); /* the driver has no mapping to check the call against */
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_HOST, 0, NONE), CUDA_SUCCESS);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, NONE), CUDA_SUCCESS);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_HOST, 0, RW), CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, READ), CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_INVALID, 0, RW), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, -1, RW), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 3, RW), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 1, 2), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 1, READ), CUDA_SUCCESS);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 1, NONE), CUDA_SUCCESS);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 0, RW), CUDA_SUCCESS);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 2, RW), CUDA_SUCCESS);
        cannot_reach = true;
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 0, RW), CUDA_ERROR_INVALID_DEVICE);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 1, RW), CUDA_SUCCESS);
        assert_calls("");
}

static void the_driver_sets_access_to_its_own_handles(void **state)
{
        const CUmemAccessDesc mine = access_of(CU_MEM_LOCATION_TYPE_DEVICE, 9, RW);

        assert_int_equal(map_drivers(0), CUDA_SUCCESS);
        become_unevictable();
        mapped(12);
        assert_int_equal(allow_at(0, 24, mine), CUDA_SUCCESS);
        assert_calls("access 0+12 1, access 12+12 1");
        assert_int_equal(allow_at(ROOM / MIB, 12, mine), CUDA_SUCCESS);
        assert_calls("access 64+12 1");
        assert_int_equal(hook_cuMemSetAccess(HEAP, MIB, &mine, 1), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
}

/* ---- queries ---- */

static CUresult access_there(CUmemLocationType type, int id, unsigned long long *ret)
{
        const CUmemLocation l = {.type = type, .id = id};

        *ret = 77;
        return hook_cuMemGetAccess(ret, &l, AT);
}

static void queries_return_the_access_that_was_set(void **state)
{
        const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
        unsigned long long flags;

        mapped(0);
        evict_all();
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 0, READ), CUDA_SUCCESS);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 2, RW), CUDA_SUCCESS);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_DEVICE, 2, &flags), CUDA_SUCCESS);
        assert_int_equal(flags, RW);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_DEVICE, 0, &flags), CUDA_SUCCESS);
        assert_int_equal(flags, READ);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_HOST, 0, &flags), CUDA_SUCCESS);
        assert_int_equal(flags, READ); /* the access of the first card */
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, &flags), CUDA_SUCCESS);
        assert_int_equal(flags, NONE);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_INVALID, 0, &flags),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0, &flags),
                         CUDA_ERROR_INVALID_DEVICE);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_DEVICE, -1, &flags),
                         CUDA_ERROR_INVALID_DEVICE);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_DEVICE, 3, &flags),
                         CUDA_ERROR_INVALID_DEVICE);
        assert_int_equal(flags, 77);
        assert_calls("");
        assert_int_equal(hook_cuMemGetAccess(NULL, &here, AT), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemGetAccess(&flags, NULL, AT), CUDA_SUCCESS);
        assert_int_equal(hook_cuMemGetAccess(&flags, &here, AT + 12 * MIB), CUDA_SUCCESS);
        assert_calls("get 0+0, get 0+0, get 12+0");
        assert_int_equal(hook_cuMemGetAccess(&flags, &here, HEAP), CUDA_ERROR_INVALID_VALUE);
        assert_calls("");
        assert_int_equal(hook_cuMemGetAccess(&flags, &here, HEAP - 1), CUDA_SUCCESS);
        calls[0] = '\0';
        atomic_store(&core.bystander, true);
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_DEVICE, 2, &flags), CUDA_SUCCESS);
        assert_calls("get 0+0");
        atomic_store(&core.bystander, false);
        become_unevictable();
        assert_int_equal(access_there(CU_MEM_LOCATION_TYPE_DEVICE, 2, &flags), CUDA_SUCCESS);
        assert_calls("get 0+0");
}

static CUresult attribute(CUpointer_attribute which, CUdeviceptr at, uint64_t *ret)
{
        *ret = 0;
        return virtual_attribute(ret, which, at);
}

static uint64_t value(CUpointer_attribute which)
{
        uint64_t answer;

        assert_int_equal(attribute(which, AT + 40 * MIB + 5, &answer), CUDA_SUCCESS);
        return answer;
}

static void pointer_attributes_describe_the_handle_and_its_mapping(void **state)
{
        uint64_t answer, id;

        mapped(4);
        mapped(36);
        evict_all();
        id = value(CU_POINTER_ATTRIBUTE_BUFFER_ID);
        assert_int_equal(id, virtual_at(AT + 36 * MIB)->id);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID), handle->id);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_CONTEXT), 0);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 0);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_IS_MANAGED), 0);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), AT + ROOM / 2);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_RANGE_SIZE), ROOM / 2);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_MAPPED), 1);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR), AT + 36 * MIB);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_MAPPING_SIZE), BYTES);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE), 0);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES), 0);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE), 0);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE), 0);
        handle->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        handle->prop.allocFlags.gpuDirectRDMACapable = 1;
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES),
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE), 1);
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE), 0);
        handle->prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
        assert_int_equal(value(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE), 1);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_HOST_POINTER, AT + 36 * MIB, &answer),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_P2P_TOKENS, AT + 36 * MIB, &answer),
                         CUDA_ERROR_NOT_SUPPORTED);
}

static void a_device_pointer_is_returned_only_for_accessible_memory(void **state)
{
        const CUdeviceptr at = AT + 5;
        uint64_t answer;

        mapped(0);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at, &answer),
                         CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(allow(CU_MEM_LOCATION_TYPE_DEVICE, 2, READ), CUDA_SUCCESS);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at, &answer),
                         CUDA_ERROR_INVALID_VALUE);
        current = 2;
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at, &answer), CUDA_SUCCESS);
        assert_int_equal(answer, at);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at, &answer), CUDA_SUCCESS);
        assert_int_equal(answer, READ);
}

static void queries_about_other_addresses_go_to_the_driver(void **state)
{
        CUdeviceptr base = 1;
        size_t bytes = 1;
        uint64_t answer;

        mapped(0);
        assert_int_equal(map_drivers(12), CUDA_SUCCESS);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, AT + 12 * MIB, &answer),
                         CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, AT + 24 * MIB, &answer),
                         CUDA_ERROR_NOT_SUPPORTED);
        assert_false(virtual_range(AT + 12 * MIB, &base, &bytes));
        assert_false(virtual_range(AT + 24 * MIB, &base, &bytes));
        assert_int_equal(base + bytes, 2);
        assert_true(virtual_range(AT + 12 * MIB - 1, &base, &bytes));
        assert_int_equal(base, AT);
        assert_int_equal(bytes, BYTES);
        assert_true(virtual_range(AT, NULL, NULL));
        no_context = CUDA_ERROR_INVALID_CONTEXT;
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, AT, &answer),
                         CUDA_ERROR_NOT_SUPPORTED);
        no_context = CUDA_SUCCESS;
        current = GPUS_MAX;
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, AT, &answer),
                         CUDA_ERROR_NOT_SUPPORTED);
        current = 1;
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, AT, &answer), CUDA_SUCCESS);
        atomic_store(&core.bystander, true);
        assert_int_equal(attribute(CU_POINTER_ATTRIBUTE_MAPPED, AT, &answer),
                         CUDA_ERROR_NOT_SUPPORTED);
        atomic_store(&core.bystander, false);
        become_unevictable();
        assert_false(virtual_range(AT, NULL, NULL));
}

#define MAPPING_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                MAPPING_TEST(resident_extents_are_mapped_at_the_right_offsets),
                MAPPING_TEST(invalid_mappings_are_refused),
                MAPPING_TEST(a_failed_mapping_leaves_nothing_mapped),
                MAPPING_TEST(a_handle_mapped_everywhere_becomes_unevictable),
                MAPPING_TEST(handles_of_the_driver_are_mapped_beside_ours),
                MAPPING_TEST(a_bystander_leaves_all_mappings_to_the_driver),
                MAPPING_TEST(only_whole_mappings_are_unmapped),
                MAPPING_TEST(evicted_memory_is_not_unmapped_from_the_card),
                MAPPING_TEST(unmapping_stops_at_an_error_of_the_driver),
                MAPPING_TEST(the_driver_unmaps_its_own_handles),
                MAPPING_TEST(a_mapping_that_another_thread_removes_is_unmapped_once),
                MAPPING_TEST(access_is_set_for_resident_extents_and_kept_for_evicted_ones),
                MAPPING_TEST(access_that_the_driver_refuses_is_not_kept),
                MAPPING_TEST(access_is_set_only_for_whole_mappings),
                MAPPING_TEST(access_is_refused_with_the_drivers_error_codes),
                MAPPING_TEST(the_driver_sets_access_to_its_own_handles),
                MAPPING_TEST(queries_return_the_access_that_was_set),
                MAPPING_TEST(pointer_attributes_describe_the_handle_and_its_mapping),
                MAPPING_TEST(a_device_pointer_is_returned_only_for_accessible_memory),
                MAPPING_TEST(queries_about_other_addresses_go_to_the_driver),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
