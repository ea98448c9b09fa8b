/* test_link.c: the daemon gets a copy of the program's environment, which another thread may change
 * during the copy. calloc() plays that thread. */
#include "unit.h"

#include "preload/process/link.h"

static bool shortens;

/* The linker's names for what the library calls, and for the C library's function. */
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
        void *memory = __real_calloc(n, bytes);

        if (shortens)
                (void)unsetenv("TWO");
        return memory;
}

static int one_two_three(void **state)
{
        (void)clearenv();
        (void)setenv("ONE", "1", 1);
        (void)setenv("LD_PRELOAD", "libsublet.so", 1);
        (void)setenv("TWO", "2", 1);
        (void)setenv("THREE", "3", 1);
        shortens = false;
        return 0;
}

static void check(const char *first, const char *second, const char *third)
{
        const char *expected[] = {first, second, third};
        char **got = link_environment();

        assert_non_null(got);
        for (size_t i = 0; i < 3 && (i == 0 || expected[i - 1]); i++)
                if (expected[i])
                        assert_string_equal(got[i], expected[i]);
                else
                        assert_null(got[i]);
        free(got);
}

static void the_daemons_environment_lacks_ld_preload(void **state)
{
        check("ONE=1", "TWO=2", "THREE=3");
}

static void an_environment_that_shrinks_is_copied_to_its_end(void **state)
{
        shortens = true;
        check("ONE=1", "THREE=3", NULL);
}

static void a_program_may_have_no_environment(void **state)
{
        (void)clearenv();
        check(NULL, NULL, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(the_daemons_environment_lacks_ld_preload, one_two_three),
                cmocka_unit_test_setup(an_environment_that_shrinks_is_copied_to_its_end,
                                       one_two_three),
                cmocka_unit_test_setup(a_program_may_have_no_environment, one_two_three),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
