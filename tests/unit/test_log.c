/* test_log.c: a thread that logs may hold locks, so logging must not end the thread, and not wait.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"

static bool went_on;

static void *log_when_cancelled(void *unused)
{
        (void)pthread_cancel(pthread_self());
        log_warning("said by a thread that is cancelled");
        went_on = true;
        return NULL;
}

static void a_cancelled_thread_does_not_end_while_it_logs(void **state)
{
        pthread_t thread;

        log_open("test", LOG_LEVEL_WARNING);
        assert_int_equal(pthread_create(&thread, NULL, log_when_cancelled, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(went_on);
}

static int out = -1, stderr_before = -1;

/* From this call on, stderr is a pipe. */
static void catch_stderr(void)
{
        int ends[2];

        assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
        stderr_before = dup(STDERR_FILENO);
        assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
        (void)close(ends[1]);
        out = ends[0];
}

/* Returns the text that was logged since the last call. It is valid until the next call. */
static const char *said(void)
{
        static char text[200000];
        size_t used = 0;
        ssize_t n;

        while ((n = read(out, text + used, sizeof(text) - 1 - used)) > 0)
                used += (size_t)n;
        text[used] = '\0';
        return text;
}

static int give_stderr_back(void **state)
{
        (void)dup2(stderr_before, STDERR_FILENO);
        (void)close(stderr_before);
        (void)close(out);
        return unsetenv("SUBLET_LOG");
}

static void open_with(const char *level)
{
        if (level)
                assert_int_equal(setenv("SUBLET_LOG", level, 1), 0);
        else
                assert_int_equal(unsetenv("SUBLET_LOG"), 0);
        log_open("test", LOG_LEVEL_WARNING);
}

static void the_variable_sets_the_level(void **state)
{
        static const char *const levels[] = {"error", "warning", "info", "debug"};

        catch_stderr();
        for (int set = LOG_LEVEL_ERROR; set <= LOG_LEVEL_DEBUG; set++) {
                open_with(levels[set]);
                assert_string_equal(said(), "");
                for (int level = LOG_LEVEL_ERROR; level <= LOG_LEVEL_DEBUG; level++) {
                        log_write((enum log_level)level, "number %d", level);
                        assert_int_equal(*said() != '\0', level <= set);
                }
                log_notice("good news");
                assert_int_equal(*said() != '\0', set >= LOG_LEVEL_WARNING);
        }
        open_with(NULL);
        assert_true(log_enabled(LOG_LEVEL_WARNING));
        assert_false(log_enabled(LOG_LEVEL_INFO));
}

static void an_unknown_level_is_reported_and_the_default_holds(void **state)
{
        catch_stderr();
        open_with("verbose");
        assert_non_null(strstr(said(), "'verbose'"));
        assert_true(log_enabled(LOG_LEVEL_WARNING));
        assert_false(log_enabled(LOG_LEVEL_INFO));
        open_with("");
        assert_string_equal(said(), "");
}

static void a_line_has_tag_process_and_level_and_keeps_errno(void **state)
{
        char line[64];

        catch_stderr();
        open_with("info");
        errno = EXDEV;
        log_warning("card %d", 3);
        assert_int_equal(errno, EXDEV);
        (void)snprintf(line, sizeof(line), "test[%d]: warning: card 3\n", (int)getpid());
        assert_string_equal(said(), line);
        log_notice("card %d", 4);
        (void)snprintf(line, sizeof(line), "test[%d]: card 4\n", (int)getpid());
        assert_string_equal(said(), line);
}

static void a_long_line_is_cut_and_still_ends_in_a_newline(void **state)
{
        char text[3000];
        const char *line;

        catch_stderr();
        open_with(NULL);
        for (size_t n = 900; n < 1100; n++) {
                memset(text, 'x', n);
                text[n] = '\0';
                log_warning("%s", text);
                line = said();
                assert_in_range(strlen(line), MIN(n, (size_t)1000), 1023);
                assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
        }
}

static void a_full_pipe_costs_lines_but_no_time(void **state)
{
        const char *line;
        size_t lines = 0;

        catch_stderr();
        /* A plain write to the full pipe would wait. */
        assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, 0), 0);
        open_with(NULL);
        for (unsigned i = 0; i < 100000; i++)
                log_warning("number %u", i);
        line = said();
        assert_in_range(strlen(line), 1000, 65536);
        assert_int_equal(line[strlen(line) - 1], '\n');
        for (; *line; line = strchr(line, '\n') + 1)
                assert_int_equal(sscanf(strstr(line, "number"), "number %zu", &lines), 1);
        assert_in_range(lines, 100, 99998); /* lines that found the pipe full were dropped */
        log_warning("there is room again");
        assert_non_null(strstr(said(), "there is room again"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_cancelled_thread_does_not_end_while_it_logs),
                cmocka_unit_test_teardown(the_variable_sets_the_level, give_stderr_back),
                cmocka_unit_test_teardown(an_unknown_level_is_reported_and_the_default_holds,
                                          give_stderr_back),
                cmocka_unit_test_teardown(a_line_has_tag_process_and_level_and_keeps_errno,
                                          give_stderr_back),
                cmocka_unit_test_teardown(a_long_line_is_cut_and_still_ends_in_a_newline,
                                          give_stderr_back),
                cmocka_unit_test_teardown(a_full_pipe_costs_lines_but_no_time, give_stderr_back),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
