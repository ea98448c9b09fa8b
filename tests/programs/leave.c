/* leave: threads that wait at the gate when they or their process end. The program fills its
 * memory, prints a line, and waits for the file --sample. Then --count threads submit. --how says
 * what happens after --ms milliseconds:
 *
 *   cancel   they are cancelled and joined; accepted work is counted, and all memory is checked
 *   signal   they are sent signals, again and again
 *   exit     the process exits as soon as the file --until exists, and an exit handler
 *            frees its memory
 *   join     the process exits, too; an exit handler that was registered before cuInit joins the
 *            threads, as destructors of static objects do
 *   linger   the process exits; an exit handler that was registered before cuInit waits until the
 *            file --sample is gone
 *   fork     a child is forked while other threads call the driver; the child calls it and exits;
 *            again and again */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

#define MOST_S      120 /* limit of every wait */
#define THREADS_MAX 16

enum how { CANCEL, SIGNAL, EXIT, JOIN, LINGER, FORK };
static const char *const names[] = {"cancel", "signal", "exit", "join", "linger", "fork"};

static enum how how;
static struct blocks b;
static CUdeviceptr counters; /* one counter for each thread */
static pthread_t threads[THREADS_MAX];
static size_t started;
static _Atomic bool stop;
static _Atomic unsigned launched[THREADS_MAX], signals, begun;

/* True if the driver has shut down, as it may in these modes. */
static bool over(CUresult r)
{
        return r == CUDA_ERROR_DEINITIALIZED && (how == EXIT || how == JOIN);
}

static void *submit(void *argument)
{
        unsigned i = (unsigned)(uintptr_t)argument;
        CUstream stream;
        CUresult r;
        int old;

        /* A thread must not be cancelled between the driver's change and the program's record. */
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
        program_thread();
        atomic_fetch_add(&begun, 1);
        r = cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        if (over(r))
                return NULL;
        TRY(r);
        (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
        while (!atomic_load(&stop)) {
                CUdeviceptr counter = counters + 4 * i;

                r = cu.LaunchKernel(kernels.tiny, 1, 1, 1, 32, 1, 1, 0, stream,
                                    (void *[]){&counter}, NULL);
                if (over(r))
                        break;
                TRY(r);
                atomic_fetch_add(&launched[i], 1);
                pthread_testcancel();
        }
        return NULL;
}

/* Makes calls all the time that wait for no other thread, so that a fork finds one going on. */
static void *ask(void *unused)
{
        size_t total_bytes;

        while (!atomic_load(&stop))
                TRY(cu.DeviceTotalMem(&total_bytes, 0));
        return NULL;
}

static void on_signal(int number)
{
        atomic_fetch_add(&signals, 1);
}

static void free_at_exit(void)
{
        for (size_t i = 0; i < b.n; i++)
                TRY(cu.MemFree(b.block[i].at));
        program_say("freed", "\"blocks\":%zu", b.n);
}

static void one_child(void)
{
        size_t free_bytes, total_bytes;
        unsigned type = 0;
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                /* Any answer of the driver is right in a child, but it must answer. */
                (void)cu.MemGetInfo(&free_bytes, &total_bytes);
                (void)cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             b.block[0].at);
                (void)cu.MemFree(b.block[0].at);
                _exit(42);
        }
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
                program_fail(PROGRAM_EXIT_WRONG, "a child ended badly");
}

static void join_at_exit(void)
{
        for (size_t i = 0; i < started; i++)
                (void)pthread_join(threads[i], NULL);
        if (started)
                program_say("joined", "\"threads\":%zu", started);
}

static void linger_at_exit(void)
{
        if (how != LINGER)
                return;
        program_say("lingers", "\"threads\":0");
        while (access(options.sample, F_OK) == 0)
                (void)usleep(10000);
}

static void act(size_t n)
{
        const struct timespec nap = {.tv_nsec = 20000000};
        pthread_t asking[2];

        switch (how) {
        case CANCEL:
                for (size_t i = 0; i < n; i++)
                        (void)pthread_cancel(threads[i]);
                program_say("cancelled", "\"threads\":%zu", n);
                break;
        case SIGNAL:
                while (access(options.until, F_OK) < 0) {
                        for (size_t i = 0; i < n; i++)
                                (void)pthread_kill(threads[i], SIGUSR1);
                        (void)nanosleep(&nap, NULL);
                }
                program_say("signalled", "\"signals\":%u", atomic_load(&signals));
                break;
        case EXIT:
        case JOIN:
        case LINGER:
                while (access(options.until, F_OK) < 0)
                        (void)nanosleep(&nap, NULL);
                exit(PROGRAM_EXIT_OK);
        case FORK:
                for (size_t i = 0; i < ARRAY_SIZE(asking); i++)
                        if (pthread_create(&asking[i], NULL, ask, NULL))
                                program_fail(PROGRAM_EXIT_SETUP, "pthread_create");
                for (unsigned children = 0;; children++) {
                        one_child();
                        if (children >= 20 && access(options.until, F_OK) == 0)
                                break;
                        (void)nanosleep(&nap, NULL);
                }
                atomic_store(&stop, true);
                for (size_t i = 0; i < ARRAY_SIZE(asking); i++)
                        (void)pthread_join(asking[i], NULL);
                break;
        }
}

int main(int argc, char **argv)
{
        const struct sigaction action = {.sa_handler = on_signal};
        unsigned counted[THREADS_MAX];
        size_t n;

        if (atexit(join_at_exit) || atexit(linger_at_exit))
                program_fail(PROGRAM_EXIT_SETUP, "atexit");
        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB,
                                        .block = 4 * MIB,
                                        .ms = 300,
                                        .count = 4,
                                        .how = "cancel"},
                      false);
        how = (enum how)program_how(names, ARRAY_SIZE(names));
        n = MIN(options.count, (uint64_t)THREADS_MAX);
        if (!options.until || !options.sample)
                program_fail(PROGRAM_EXIT_USAGE, "--until and --sample name the files to wait for");
        (void)alarm(MOST_S);
        (void)sigaction(SIGUSR1, &action, NULL);
        blocks_allocate(&b, options.bytes, options.block, 0);
        TRY(cu.MemAlloc(&counters, 4 * THREADS_MAX));
        TRY(cu.MemsetD32(counters, 0, THREADS_MAX));
        TRY(cu.CtxSynchronize());
        blocks_fill(&b, 0);
        if (how == EXIT && atexit(free_at_exit))
                program_fail(PROGRAM_EXIT_SETUP, "atexit");
        program_say("filled", "\"how\":\"%s\"", options.how);
        while (access(options.sample, F_OK) < 0)
                (void)usleep(10000);
        for (size_t i = 0; i < n; i++)
                if (pthread_create(&threads[i], NULL, submit, (void *)(uintptr_t)i))
                        program_fail(PROGRAM_EXIT_SETUP, "no thread");
        while (atomic_load(&begun) < n)
                (void)usleep(1000);
        (void)usleep((useconds_t)(options.ms * 1000));
        started = how == JOIN ? n : 0;
        act(n);
        atomic_store(&stop, true);
        for (size_t i = 0; i < n; i++)
                (void)pthread_join(threads[i], NULL);
        TRY(cu.CtxSynchronize());
        TRY(cu.MemcpyDtoH(counted, counters, sizeof(counted)));
        for (size_t i = 0; i < n; i++)
                if (counted[i] != atomic_load(&launched[i]))
                        program_fail(PROGRAM_EXIT_WRONG, "thread %zu: %u launches counted, not %u",
                                     i, counted[i], atomic_load(&launched[i]));
        program_say("round", "\"round\":0,\"sum\":\"%016llx\"",
                    (unsigned long long)blocks_verify(&b, 0));
        TRY(cu.MemFree(counters));
        blocks_free(&b);
        program_end();
}
