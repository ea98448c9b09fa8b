/* test_xdg.c: where a user's files are, by the variables of the environment. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>

#include "base/xdg.h"

static void set(const char *home, const char *state)
{
        (void)(home ? setenv("HOME", home, 1) : unsetenv("HOME"));
        (void)(state ? setenv("XDG_STATE_HOME", state, 1) : unsetenv("XDG_STATE_HOME"));
}

static void a_variable_names_the_folder_or_home_does(void **state)
{
        char folder[64];

        set("/home/anna", "/data/anna");
        assert_int_equal(xdg_folder(XDG_STATE, folder, sizeof(folder)), 0);
        assert_string_equal(folder, "/data/anna");
        set("/home/anna", NULL);
        assert_int_equal(xdg_folder(XDG_STATE, folder, sizeof(folder)), 1);
        assert_string_equal(folder, "/home/anna/.local/state");
        (void)unsetenv("XDG_DATA_HOME");
        assert_int_equal(xdg_folder(XDG_DATA, folder, sizeof(folder)), 1);
        assert_string_equal(folder, "/home/anna/.local/share");
}

static void a_relative_path_counts_as_none(void **state)
{
        static const char *const none[] = {NULL, "", "data", "./data"};
        char folder[64];

        for (unsigned i = 0; i < 4; i++) {
                set("/home/anna", none[i]);
                assert_int_equal(xdg_folder(XDG_STATE, folder, sizeof(folder)), 1);
                set(none[i], none[i]);
                assert_int_equal(xdg_folder(XDG_STATE, folder, sizeof(folder)), -ENOENT);
        }
}

static void a_folder_that_does_not_fit_is_an_error(void **state)
{
        char folder[sizeof("/home/anna/.local/state")];

        set("/home/anna", NULL);
        assert_int_equal(xdg_folder(XDG_STATE, folder, sizeof(folder)), 1);
        assert_int_equal(xdg_folder(XDG_STATE, folder, sizeof(folder) - 1), -ENAMETOOLONG);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_variable_names_the_folder_or_home_does),
                cmocka_unit_test(a_relative_path_counts_as_none),
                cmocka_unit_test(a_folder_that_does_not_fit_is_an_error),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
