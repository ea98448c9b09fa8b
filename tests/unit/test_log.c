/* test_log.c: a thread that logs may hold locks, so logging must not end the thread, and not wait.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/process/trace.h"

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

static void *trace_when_cancelled(void *unused)
{
        (void)pthread_cancel(pthread_self());
        trace_event("written by a thread that is cancelled", 0, 0);
        went_on = true;
        return NULL;
}

static void a_cancelled_thread_does_not_end_while_it_traces(void **state)
{
        pthread_t thread;

        went_on = false;
        assert_int_equal(setenv("SUBLET_TRACE", "/dev/null", 1), 0);
        assert_int_equal(pthread_create(&thread, NULL, trace_when_cancelled, NULL), 0);
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

/* ---- a library in a program that does what it likes with descriptor 2 ---- */

static int kept[2] = {-1, -1}; /* stdout and stderr of the test */

static int begin_guest(void **state)
{
        open_with(NULL);
        for (int i = 0; i < 2; i++)
                kept[i] = fcntl(STDOUT_FILENO + i, F_DUPFD, 10);
        return kept[0] < 0 || kept[1] < 0 ? -1 : 0;
}

static int end_guest(void **state)
{
        for (int i = 0; i < 2; i++) {
                (void)dup2(kept[i], STDOUT_FILENO + i);
                (void)close(kept[i]);
        }
        log_guard_stderr();
        return 0;
}

/* The program closes stderr, and opens a file. */
static void open_as_stderr(int flags)
{
        (void)close(STDERR_FILENO);
        if (open("/tmp", O_TMPFILE | O_RDWR | flags, 0600) != STDERR_FILENO)
                _exit(99); /* nobody would see a message */
}

static off_t bytes_of(int fd)
{
        struct stat st;

        return fstat(fd, &st) == 0 ? st.st_size : -1;
}

static bool is_heard(void)
{
        const bool has = log_has_stderr();

        log_warning("not for the program's data");
        return has;
}

static void a_file_that_got_the_number_of_stderr_gets_no_line(void **state)
{
        static const int flags[] = {0, O_CLOEXEC, O_APPEND};

        for (unsigned i = 0; i < 2 * ARRAY_SIZE(flags); i++) {
                bool heard;
                off_t bytes;

                if (i % 2)
                        (void)close(STDERR_FILENO); /* it was closed already at load */
                log_guard_stderr();
                open_as_stderr(flags[i / 2]);
                heard = is_heard();
                bytes = bytes_of(STDERR_FILENO);
                (void)dup2(kept[1], STDERR_FILENO);
                assert_false(heard);
                assert_int_equal(bytes, 0);
        }
}

static void a_closed_stderr_gets_no_line(void **state)
{
        bool heard;

        log_guard_stderr();
        (void)close(STDERR_FILENO);
        heard = is_heard();
        (void)dup2(kept[1], STDERR_FILENO);
        assert_false(heard);
}

/* Returns whether a line comes out of a pipe that is descriptor 2, and nothing else if not. */
static bool pipe_is_heard(bool closed_at_load, bool passed_on)
{
        char text[256];
        int ends[2];
        bool heard;
        ssize_t n;

        if (closed_at_load)
                (void)close(STDERR_FILENO);
        log_guard_stderr();
        if (closed_at_load)
                (void)dup2(kept[1], STDERR_FILENO); /* so that the pipe gets other numbers */
        if (pipe2(ends, O_NONBLOCK) < 0)
                return false;
        (void)dup3(ends[1], STDERR_FILENO, passed_on ? 0 : O_CLOEXEC);
        (void)close(ends[1]);
        heard = is_heard();
        (void)dup2(kept[1], STDERR_FILENO);
        n = read(ends[0], text, sizeof(text));
        (void)close(ends[0]);
        assert_int_equal(n > 0, heard);
        return heard;
}

static void a_pipe_that_is_put_in_the_place_of_stderr_gets_the_lines(void **state)
{
        assert_true(pipe_is_heard(false, true));
        assert_false(pipe_is_heard(false, false)); /* it passes it to no program: no stderr */
        assert_false(pipe_is_heard(true, true));   /* it may carry data: there was no stderr */
}

static void a_terminal_gets_the_lines(void **state)
{
        for (int closed = 0; closed < 2; closed++) {
                int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
                bool heard;

                assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
                slave = open(ptsname(master), O_RDWR | O_NOCTTY);
                assert_true(slave >= 0);
                if (closed)
                        (void)close(STDERR_FILENO);
                log_guard_stderr();
                (void)dup2(slave, STDERR_FILENO);
                heard = is_heard();
                (void)dup2(kept[1], STDERR_FILENO);
                (void)close(slave);
                (void)close(master);
                assert_true(heard);
        }
}

static void a_log_file_of_stdout_and_stderr_gets_the_lines(void **state)
{
        off_t bytes;
        bool heard;
        int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        assert_true(file >= 0);
        (void)fflush(stdout);
        log_guard_stderr();
        (void)dup2(file, STDOUT_FILENO);
        (void)dup2(file, STDERR_FILENO);
        heard = is_heard();
        bytes = bytes_of(file);
        (void)dup2(kept[0], STDOUT_FILENO);
        (void)dup2(kept[1], STDERR_FILENO);
        (void)close(file);
        assert_true(heard);
        assert_true(bytes > 0);
}

static void the_stderr_of_the_beginning_gets_the_lines_whatever_it_is(void **state)
{
        bool heard;
        off_t bytes;

        open_as_stderr(O_CLOEXEC);
        log_guard_stderr();
        heard = is_heard();
        bytes = bytes_of(STDERR_FILENO);
        (void)dup2(kept[1], STDERR_FILENO);
        assert_true(heard);
        assert_true(bytes > 0);
}

#define GUEST_TEST(name) cmocka_unit_test_setup_teardown(name, begin_guest, end_guest)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_cancelled_thread_does_not_end_while_it_logs),
                cmocka_unit_test(a_cancelled_thread_does_not_end_while_it_traces),
                cmocka_unit_test_teardown(the_variable_sets_the_level, give_stderr_back),
                cmocka_unit_test_teardown(an_unknown_level_is_reported_and_the_default_holds,
                                          give_stderr_back),
                cmocka_unit_test_teardown(a_line_has_tag_process_and_level_and_keeps_errno,
                                          give_stderr_back),
                cmocka_unit_test_teardown(a_long_line_is_cut_and_still_ends_in_a_newline,
                                          give_stderr_back),
                cmocka_unit_test_teardown(a_full_pipe_costs_lines_but_no_time, give_stderr_back),
                GUEST_TEST(a_file_that_got_the_number_of_stderr_gets_no_line),
                GUEST_TEST(a_closed_stderr_gets_no_line),
                GUEST_TEST(a_pipe_that_is_put_in_the_place_of_stderr_gets_the_lines),
                GUEST_TEST(a_terminal_gets_the_lines),
                GUEST_TEST(a_log_file_of_stdout_and_stderr_gets_the_lines),
                GUEST_TEST(the_stderr_of_the_beginning_gets_the_lines_whatever_it_is),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
