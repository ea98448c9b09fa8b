/* test_hidden.c: loaded libraries whose work no drain can await are found and reported. */
#include "unit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload/process/hidden.h"

static void a_library_counts_while_it_is_loaded(void **state)
{
        void *stub;

        assert_null(hidden_library());
        for (int times = 0; times < 2; times++) {
                stub = dlopen(STUB, RTLD_NOW);
                assert_non_null(stub);
                assert_string_equal(hidden_library(), "libnvcuvid");
                assert_string_equal(hidden_library(), "libnvcuvid");
                assert_int_equal(dlclose(stub), 0);
                assert_null(hidden_library());
        }
}

static void a_hidden_library_is_reported_once(void **state)
{
        int kept = dup(STDERR_FILENO), ends[2];
        char said[512];
        ssize_t n;
        void *stub;

        assert_int_equal(pipe(ends), 0);
        stub = dlopen(STUB, RTLD_NOW);
        assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
        (void)hidden_library();
        hidden_tell();
        hidden_tell();
        assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
        (void)close(kept);
        (void)close(ends[1]);
        n = read(ends[0], said, sizeof(said) - 1);
        assert_true(n > 0);
        said[n] = '\0';
        assert_non_null(strstr(said, "libnvcuvid is loaded"));
        assert_ptr_equal(strchr(said, '\n'), said + n - 1);
        (void)close(ends[0]);
        assert_int_equal(dlclose(stub), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_hidden_library_is_reported_once),
                cmocka_unit_test(a_library_counts_while_it_is_loaded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
