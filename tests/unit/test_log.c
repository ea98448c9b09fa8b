/* test_log.c: whoever logs may hold locks, so nothing in it may end the thread. */
#include "unit.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/log.h"

static bool went_on;

static void *log_when_cancelled(void *unused)
{
        (void)pthread_cancel(pthread_self());
        log_warning("said by a thread that is cancelled");
        went_on = true;
        return NULL;
}

static void a_cancelled_thread_does_not_end_in_it(void **state)
{
        pthread_t thread;

        log_open("test", LOG_LEVEL_WARNING);
        assert_int_equal(pthread_create(&thread, NULL, log_when_cancelled, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(went_on);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_cancelled_thread_does_not_end_in_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
