/* test_driver_symbols.c: a driver's exports, known and unknown. The test itself is a driver with
 * functions that no release knows. */
#include "unit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "client/driver/driver_symbols.h"

#define EXPORTED __attribute__((visibility("default"), used))

EXPORTED void cuFutureThing(void);
EXPORTED void cudbgNotOfTheApi(void);
EXPORTED void cuMemAlloc_v2(void);
EXPORTED void cuMemAlloc_v7(void);
EXPORTED void cuDeviceGetName_v7(void);
extern __attribute__((visibility("default"))) int cuNoFunction;

void cuFutureThing(void)
{
}

void cudbgNotOfTheApi(void)
{
}

void cuMemAlloc_v2(void)
{
}

void cuMemAlloc_v7(void)
{
}

void cuDeviceGetName_v7(void)
{
}

int cuNoFunction = 1;

static void functions_that_no_release_knows_are_named(void **state)
{
        struct driver_symbols s;

        driver_symbols(dlopen(NULL, RTLD_NOW), &s);
        assert_int_equal(s.all, 4);
        assert_int_equal(s.unknown, 2);
        assert_non_null(strstr(s.names, "cuFutureThing"));
        assert_non_null(strstr(s.names, "cuDeviceGetName_v7"));
}

static void new_versions_of_intercepted_functions_are_named_apart(void **state)
{
        struct driver_symbols s;

        driver_symbols(dlopen(NULL, RTLD_NOW), &s);
        assert_int_equal(s.undecided, 1);
        assert_string_equal(s.versions, "cuMemAlloc_v7");
}

static void a_driver_of_this_release_has_nothing_unknown(void **state)
{
        struct driver_symbols s;
        void *stub = dlopen(DRIVER_STUB, RTLD_NOW | RTLD_LOCAL);

        assert_non_null(stub);
        driver_symbols(stub, &s);
        assert_in_range(s.all, 300, 10000);
        assert_int_equal(s.unknown, 0);
        assert_int_equal(s.undecided, 0);
        assert_string_equal(s.names, "");
}

static void names_that_do_not_fit_become_an_ellipsis(void **state)
{
        struct driver_symbols s = {0};

        for (int i = 0; i < 40; i++) {
                char name[32];

                (void)snprintf(name, sizeof(name), "cuFuture%d", i);
                driver_symbols_count(name, &s);
        }
        assert_int_equal(s.unknown, 40);
        assert_string_equal(s.names + strlen(s.names) - 5, ", ...");
        assert_ptr_equal(strstr(s.names, ", ..."), s.names + strlen(s.names) - 5);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(functions_that_no_release_knows_are_named),
                cmocka_unit_test(new_versions_of_intercepted_functions_are_named_apart),
                cmocka_unit_test(a_driver_of_this_release_has_nothing_unknown),
                cmocka_unit_test(names_that_do_not_fit_become_an_ellipsis),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
