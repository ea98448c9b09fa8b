/* lab.c: owns the start and the end of a private daemon and its programs. Must leave no descriptor
 * open, and no child unawaited. */
#include "lab/common/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/cleanup.h"
#include "client/common/cli.h"
#include "client/common/part_paths.h"

#define WORDS_MAX 12

/* ---- the daemon ---- */

int lab_daemon_prepare(struct lab_daemon *d, const char *folder, bool simulated)
{
        /* Each daemon has a directory of its own, because the last one may still be ending. */
        static unsigned number;

        (void)snprintf(d->dir, sizeof(d->dir), "%.80s/%u", folder, ++number);
        if (paths_make_private(d->dir, getuid()) < 0)
                return cli_fail(CLI_FAILED, "cannot use %s", d->dir);
        d->launch.daemon = d->dir;
        d->launch.simulated = simulated;
        return launch_complete(&d->launch);
}

static void set_environment(const struct launch *l, bool preload)
{
        for (unsigned i = 0; i < l->n_variables; i++)
                if (preload || strcmp(l->variables[i].name, "LD_PRELOAD") != 0)
                        (void)setenv(l->variables[i].name, l->variables[i].value, 1);
}

int lab_daemon_start(struct lab_daemon *d, const char *const options[])
{
        const char *argv[WORDS_MAX] = {"subletd", "--private", "--dir", d->dir};
        char path[PATH_MAX];
        int status = 0;
        pid_t pid;

        for (unsigned n = 4; *options && n + 1 < WORDS_MAX; n++)
                argv[n] = *options++;
        if (parts_find(PART_DAEMON, path) < 0)
                return cli_fail(CLI_FAILED, "the daemon is missing: no %s", path);
        d->started = true;
        pid = fork();
        if (pid == 0) {
                set_environment(&d->launch, false);
                (void)execv(path, (char *const *)argv);
                _exit(CLI_NO_EXECUTE);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
                return cli_fail(CLI_FAILED, "subletd did not start in %s", d->dir);
        return CLI_OK;
}

int lab_daemon_ask(const struct lab_daemon *d, const char *order, json_t **ret_answer)
{
        return ask_daemon(d->dir, PATHS_PRIVATE, json_pack("{ss}", "order", order), ret_answer);
}

int lab_daemon_set(const struct lab_daemon *d, const char *key, const char *value,
                   json_t **ret_answer)
{
        int r = ask_daemon(d->dir, PATHS_PRIVATE, json_pack("{ss,ss}", "order", "set", key, value),
                           ret_answer);

        if (r == 0 && json_object_get(*ret_answer, "error"))
                r = -EINVAL;
        return r;
}

void lab_daemon_end(struct lab_daemon *d)
{
        json_t *answer = NULL;

        if (d->started && lab_daemon_ask(d, "stop", &answer) == 0)
                json_decref(answer);
        launch_clear(&d->launch);
}

/* ---- a program ---- */

static void close_end(int *fd)
{
        cleanup_close(fd);
        *fd = -EBADF;
}

/* Makes the ends of output and input. The input is a socket: writing to a pipe whose program is
 * gone would raise SIGPIPE. */
static int make_ends(bool talks, int out[static 2], int in[static 2])
{
        if (pipe2(out, O_CLOEXEC) < 0)
                return -errno;
        if (talks && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0) {
                const int r = -errno;

                close_end(&out[0]);
                close_end(&out[1]);
                return r;
        }
        (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
        return 0;
}

pid_t lab_program_fork(struct lab_program *p, const struct lab_daemon *d, bool shared, bool talks)
{
        int in[2] = {-EBADF, -EBADF}, out[2];
        const int r = make_ends(talks, out, in);

        if (r < 0)
                return cli_fail(-1, "no pipe: %s", strerror(-r));
        p->pid = fork();
        if (p->pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (talks)
                        (void)dup2(in[0], STDIN_FILENO);
                (void)dup2(out[1], STDOUT_FILENO);
                set_environment(&d->launch, true);
                (void)setenv("SUBLET_QUIET", "1", 1);
                if (!shared)
                        (void)unsetenv("LD_PRELOAD");
                return 0;
        }
        close_end(&in[0]);
        close_end(&out[1]);
        p->input = in[1];
        p->output = out[0];
        if (p->pid < 0) {
                close_end(&p->input);
                close_end(&p->output);
                return cli_fail(-1, "cannot start a program: %m");
        }
        return p->pid;
}

bool lab_program_runs(const struct lab_program *p)
{
        return p->output >= 0;
}

bool lab_program_read(struct lab_program *p, void (*hear)(void *userdata), void *userdata)
{
        char text[512];
        ssize_t n = read(p->output, text, sizeof(text));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return true;
        for (ssize_t i = 0; i < n; i++) {
                if (text[i] == '\n') {
                        p->line[p->line_used] = 0;
                        p->line_used = 0;
                        hear(userdata);
                } else if (p->line_used + 1 < sizeof(p->line)) {
                        p->line[p->line_used++] = text[i];
                }
        }
        return n > 0;
}

void lab_program_close_input(struct lab_program *p)
{
        close_end(&p->input);
}

int lab_program_end(struct lab_program *p)
{
        int status = 0;

        close_end(&p->output);
        close_end(&p->input);
        (void)waitpid(p->pid, &status, 0);
        return status;
}

void lab_program_trouble(int status, char *ret, size_t room)
{
        if (ret[0])
                return;
        if (WIFSIGNALED(status))
                (void)snprintf(ret, room, "killed by signal %d", WTERMSIG(status));
        else
                (void)snprintf(ret, room, "ended with status %d", WEXITSTATUS(status));
}

/* ---- Ctrl-C ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
        interrupted = signal;
}

void lab_catch_interrupt(void)
{
        /* SA_RESTART: Ctrl-C does not interrupt the start of a daemon, which could not be stopped
         * yet. */
        struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};

        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGHUP, &action, NULL);
        (void)sigaction(SIGPIPE, &action, NULL); /* sent when the reader of our output has ended */
}

int lab_interrupted(void)
{
        return interrupted;
}
