/* test_held.c: the check in the watched library (tests/watched/held.c) ends a program only if it
 * makes a driver call that may block while it holds core_lock. */
#include "unit.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload/driver/real.h"
#include "preload/process/lock.h"

#undef real

struct lock core_lock;
struct real_driver real;

static CUresult frees(CUdeviceptr address)
{
        return (CUresult)address;
}

static CUresult counts(int *count)
{
        *count = 3;
        return CUDA_SUCCESS;
}

static int begin(void **state)
{
        real.cuMemFree_v2 = frees;
        real.cuDeviceGetCount = counts;
        return 0;
}

static void calls_pass_with_their_arguments_and_results(void **state)
{
        struct lock other = {0};
        int count = 0;

        assert_int_equal(real_watched.cuMemFree_v2(7), 7);
        lock_acquire(&other);
        assert_int_equal(real_watched.cuMemFree_v2(8), 8);
        lock_release(&other);
        lock_acquire(&core_lock);
        assert_int_equal(real_watched.cuDeviceGetCount(&count), CUDA_SUCCESS);
        lock_release(&core_lock);
        assert_int_equal(count, 3);
        assert_int_equal(real_watched.cuMemFree_v2(9), 9);
}

static void a_call_that_may_block_ends_the_program_that_holds_the_lock(void **state)
{
        char said[256] = "";
        int ends[2], status;
        pid_t child;

        assert_int_equal(pipe(ends), 0);
        child = fork();
        if (child == 0) {
                (void)signal(SIGABRT, SIG_DFL);
                (void)dup2(ends[1], STDERR_FILENO);
                lock_acquire(&core_lock);
                (void)real_watched.cuMemFree_v2(1);
                _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        assert_true(read(ends[0], said, sizeof(said) - 1) > 0);
        assert_string_equal(said, "cuMemFree_v2 may block and is called with core_lock held\n");
        (void)close(ends[0]);
        (void)close(ends[1]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(calls_pass_with_their_arguments_and_results),
                cmocka_unit_test(a_call_that_may_block_ends_the_program_that_holds_the_lock),
        };

        return cmocka_run_group_tests(tests, begin, NULL);
}
