/* test_libc_compat.c: compat_thread_start() starts the library's own threads. */
#include "unit.h"

#include <semaphore.h>
#include <signal.h>

#include "preload/process/libc_compat.h"

static sem_t seen;
static sigset_t of_thread;
static void *handed;
static int detached;

static void *look(void *argument)
{
        pthread_attr_t a;

        handed = argument;
        (void)pthread_sigmask(SIG_SETMASK, NULL, &of_thread);
        do { /* the starting thread may detach this one at any moment */
                assert_int_equal(pthread_getattr_np(pthread_self(), &a), 0);
                (void)pthread_attr_getdetachstate(&a, &detached);
                (void)pthread_attr_destroy(&a);
        } while (detached != PTHREAD_CREATE_DETACHED);
        (void)sem_post(&seen);
        return NULL;
}

static void a_thread_of_the_library_is_detached_and_blocks_all_signals(void **state)
{
        sigset_t before, after;

        (void)sigemptyset(&before);
        (void)sigaddset(&before, SIGUSR2);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        assert_int_equal(sem_init(&seen, 0, 0), 0);
        assert_int_equal(compat_thread_start(look, &seen), 0);
        (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
        while (sem_wait(&seen) < 0)
                ;
        assert_ptr_equal(handed, &seen);
        assert_true(sigismember(&of_thread, SIGINT) && sigismember(&of_thread, SIGUSR1));
        assert_true(sigismember(&after, SIGUSR2) && !sigismember(&after, SIGINT));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_thread_of_the_library_is_detached_and_blocks_all_signals),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
