/* test_freeze_watch.c: the watchdog thaws a frozen program if a driver call takes too long, and
 * does nothing if the call returns in time. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "fakes/freeze.h"
#include "fakes/preload.h"
#include "preload/rm/freeze_watch.h"
#include "preload/process/lock.h"

#define SHORT_NS (5 * NSEC_PER_MSEC)
#define LONG_NS  (60 * NSEC_PER_SEC)

static FILE *log_file;
static int true_stderr;

static void sleep_ns(uint64_t ns)
{
        const struct timespec ts = {.tv_sec = (time_t)(ns / NSEC_PER_SEC),
                                    .tv_nsec = (long)(ns % NSEC_PER_SEC)};

        (void)nanosleep(&ts, NULL);
}

static void wait_for_thaws(unsigned n)
{
        for (unsigned i = 0; i < 10000 && atomic_load(&rm_thaws) < n; i++)
                sleep_ns(NSEC_PER_MSEC);
        assert_int_equal(atomic_load(&rm_thaws), n);
}

static const char *said(void)
{
        static char text[4096];
        ssize_t n = pread(fileno(log_file), text, sizeof(text) - 1, 0);

        text[MAX(n, (ssize_t)0)] = '\0';
        return text;
}

static int begin(void **state)
{
        atomic_store(&rm_thaws, 0);
        log_file = tmpfile();
        true_stderr = dup(STDERR_FILENO);
        return log_file && true_stderr >= 0 && dup2(fileno(log_file), STDERR_FILENO) >= 0 ? 0 : -1;
}

static int end(void **state)
{
        (void)freeze_watch_end();
        (void)dup2(true_stderr, STDERR_FILENO);
        (void)close(true_stderr);
        (void)fclose(log_file);
        return 0;
}

/* ---- the first test: it needs a process without the watchdog's thread ---- */

static void a_watchdog_that_cannot_start_is_started_later(void **state)
{
        thread_error = EAGAIN;
        assert_false(freeze_watch_start());
        assert_false(freeze_watch_runs());
        thread_error = 0;
        assert_true(freeze_watch_start());
        assert_true(freeze_watch_start() && freeze_watch_runs());
        assert_int_equal(threads_started, 1);
}

static void a_call_that_takes_too_long_has_the_program_thawed_once(void **state)
{
        freeze_watch_begin(SHORT_NS, true);
        freeze_watch_call("cuMemUnmap");
        wait_for_thaws(1);
        sleep_ns(4 * SHORT_NS);
        assert_int_equal(atomic_load(&rm_thaws), 1);
        assert_true(freeze_watch_end());
        assert_string_equal(said(), ""); /* the user need not know of a thaw */
        assert_int_equal(threads_started, 1);
}

static void a_call_that_returns_in_time_thaws_nothing(void **state)
{
        freeze_watch_begin(LONG_NS, true);
        assert_false(freeze_watch_end());
        for (unsigned i = 0; i < 200; i++) {
                freeze_watch_begin(LONG_NS, true);
                assert_false(freeze_watch_end());
        }
        freeze_watch_begin(SHORT_NS, true);
        if (freeze_watch_end())
                return; /* this thread did not run in time, so the limit passed */
        sleep_ns(4 * SHORT_NS);
        assert_int_equal(atomic_load(&rm_thaws), 0);
        assert_false(freeze_watch_end());
}

static void each_limit_counts_from_its_own_beginning(void **state)
{
        for (unsigned i = 1; i <= 5; i++) {
                freeze_watch_begin(SHORT_NS << i, true);
                wait_for_thaws(i);
                assert_true(freeze_watch_end());
                freeze_watch_begin(LONG_NS, true); /* the lateness of the last call is forgotten */
                assert_false(freeze_watch_end());
        }
}

/* The watchdog sleeps until the earlier, longer limit, so the shorter one has to wake it. */
static void a_short_limit_after_a_long_one_is_kept(void **state)
{
        uint64_t began;

        freeze_watch_begin(LONG_NS, true);
        sleep_ns(2 * SHORT_NS);
        assert_false(freeze_watch_end());
        began = clock_now_ns();
        freeze_watch_begin(SHORT_NS, true);
        wait_for_thaws(1);
        assert_true(clock_now_ns() - began < LONG_NS / 4);
        assert_true(freeze_watch_end());
}

static void with_memory_away_a_late_call_is_named_and_nothing_is_thawed(void **state)
{
        freeze_watch_begin(SHORT_NS, false);
        freeze_watch_call("cuMemcpyDtoHAsync");
        for (unsigned i = 0; i < 10000 && !*said(); i++)
                sleep_ns(NSEC_PER_MSEC);
        assert_non_null(strstr(said(), "cuMemcpyDtoHAsync has not returned for"));
        sleep_ns(4 * SHORT_NS);
        assert_ptr_equal(strchr(said(), '\n'), said() + strlen(said()) - 1); /* a single line */
        assert_int_equal(atomic_load(&rm_thaws), 0);
        assert_false(freeze_watch_end());
}

static void a_late_call_without_a_name_is_reported_as_a_driver_call(void **state)
{
        freeze_watch_call("cuMemUnmap"); /* the name of an earlier call */
        freeze_watch_begin(SHORT_NS, false);
        for (unsigned i = 0; i < 10000 && !*said(); i++)
                sleep_ns(NSEC_PER_MSEC);
        assert_non_null(strstr(said(), "a driver call has not returned for"));
        assert_false(freeze_watch_end());
}

/* Returns how often the other threads went to sleep. A hand-off begins a watch for each step, and
 * the watchdog's thread must not wake for each of them. */
static long switches(void)
{
        DIR *tasks = opendir("/proc/self/task");
        char line[256], path[300];
        struct dirent *t;
        long sum = 0, n;

        assert_non_null(tasks);
        while ((t = readdir(tasks))) {
                FILE *f;

                if (t->d_name[0] == '.' || atoi(t->d_name) == getpid())
                        continue;
                (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", t->d_name);
                f = fopen(path, "re");
                while (f && fgets(line, sizeof(line), f))
                        if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
                                sum += n;
                if (f)
                        (void)fclose(f);
        }
        (void)closedir(tasks);
        return sum;
}

static void repeated_far_limits_do_not_wake_the_watchdog(void **state)
{
        long before;

        freeze_watch_begin(LONG_NS, false);
        sleep_ns(4 * SHORT_NS);
        before = switches();
        assert_true(before > 0);
        for (unsigned i = 0; i < 1000; i++) {
                freeze_watch_begin(LONG_NS, false);
                if (i % 50 == 0)
                        sleep_ns(NSEC_PER_MSEC);
                (void)freeze_watch_end();
        }
        sleep_ns(SHORT_NS);
        assert_true(switches() - before < 20);
}

static void a_child_starts_its_own_watchdog(void **state)
{
        freeze_watch_forget();
        assert_false(freeze_watch_runs());
        assert_true(freeze_watch_start());
        freeze_watch_begin(SHORT_NS, true);
        assert_int_equal(threads_started, 2);
        wait_for_thaws(1);
        assert_true(freeze_watch_end());
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        const struct CMUnitTest tests[] = {
                TEST(a_watchdog_that_cannot_start_is_started_later),
                TEST(a_call_that_takes_too_long_has_the_program_thawed_once),
                TEST(a_call_that_returns_in_time_thaws_nothing),
                TEST(each_limit_counts_from_its_own_beginning),
                TEST(a_short_limit_after_a_long_one_is_kept),
                TEST(with_memory_away_a_late_call_is_named_and_nothing_is_thawed),
                TEST(a_late_call_without_a_name_is_reported_as_a_driver_call),
                TEST(repeated_far_limits_do_not_wake_the_watchdog),
                TEST(a_child_starts_its_own_watchdog),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
