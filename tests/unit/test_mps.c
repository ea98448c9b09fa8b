/* Control daemons of MPS: starting, asking, finding and ending them. The processes are those of the
 * simulator (sim/mps). */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "mps/mps.h"
#include "mps/usage.h"

#define NOBODY 65534

static char top[64], dir[80];
static struct mps_options options;
static char answer[MPS_ANSWER_MAX];

static int setup(void **state)
{
        const char *build = getenv("SUBLET_BUILD");
        char path[4096];

        if (!build)
                return -1;
        (void)snprintf(path, sizeof(path), "%s/sim/mps:/usr/bin:/bin", build);
        (void)setenv("PATH", path, 1);
        (void)strcpy(top, "/tmp/slt-mps-XXXXXX");
        if (!mkdtemp(top))
                return -1;
        (void)snprintf(dir, sizeof(dir), "%s/m", top);
        options =
                (struct mps_options){.dir = dir, .gpu = "GPU-1", .uid = getuid(), .gid = getgid()};
        return 0;
}

static int teardown(void **state)
{
        const bool left = mps_kill(dir, getuid()) > 0;

        mps_remove_dir(dir);
        return rmdir(top) < 0 || left ? -1 : 0;
}

static pid_t started(void)
{
        pid_t pid = 0;

        assert_int_equal(mps_start(&options, &pid), 0);
        assert_true(pid > 0);
        return pid;
}

static bool comes(bool (*condition)(void))
{
        const uint64_t until = clock_now_ns() + 20 * NSEC_PER_SEC;

        while (!condition() && clock_now_ns() < until)
                (void)usleep(5000);
        return condition();
}

static bool nothing_runs(void)
{
        return mps_count(dir, getuid()) == 0;
}

static void a_control_daemon_starts_answers_and_ends(void **state)
{
        const pid_t pid = started();

        assert_true(mps_is_ready(dir));
        assert_int_equal(mps_count(dir, getuid()), 1);
        assert_true(mps_find(dir, getuid()) > 0);
        assert_int_equal(mps_ask(&options, "get_server_list", 10000, answer, sizeof(answer)), 0);
        assert_string_equal(answer, ""); /* no program has come yet */
        mps_stop(&options, pid);
        assert_true(nothing_runs());
        assert_int_equal(access(dir, F_OK), -1);
        assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
}

static void it_runs_in_a_session_of_its_own_with_its_gpu_and_little_else(void **state)
{
        char path[64], text[8192] = "";
        pid_t pid, control;
        size_t n;
        FILE *f;

        (void)setenv("LD_PRELOAD", "", 1);
        (void)setenv("A_SECRET", "1", 1);
        pid = started();
        control = mps_find(dir, getuid());
        assert_int_not_equal(getsid(control), getsid(0));
        (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)control);
        f = fopen(path, "r");
        assert_non_null(f);
        n = fread(text, 1, sizeof(text) - 1, f);
        (void)fclose(f);
        for (size_t i = 0; i < n; i++)
                if (!text[i])
                        text[i] = '\n';
        assert_non_null(strstr(text, "CUDA_VISIBLE_DEVICES=GPU-1\n"));
        assert_non_null(strstr(text, "CUDA_MPS_LOG_DIRECTORY="));
        assert_null(strstr(text, "A_SECRET"));
        assert_null(strstr(text, "LD_PRELOAD"));
        mps_stop(&options, pid);
        (void)unsetenv("LD_PRELOAD");
        (void)unsetenv("A_SECRET");
}

static void a_second_one_in_the_directory_is_refused(void **state)
{
        const pid_t pid = started();
        pid_t other = 0;

        assert_int_equal(mps_start(&options, &other), -EALREADY);
        assert_int_equal(mps_count(dir, getuid()), 1);
        mps_stop(&options, pid);
}

static void one_that_was_killed_leaves_no_hindrance(void **state)
{
        pid_t pid = started();

        assert_int_equal(mps_kill(dir, getuid()), 1);
        (void)waitpid(pid, NULL, 0);
        assert_true(nothing_runs());
        assert_int_equal(mps_ask(&options, "get_server_list", 10000, answer, sizeof(answer)), -EIO);
        pid = started();
        assert_int_equal(mps_ask(&options, "get_server_list", 10000, answer, sizeof(answer)), 0);
        mps_stop(&options, pid);
}

/* Its program may be killed, too. */
static void it_ends_with_the_process_that_has_started_it(void **state)
{
        const pid_t starter = fork();
        int status;

        assert_true(starter >= 0);
        if (starter == 0) {
                pid_t pid;

                if (mps_start(&options, &pid) < 0)
                        _exit(1);
                (void)kill(getpid(), SIGKILL);
        }
        assert_int_equal(waitpid(starter, &status, 0), starter);
        assert_true(WIFSIGNALED(status));
        assert_true(comes(nothing_runs));
}

static void one_that_outlives_its_starter_is_found_and_ended_by_another(void **state)
{
        const pid_t starter = fork();
        int status;

        options.outlives = true;
        assert_true(starter >= 0);
        if (starter == 0) {
                pid_t pid;

                _exit(mps_start(&options, &pid) < 0);
        }
        assert_int_equal(waitpid(starter, &status, 0), starter);
        assert_int_equal(status, 0);
        assert_true(mps_find(dir, getuid()) > 0);
        assert_int_equal(mps_find(dir, NOBODY), 0); /* another user's would be no concern of ours */
        assert_int_equal(mps_kill(dir, NOBODY), 0);
        mps_stop(&options, 0);
        assert_true(nothing_runs());
}

static void write_program(const char *text)
{
        char path[128];
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/" MPS_CONTROL, top);
        f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(chmod(path, 0755), 0);
        (void)setenv("PATH", top, 1);
}

static void remove_named(const char *name)
{
        char path[128];

        (void)snprintf(path, sizeof(path), "%s/%s", top, name);
        (void)unlink(path);
}

static void remove_program(void)
{
        remove_named(MPS_CONTROL);
}

static void a_program_that_ends_at_once_or_is_none_is_an_error(void **state)
{
        pid_t pid;

        write_program("#!/bin/sh\nexit 1\n");
        assert_int_equal(mps_start(&options, &pid), -EIO);
        write_program("#!/nowhere/sh\n");
        assert_int_equal(mps_start(&options, &pid), -ENOENT);
        remove_program();
        if (!mps_program()) /* unless this machine has one */
                assert_int_equal(mps_start(&options, &pid), -ENOENT);
        assert_true(nothing_runs());
}

static void an_order_that_hangs_is_given_up_and_leaves_no_process(void **state)
{
        const uint64_t began = clock_now_ns();

        write_program("#!/bin/sh\nexec /bin/sleep 1000\n");
        assert_int_equal(mps_ask(&options, "get_server_list", 200, answer, sizeof(answer)),
                         -ETIMEDOUT);
        assert_true(clock_now_ns() - began < 100 * NSEC_PER_SEC);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        remove_program();
}

static void an_answer_that_does_not_fit_is_cut(void **state)
{
        char few[8];

        write_program("#!/bin/sh\necho 123456789012345\n");
        assert_int_equal(mps_ask(&options, "x", 20000, few, sizeof(few)), 0);
        assert_string_equal(few, "1234567");
        remove_program();
}

static void a_directory_of_another_user_or_a_link_is_refused(void **state)
{
        char path[128], longest[MPS_DIR_MAX + 1];

        assert_int_equal(mps_make_dir(dir, getuid(), getgid()), 0);
        assert_int_equal(mps_make_dir(dir, getuid(), getgid()), 0); /* it is ours already */
        assert_int_equal(mps_make_dir(dir, NOBODY, NOBODY), getuid() == NOBODY ? 0 : -EPERM);
        (void)snprintf(path, sizeof(path), "%s/link", top);
        assert_int_equal(symlink(dir, path), 0);
        assert_int_equal(mps_make_dir(path, getuid(), getgid()), -ENOTDIR);
        (void)unlink(path);
        memset(longest, 'x', MPS_DIR_MAX);
        longest[0] = '/';
        longest[MPS_DIR_MAX] = '\0';
        assert_int_equal(mps_make_dir(longest, getuid(), getgid()), -ENAMETOOLONG);
}

/* The directory is its user's, who may put links into it. */
static void a_directory_is_removed_without_following_links(void **state)
{
        char outside[128], link[128], log[128];

        (void)snprintf(outside, sizeof(outside), "%s/outside", top);
        (void)snprintf(log, sizeof(log), "%s/log", dir);
        (void)snprintf(link, sizeof(link), "%s/log/link", dir);
        assert_int_equal(close(open(outside, O_CREAT | O_WRONLY, 0600)), 0);
        assert_int_equal(mps_make_dir(dir, getuid(), getgid()), 0);
        assert_int_equal(mkdir(log, 0700), 0);
        assert_int_equal(symlink(outside, link), 0);
        mps_remove_dir(dir);
        assert_int_equal(access(dir, F_OK), -1);
        assert_int_equal(access(outside, F_OK), 0);
        assert_int_equal(symlink(top, dir), 0);
        mps_remove_dir(dir);
        assert_int_equal(access(outside, F_OK), 0);
        (void)unlink(dir);
        (void)unlink(outside);
}

/* The user may also put any number of files there, and go on doing so. */
static void a_directory_full_of_files_holds_nobody_up(void **state)
{
        char path[128];

        assert_int_equal(mps_make_dir(dir, getuid(), getgid()), 0);
        for (unsigned i = 0; i < 5000; i++) {
                (void)snprintf(path, sizeof(path), "%s/%u", dir, i);
                assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
        }
        mps_remove_dir(dir);
        assert_int_equal(access(dir, F_OK), 0); /* the rest is left */
        mps_remove_dir(dir);
        assert_int_equal(access(dir, F_OK), -1);
}

/* The user could make the daemon look at a file of another user's. */
static void a_link_is_no_control_daemon(void **state)
{
        char path[128];

        assert_int_equal(mps_make_dir(dir, getuid(), getgid()), 0);
        (void)snprintf(path, sizeof(path), "%s/control", dir);
        assert_int_equal(symlink(top, path), 0);
        assert_false(mps_is_ready(dir));
        assert_int_equal(unlink(path), 0);
}

static void a_socket_on_which_nobody_listens_yet_is_no_control_daemon(void **state)
{
        static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM};

        assert_int_equal(mps_make_dir(dir, getuid(), getgid()), 0);
        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
                struct sockaddr_un sa = {.sun_family = AF_UNIX};
                const int fd = socket(AF_UNIX, types[i], 0);

                (void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control", dir);
                assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
                assert_false(mps_is_ready(dir));
                assert_int_equal(listen(fd, 0), 0);
                for (unsigned k = 0; k < 3; k++)
                        assert_true(mps_is_ready(dir)); /* also if more ask than may wait */
                (void)close(fd);
                assert_false(mps_is_ready(dir));
                assert_int_equal(unlink(sa.sun_path), 0);
        }
}

static void an_answer_without_end_is_given_up(void **state)
{
        write_program("#!/bin/sh\nwhile echo 1; do :; done\n");
        assert_int_equal(mps_ask(&options, "x", 200, answer, sizeof(answer)), -ETIMEDOUT);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        remove_program();
}

/* Runs a program of this name and environment. */
static pid_t pretend_to_be(char *name, char *const *environment)
{
        char path[128];
        char *const argv[] = {name, (char *)"1000", NULL};
        pid_t pid;

        (void)snprintf(path, sizeof(path), "%s/%s", top, name);
        assert_int_equal(symlink("/bin/sleep", path), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                (void)execve(path, argv, environment);
                _exit(1);
        }
        return pid;
}

static char first_argument(pid_t pid)
{
        char path[64], c = '\0';
        FILE *f;

        (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
        f = fopen(path, "r");
        assert_non_null(f);
        c = (char)fgetc(f);
        (void)fclose(f);
        return c;
}

static void one_whose_folder_has_no_name_is_left_alone(void **state)
{
        char *const environment[] = {(char *)"CUDA_MPS_PIPE_DIRECTORY=", NULL};
        const pid_t pid = pretend_to_be((char *)MPS_CONTROL, environment);

        while (first_argument(pid) != MPS_CONTROL[0])
                (void)usleep(1000);
        (void)usleep(1000);
        assert_int_equal(mps_kill("", getuid()), 0);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        remove_program();
}

static void numbers_are_read_from_an_answer_and_words_are_not(void **state)
{
        pid_t found[2] = {0};

        assert_int_equal(mps_numbers("", found, 2), 0);
        assert_int_equal(mps_numbers("Server 12x not found\n -3 0 99999999999", found, 2), 0);
        assert_int_equal(mps_numbers("17\n4000000\r\n 3", found, 2), 3);
        assert_int_equal(found[0], 17);
        assert_int_equal(found[1], 4000000);
}

/* ---- whether it is used ---- */

static struct mps_usage usage;

static enum mps_use said(const char *text)
{
        return mps_usage_take(&usage, &options, text);
}

static void
it_is_unused_if_each_server_has_an_empty_list_and_the_last_question_is_answered(void **state)
{
        mps_usage_begin(&usage);
        assert_string_equal(usage.order, "get_server_list");
        assert_int_equal(said("17\n18\n"), MPS_ASK_ON);
        assert_string_equal(usage.order, "get_client_list 17");
        assert_int_equal(said(""), MPS_ASK_ON);
        assert_string_equal(usage.order, "get_client_list 18");
        assert_int_equal(said("\n"), MPS_ASK_ON);
        assert_string_equal(usage.order, "get_default_active_thread_percentage");
        assert_int_equal(said("100.0\n"), MPS_UNUSED);
}

static void a_program_in_a_list_uses_it(void **state)
{
        mps_usage_begin(&usage);
        assert_int_equal(said("17\n18\n"), MPS_ASK_ON);
        assert_int_equal(said(""), MPS_ASK_ON);
        assert_int_equal(said("4711\n"), MPS_USED);
}

static void an_answer_that_is_missing_or_no_list_tells_nothing(void **state)
{
        static const char *const none[] = {NULL, "Cannot find MPS control daemon process\n"};

        for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
                mps_usage_begin(&usage);
                assert_int_equal(said(none[i]), MPS_UNKNOWN);
                mps_usage_begin(&usage);
                assert_int_equal(said("17\n"), MPS_ASK_ON);
                assert_int_equal(said(none[i]), MPS_UNKNOWN);
                mps_usage_begin(&usage);
                assert_int_equal(said(""), MPS_ASK_ON);
                assert_int_equal(said(none[i]), MPS_UNKNOWN);
        }
        mps_usage_begin(&usage);
        assert_int_equal(said("1 2 3 4 5 6 7 8 9"), MPS_UNKNOWN);
}

/* As of one that has ended or hangs, and whose words get lost on the way. */
static void only_empty_answers_tell_nothing(void **state)
{
        mps_usage_begin(&usage);
        assert_int_equal(said(""), MPS_ASK_ON);
        assert_string_equal(usage.order, "get_default_active_thread_percentage");
        assert_int_equal(said(""), MPS_UNKNOWN);
}

static void a_list_that_lacks_a_server_that_runs_tells_nothing(void **state)
{
        char variable[128], name[] = "nvidia-cuda-mps-server";
        char *const environment[] = {variable, NULL};
        pid_t pid;

        (void)snprintf(variable, sizeof(variable), "CUDA_MPS_PIPE_DIRECTORY=%s", dir);
        pid = pretend_to_be(name, environment);
        while (mps_count_servers(dir, getuid()) == 0)
                (void)usleep(1000);
        mps_usage_begin(&usage);
        assert_int_equal(said(""), MPS_UNKNOWN);
        mps_usage_begin(&usage);
        assert_int_equal(said("17\n"), MPS_ASK_ON);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        remove_named(name);
}

static void a_control_daemon_without_programs_is_unused_and_a_stopped_one_unknown(void **state)
{
        const pid_t pid = started();
        const pid_t control = mps_find(dir, getuid());

        assert_int_equal(mps_usage_ask(&options), MPS_UNUSED);
        assert_int_equal(kill(control, SIGSTOP), 0);
        assert_int_equal(mps_usage_ask(&options), MPS_UNKNOWN);
        assert_int_equal(kill(control, SIGCONT), 0);
        mps_stop(&options, pid);
        assert_int_equal(mps_usage_ask(&options), MPS_UNKNOWN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_control_daemon_starts_answers_and_ends),
                TEST(it_runs_in_a_session_of_its_own_with_its_gpu_and_little_else),
                TEST(a_second_one_in_the_directory_is_refused),
                TEST(one_that_was_killed_leaves_no_hindrance),
                TEST(it_ends_with_the_process_that_has_started_it),
                TEST(one_that_outlives_its_starter_is_found_and_ended_by_another),
                TEST(a_program_that_ends_at_once_or_is_none_is_an_error),
                TEST(an_order_that_hangs_is_given_up_and_leaves_no_process),
                TEST(an_answer_that_does_not_fit_is_cut),
                TEST(a_directory_of_another_user_or_a_link_is_refused),
                TEST(a_directory_is_removed_without_following_links),
                TEST(a_directory_full_of_files_holds_nobody_up),
                TEST(a_link_is_no_control_daemon),
                TEST(a_socket_on_which_nobody_listens_yet_is_no_control_daemon),
                TEST(an_answer_without_end_is_given_up),
                TEST(one_whose_folder_has_no_name_is_left_alone),
                TEST(numbers_are_read_from_an_answer_and_words_are_not),
                TEST(it_is_unused_if_each_server_has_an_empty_list_and_the_last_question_is_answered),
                TEST(a_program_in_a_list_uses_it),
                TEST(an_answer_that_is_missing_or_no_list_tells_nothing),
                TEST(only_empty_answers_tell_nothing),
                TEST(a_list_that_lacks_a_server_that_runs_tells_nothing),
                TEST(a_control_daemon_without_programs_is_unused_and_a_stopped_one_unknown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
