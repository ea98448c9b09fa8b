/* test_dlsym.c: runs programs with the doors preloaded, alone and with other libraries. */
#include "unit.h"

#include <sys/wait.h>
#include <unistd.h>

#ifndef ADDRESS_USER
#define ADDRESS_USER NULL
#endif
#ifndef THREAD_USER
#define THREAD_USER NULL
#endif

/* Runs a program with these libraries preloaded. Returns its exit status, or 128 + n if signal n
 * killed it. */
static int run(const char *program, const char *preload, const char *argument)
{
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0) {
                if (setenv("LD_PRELOAD", preload, 1) == 0)
                        execl(program, program, argument, (char *)NULL);
                _exit(127);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void rtld_next_finds_the_library_behind_the_caller(void **state)
{
        assert_int_equal(run(USER, "", "next"), 0);
        assert_int_equal(run(USER, DOORS, "next"), 0);
        assert_int_equal(run(OLD_USER, DOORS, "next"), 0);
}

static void other_preloaded_libraries_work_before_and_behind_libsublet(void **state)
{
        assert_int_equal(run(USER, GETPPID, "interposed"), 0);
        assert_int_equal(run(USER, GETPPID ":" DOORS, "interposed"), 0);
        assert_int_equal(run(USER, DOORS ":" GETPPID, "interposed"), 0);
        /* Without interpose_getppid.c the program must fail, or this test proves nothing. */
        assert_int_not_equal(run(USER, DOORS, "interposed"), 0);
}

static void malloc_replacements_find_the_c_library_in_their_constructors(void **state)
{
        assert_int_equal(run(USER, MALLOC, "allocates"), 0);
        assert_int_equal(run(USER, MALLOC ":" DOORS, "allocates"), 0);
        assert_int_equal(run(USER, DOORS ":" MALLOC, "allocates"), 0);
        assert_int_equal(run(USER, DOORS ":" GETPPID ":" MALLOC, "interposed"), 0);
}

static void either_version_of_dlsym_returns_our_driver_functions(void **state)
{
        assert_int_equal(run(USER, DOORS, "driver"), 0);
        assert_int_equal(run(OLD_USER, DOORS, "driver"), 0);
        assert_int_equal(run(USER, MALLOC ":" DOORS ":" GETPPID, "driver"), 0);
        assert_int_not_equal(run(USER, "", "driver"), 0);
}

/* A program with a sanitizer is special: the run time calls dlsym() before its functions work. */
static void run_sanitized(const char *program)
{
        /* The program was not built, or does not run on this kernel. */
        if (!program || run(program, "", "plain") != 0)
                skip();
        assert_int_equal(run(program, DOORS, "plain"), 0);
        assert_int_equal(run(program, DOORS, "driver"), 0);
        assert_int_equal(run(program, DOORS, "next"), 0);
}

static void programs_with_address_sanitizer_run(void **state)
{
        run_sanitized(ADDRESS_USER);
}

static void programs_with_thread_sanitizer_run(void **state)
{
        run_sanitized(THREAD_USER);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(rtld_next_finds_the_library_behind_the_caller),
                cmocka_unit_test(other_preloaded_libraries_work_before_and_behind_libsublet),
                cmocka_unit_test(malloc_replacements_find_the_c_library_in_their_constructors),
                cmocka_unit_test(either_version_of_dlsym_returns_our_driver_functions),
                cmocka_unit_test(programs_with_address_sanitizer_run),
                cmocka_unit_test(programs_with_thread_sanitizer_run),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
