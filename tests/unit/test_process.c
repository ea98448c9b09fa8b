/* test_process.c: what the daemon reads in /proc of processes that have not connected. */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/people/process.h"

/* Starts a process that stops at once. traced: by this process, its debugger. */
static pid_t stopped(bool traced, const char *name)
{
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)prctl(PR_SET_NAME, name);
                if (traced)
                        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
                (void)raise(SIGSTOP);
                for (;;)
                        (void)pause();
        }
        assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
        assert_true(WIFSTOPPED(status));
        return pid;
}

static void end(pid_t pid)
{
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
}

static void a_stopped_process_is_told_from_one_that_goes_on(void **state)
{
        const pid_t pid = stopped(false, "train");
        const struct peer peer = {.pid = pid, .pidfd = -EBADF};
        struct process p;

        assert_int_equal(process_look(pid, &p), 0);
        assert_string_equal(stop_name(p.stop), "signal");
        assert_string_equal(p.name, "train");
        assert_int_equal(p.uid, geteuid());
        assert_int_equal(process_stop(&peer, true), STOP_SIGNAL);
        (void)kill(pid, SIGCONT);
        for (int i = 0; i < 5000 && process_stop(&peer, false) != STOP_NONE; i++)
                (void)usleep(1000);
        assert_int_equal(process_stop(&peer, true), STOP_NONE);
        assert_null(stop_name(STOP_NONE));
        end(pid);
}

static void a_process_that_a_debugger_holds_is_known(void **state)
{
        const pid_t pid = stopped(true, "train");
        struct process p;

        assert_int_equal(process_look(pid, &p), 0);
        assert_string_equal(stop_name(p.stop), "debugger");
        end(pid);
}

static void a_name_is_clean_and_names_no_other_field(void **state)
{
        const pid_t pid = stopped(false, "a\033[2J\nUid:\t7");
        struct process p;

        assert_int_equal(process_look(pid, &p), 0);
        assert_int_equal(p.uid, geteuid());
        assert_null(strchr(p.name, '\033'));
        end(pid);
}

static void an_ended_process_is_not_found(void **state)
{
        const pid_t pid = stopped(false, "train");
        struct process p;

        end(pid);
        assert_int_equal(process_look(pid, &p), -ESRCH);
        assert_int_equal(process_look(0, &p), -ESRCH);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_stopped_process_is_told_from_one_that_goes_on),
                cmocka_unit_test(a_process_that_a_debugger_holds_is_known),
                cmocka_unit_test(a_name_is_clean_and_names_no_other_field),
                cmocka_unit_test(an_ended_process_is_not_found),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
