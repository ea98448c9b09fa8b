/* test_virtual.c: the accounts of addresses, handles and mappings of a program: a name is found
 * while it is valid and never afterwards, and tables stay complete and in order. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "preload/state/virtual.h"

#define PAGE HEAP_GRANULARITY
#define MANY 5000u

static struct gpu gpu = {.index = 1};
static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};

static struct handle *handle_new(void)
{
        struct handle *h = virtual_create(&gpu, &prop, PAGE);

        assert_non_null(h);
        return h;
}

static void handle_delete(struct handle *h)
{
        virtual_forget(h);
        free(h);
}

static CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
        return (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, device}, .flags = flags};
}

static void a_name_is_valid_for_one_handle_alone(void **state)
{
        CUmemGenericAllocationHandle first, again;
        struct handle *h = handle_new();

        first = h->name;
        assert_ptr_equal(virtual_find(first), h);
        handle_delete(h);
        assert_null(virtual_find(first));
        assert_true(virtual_drivers(first) == 0);
        assert_true(virtual_drivers((uintptr_t)h) == (uintptr_t)h);
        h = handle_new();
        again = h->name;
        assert_true(again != first);
        assert_null(virtual_find(first));
        assert_ptr_equal(virtual_find(again), h);
        assert_null(virtual_find(0));
        assert_null(virtual_find(UINT64_MAX));
        assert_null(virtual_find((uintptr_t)h));
        handle_delete(h);
}

/* The driver's own handles are addresses of this process. */
static void a_name_is_no_address(void **state)
{
        struct handle *h = handle_new();

        assert_true(h->name >> 47 != 0);
        assert_true(h->name >> 47 != UINT64_MAX >> 47);
        handle_delete(h);
}

static void many_names_are_all_different(void **state)
{
        static struct handle *h[MANY];

        for (unsigned i = 0; i < MANY; i++)
                h[i] = handle_new();
        for (unsigned i = 0; i < MANY; i += 2)
                handle_delete(h[i]);
        for (unsigned i = 0; i < MANY; i += 2)
                h[i] = handle_new();
        for (unsigned i = 0; i < MANY; i++)
                assert_ptr_equal(virtual_find(h[i]->name), h[i]);
        for (unsigned i = 0; i < MANY; i++)
                handle_delete(h[i]);
}

static void adjacent_reservations_are_one_range(void **state)
{
        const CUdeviceptr at = 64 * PAGE;

        assert_int_equal(virtual_reserve(at + 4 * PAGE, 4 * PAGE), 0);
        assert_int_equal(virtual_reserve(at, 4 * PAGE), 0);
        assert_int_equal(virtual_reserve(at + 9 * PAGE, PAGE), 0);
        assert_true(virtual_reserved(at, 8 * PAGE));
        assert_true(virtual_reserved(at + 3 * PAGE, 2 * PAGE));
        assert_false(virtual_reserved(at, 9 * PAGE));
        assert_false(virtual_reserved(at - PAGE, 2 * PAGE));
        assert_false(virtual_reserved(at + 8 * PAGE, PAGE));
        assert_false(virtual_reserved(at, PAGE - at)); /* past the end of the address space */
        assert_true(virtual_reservation(at + 5 * PAGE)->address == at + 4 * PAGE);
        virtual_unreserve(at);
        assert_null(virtual_reservation(at));
        assert_false(virtual_reserved(at + 3 * PAGE, 2 * PAGE));
        assert_true(virtual_reserved(at + 4 * PAGE, 4 * PAGE));
        virtual_unreserve(at + 4 * PAGE);
        virtual_unreserve(at + 9 * PAGE);
}

static void a_range_that_cuts_a_mapping_is_detected(void **state)
{
        const CUdeviceptr at = 64 * PAGE;
        struct handle *h = handle_new();
        struct mapping *a = virtual_map(h, at, 2 * PAGE), *b = virtual_map(h, at + 2 * PAGE, PAGE),
                       *c = virtual_map(NULL, at + 4 * PAGE, PAGE);

        assert_true(virtual_whole(at, 3 * PAGE, false));
        assert_false(virtual_whole(at, 5 * PAGE, false));
        assert_true(virtual_whole(at, 5 * PAGE, true));
        assert_true(virtual_whole(at - PAGE, 9 * PAGE, true));
        assert_false(virtual_whole(at + PAGE, 2 * PAGE, true));
        assert_false(virtual_whole(at, PAGE, true));
        assert_true(virtual_whole(at + 8 * PAGE, PAGE, true));
        assert_ptr_equal(virtual_at(at + PAGE), a);
        assert_ptr_equal(virtual_at(at + 2 * PAGE), b);
        assert_null(virtual_at(at + 3 * PAGE));
        assert_ptr_equal(virtual_from(at + 3 * PAGE), c);
        assert_null(virtual_from(at + 5 * PAGE));
        virtual_unmap(a);
        virtual_unmap(c);
        assert_null(virtual_at(at));
        assert_false(virtual_is_dead(h));
        h->references = 0;
        assert_false(virtual_is_dead(h));
        virtual_unmap(b);
        assert_true(virtual_is_dead(h));
        handle_delete(h);
}

/* Copies go through a mapping that the handle's own GPU may write to and that still exists. */
static void home_is_a_mapping_that_the_handles_gpu_may_write_to(void **state)
{
        const CUmemAccessDesc other = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                              read = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ),
                              write = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                              none = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        CUmemAccessDesc got[GPUS_MAX];
        struct handle *h = handle_new();
        struct mapping *a = virtual_map(h, 64 * PAGE, PAGE), *b = virtual_map(h, 80 * PAGE, PAGE);

        assert_null(h->home);
        mapping_allow(a, &other, 1);
        mapping_allow(a, &read, 1);
        assert_null(h->home);
        assert_int_equal(mapping_access(a, got), 2);
        assert_int_equal(got[0].location.id, 0);
        assert_int_equal(got[1].flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
        mapping_allow(b, &write, 1);
        assert_ptr_equal(h->home, b);
        mapping_allow(a, &write, 1);
        mapping_allow(b, &none, 1);
        assert_ptr_equal(h->home, a);
        assert_int_equal(mapping_access(b, got), 0);
        mapping_allow(b, &write, 1);
        virtual_unmap(a);
        assert_ptr_equal(h->home, b);
        virtual_unmap(b);
        assert_null(h->home);
        handle_delete(h);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_name_is_valid_for_one_handle_alone),
                cmocka_unit_test(a_name_is_no_address),
                cmocka_unit_test(many_names_are_all_different),
                cmocka_unit_test(adjacent_reservations_are_one_range),
                cmocka_unit_test(a_range_that_cuts_a_mapping_is_detected),
                cmocka_unit_test(home_is_a_mapping_that_the_handles_gpu_may_write_to),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
