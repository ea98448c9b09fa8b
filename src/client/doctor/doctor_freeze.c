/* doctor_freeze.c: owns the process that tests whether programs can be frozen. Must never keep
 * doctor waiting for a driver, nor leave anything behind but the library's test results. */
#include "client/doctor/doctor_freeze.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"

#define PATIENCE_MS 30000 /* limit for each GPU; cuInit alone takes seconds */
/* How long to wait for the process to end after SIGKILL. If it is stuck in the kernel, it may never
 * end. */
#define KILLED_MS 5000
#define TRIES     3
#define WORD      "--try-freezing"
/* A path where no daemon runs and none can be started. */
#define NOWHERE "/nonexistent/sublet"

extern char **environ;

struct said {
        int gpu;
        struct freeze_tried tried;
};

_Static_assert(sizeof(struct said) <= PIPE_BUF, "written at once");

/* ---- the testing process ---- */

struct driver {
        int (*init)(unsigned), (*get)(int *, int), (*create)(void **, unsigned, int);
        int (*destroy)(void *), (*error_name)(int, const char **);
        freeze_test_fn *test;
};

static bool open_driver(struct driver *d)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        struct freeze_answer nothing;

        if (!library)
                return false;
        d->init = dlsym(library, "cuInit");
        d->get = dlsym(library, "cuDeviceGet");
        d->create = dlsym(library, "cuCtxCreate_v2");
        d->destroy = dlsym(library, "cuCtxDestroy_v2");
        d->error_name = dlsym(library, "cuGetErrorName");
        d->test = dlsym(RTLD_DEFAULT, FREEZE_TEST_SYMBOL);
        if (!d->init || !d->get || !d->create || !d->destroy || !d->test)
                return false;
        (void)d->test(FREEZE_TEST_BEGIN, &nothing);
        return d->init(0) == 0;
}

/* Tests one GPU. Returns the context to destroy; NULL: there is none, or its channels may be
 * frozen. */
static void *try_gpu(const struct driver *d, int gpu, struct freeze_tried *t)
{
        const char *name = "";
        void *context = NULL;
        int device;

        t->result = d->get(&device, gpu);
        if (t->result == 0)
                t->result = d->create(&context, 0, device);
        if (t->result != 0) {
                t->stage = FREEZE_NO_CONTEXT;
                if (!d->error_name || d->error_name(t->result, &name) != 0)
                        name = "which has no name here";
                (void)snprintf(t->name, sizeof(t->name), "%s", name);
                return NULL;
        }
        t->stage = FREEZE_ANSWERED;
        t->result = -EBUSY;
        for (int i = 0; i < TRIES && t->result == -EBUSY; i++)
                t->result = d->test((unsigned)device, &t->answer);
        return t->result == -EIO ? NULL : context; /* destroying a context with frozen channels
                                                      would keep the process from ending */
}

static void tell(int fd, int gpu, const struct freeze_tried *t)
{
        struct said said = {.gpu = gpu, .tried = *t};

        (void)!write(fd, &said, sizeof(said));
}

int freeze_try(int argc, char **argv)
{
        struct driver d;
        unsigned gpus;
        int fd, null;

        if (argc != 4 || strcmp(argv[1], WORD) != 0)
                return -1;
        fd = atoi(argv[2]);
        gpus = (unsigned)strtoul(argv[3], NULL, 10);
        /* The driver's and the library's messages are not part of the report. */
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; null >= 0 && i <= STDERR_FILENO; i++)
                (void)dup2(null, i);
        if (!open_driver(&d))
                _exit(1);
        for (int i = 0; i < DRIVER_GPUS_MAX; i++) {
                struct freeze_tried t = {.stage = FREEZE_TRYING};
                void *context;

                if (!(gpus & 1u << i))
                        continue;
                tell(fd, i, &t);
                context = try_gpu(&d, i, &t);
                tell(fd, i, &t);
                if (context)
                        (void)d.destroy(context);
        }
        _exit(0);
}

/* ---- doctor, its parent ---- */

static bool is_ours(const char *variable)
{
        return strncmp(variable, "SUBLET_", 7) == 0 || strncmp(variable, "LD_PRELOAD=", 11) == 0;
}

/* Sets the environment of the testing process, without the user's settings for programs. */
static void set_environment(const char *library, const char *folder)
{
        const char *before = getenv("LD_LIBRARY_PATH");
        char path[2 * PATH_MAX];
        char **kept = environ;

        if (folder) {
                (void)snprintf(path, sizeof(path), "%s%s%s", folder, before ? ":" : "",
                               before ? before : "");
                (void)setenv("LD_LIBRARY_PATH", path, 1);
        }
        for (char **one = environ; *one; one++)
                if (!is_ours(*one))
                        *kept++ = *one;
        *kept = NULL;
        (void)setenv("LD_PRELOAD", library, 1);
        (void)setenv("SUBLET_DIR", NOWHERE, 1);
        (void)setenv("SUBLET_FREEZE", FREEZE_TEST_ONLY, 1);
        (void)setenv("SUBLET_QUIET", "1", 1);
}

static void be_child(const char *library, const char *folder, unsigned gpus, int fd)
{
        char descriptor[16], set[16];
        char *argv[] = {(char *)"sublet", (char *)"doctor", (char *)WORD, descriptor, set, NULL};

        (void)snprintf(descriptor, sizeof(descriptor), "%d", fd);
        (void)snprintf(set, sizeof(set), "%u", gpus);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends the process also if doctor is killed */
        (void)fcntl(fd, F_SETFD, 0);
        set_environment(library, folder);
        (void)execv("/proc/self/exe", argv);
        _exit(127);
}

static bool is_there(int fd, int timeout_ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int r;

        do
                r = poll(&p, 1, timeout_ms);
        while (r < 0 && errno == EINTR);
        return r > 0;
}

/* Reads results until the process ends, which closes its end of the pipe. False: a result did not
 * come in time. */
static bool listen_to(int fd, struct freeze_report *report)
{
        struct said said;

        for (;;) {
                ssize_t n;

                if (!is_there(fd, PATIENCE_MS))
                        return false;
                n = read(fd, &said, sizeof(said));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n != sizeof(said))
                        return true;
                if (said.gpu >= 0 && said.gpu < DRIVER_GPUS_MAX)
                        report->gpus[said.gpu] = said.tried;
        }
}

int freeze_ask(const char *library, const char *folder, unsigned gpus, struct freeze_report *ret)
{
        int ends[2], status = 0;
        pid_t child;

        memset(ret, 0, sizeof(*ret));
        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        child = fork();
        if (child == 0)
                be_child(library, folder, gpus, ends[1]);
        (void)close(ends[1]);
        if (child < 0) {
                (void)close(ends[0]);
                return -EAGAIN;
        }
        if (!listen_to(ends[0], ret)) {
                ret->hung = 1;
                (void)kill(child, SIGKILL);
        }
        if (!ret->hung || is_there(ends[0], KILLED_MS)) {
                while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                        ;
                if (!ret->hung && WIFSIGNALED(status))
                        ret->signal = WTERMSIG(status);
        }
        (void)close(ends[0]);
        return 0;
}
