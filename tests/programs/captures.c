/* captures: several threads capture graphs slowly at the same time, while another thread works
 * beside them. Each graph checks and rewrites all of its thread's memory, and is launched.
 * --count: number of threads. --ms: how long each thread pauses in its capture. --how:
 *
 *   global, local, relaxed   the mode of the captures
 *   free                     mode relaxed; memory is freed in the middle of each capture
 *   endless                  one capture ends only when everything else has ended */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

#define MOST_S 120 /* limit of every wait */

enum how { GLOBAL, LOCAL, RELAXED, FREE, ENDLESS };
static const char *const names[] = {"global", "local", "relaxed", "free", "endless"};
static const CUstreamCaptureMode modes[] = {
        CU_STREAM_CAPTURE_MODE_GLOBAL,  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED,
        CU_STREAM_CAPTURE_MODE_RELAXED,
};

struct worker {
        pthread_t thread;
        struct blocks b;
        uint64_t sum; /* the sum of the last round */
};

static enum how how;
static pthread_barrier_t step; /* waits for all workers and the main thread */
static uint64_t round_now;
static bool more = true;
static _Atomic unsigned capturing; /* workers whose capture has not ended yet */

static void steps(struct worker *w, size_t from, size_t to)
{
        for (size_t i = from; i < to; i++)
                launch_step(w->b.block[i].at, w->b.block[i].bytes, w->b.block[i].origin,
                            pattern_key(options.seed, round_now),
                            pattern_key(options.seed, round_now + 1), w->b.verdict, w->b.stream);
}

/* Allocates during a capture, as a growing cache does. Meanwhile the thread is in relaxed mode. */
static void allocate_as_frameworks_do(void)
{
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        CUdeviceptr p;

        TRY(cu.ThreadExchangeStreamCaptureMode(&mode));
        TRY(cu.MemAlloc(&p, options.bytes / options.count));
        TRY(cu.MemFree(p));
        TRY(cu.ThreadExchangeStreamCaptureMode(&mode));
}

static CUgraphExec capture(struct worker *w)
{
        CUdeviceptr extra = 0;
        CUgraphExec exec;
        CUgraph graph;

        if (how == FREE)
                TRY(cu.MemAlloc(&extra, options.bytes / options.count));
        TRY(cu.StreamBeginCapture(w->b.stream, modes[how]));
        steps(w, 0, w->b.n / 2);
        (void)usleep((useconds_t)(options.ms * 500));
        if (how == FREE)
                TRY(cu.MemFree(extra));
        else if (how != ENDLESS)
                allocate_as_frameworks_do();
        (void)usleep((useconds_t)(options.ms * 500));
        steps(w, w->b.n / 2, w->b.n);
        TRY(cu.StreamEndCapture(w->b.stream, &graph));
        atomic_fetch_sub(&capturing, 1);
        /* Waits for all captures to end, because in global mode the calls below would break a
         * capture of another thread. */
        (void)pthread_barrier_wait(&step);
        TRY(cu.GraphInstantiateWithFlags(&exec, graph, 0));
        TRY(cu.GraphDestroy(graph));
        return exec;
}

static void *worker_main(void *argument)
{
        struct worker *w = argument;

        program_thread();
        for (;;) {
                CUgraphExec exec;

                (void)pthread_barrier_wait(&step); /* a round begins, or the run ends */
                if (!more)
                        return NULL;
                if (how == ENDLESS) {
                        steps(w, 0, w->b.n);
                        atomic_fetch_sub(&capturing, 1);
                        (void)pthread_barrier_wait(&step);
                        w->sum = verdict_take(w->b.verdict, round_now, w->b.stream);
                } else {
                        exec = capture(w);
                        TRY(cu.GraphLaunch(exec, w->b.stream));
                        w->sum = verdict_take(w->b.verdict, round_now, w->b.stream);
                        TRY(cu.GraphExecDestroy(exec));
                }
                (void)pthread_barrier_wait(&step); /* the round is over */
        }
}

static void say_round(const struct worker *workers)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < options.count; i++)
                sum += workers[i].sum;
        program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round_now,
                    (unsigned long long)sum);
}

int main(int argc, char **argv)
{
        CUstream beside, never_ending = NULL;
        unsigned launches = 0, counted;
        struct worker *workers;
        CUdeviceptr counter;
        CUgraph graph;

        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB,
                                        .block = 1 * MIB,
                                        .rounds = 3,
                                        .ms = 100,
                                        .count = 2,
                                        .how = "global"},
                      false);
        how = (enum how)program_how(names, ARRAY_SIZE(names));
        if (options.bytes % (options.count * options.block))
                program_fail(PROGRAM_EXIT_USAGE, "--bytes is no multiple of --count blocks");
        (void)alarm(MOST_S);
        workers = calloc(options.count, sizeof(*workers));
        if (!workers || pthread_barrier_init(&step, NULL, (unsigned)options.count + 1))
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        TRY(cu.MemAlloc(&counter, 4));
        TRY(cu.MemsetD32(counter, 0, 1));
        TRY(cu.StreamCreate(&beside, CU_STREAM_NON_BLOCKING));
        for (size_t i = 0; i < options.count; i++) {
                uint64_t bytes = options.bytes / options.count;

                blocks_allocate(&workers[i].b, bytes, options.block, i * (bytes / options.block));
                blocks_fill(&workers[i].b, 0);
                if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]))
                        program_fail(PROGRAM_EXIT_SETUP, "no thread");
        }
        if (how == ENDLESS) {
                TRY(cu.StreamCreate(&never_ending, CU_STREAM_NON_BLOCKING));
                TRY(cu.StreamBeginCapture(never_ending, modes[how]));
        }
        program_say("filled", "\"how\":\"%s\"", options.how);
        do {
                atomic_store(&capturing, (unsigned)options.count);
                (void)pthread_barrier_wait(&step);
                while (atomic_load(&capturing) > 0) {
                        launch_tiny(counter, beside);
                        launches++;
                        (void)usleep(1000);
                }
                (void)pthread_barrier_wait(&step);
                (void)pthread_barrier_wait(&step);
                say_round(workers);
                round_now++;
        } while (program_more(round_now));
        more = false;
        (void)pthread_barrier_wait(&step);
        if (how == ENDLESS) {
                TRY(cu.StreamEndCapture(never_ending, &graph));
                TRY(cu.GraphDestroy(graph));
                TRY(cu.StreamDestroy(never_ending));
        }
        for (size_t i = 0; i < options.count; i++) {
                (void)pthread_join(workers[i].thread, NULL);
                workers[i].sum = blocks_verify(&workers[i].b, round_now);
        }
        say_round(workers);
        TRY(cu.StreamSynchronize(beside));
        TRY(cu.MemcpyDtoH(&counted, counter, 4));
        if (counted != launches)
                program_fail(PROGRAM_EXIT_WRONG, "%u launches counted, not %u", counted, launches);
        for (size_t i = 0; i < options.count; i++)
                blocks_free(&workers[i].b);
        TRY(cu.MemFree(counter));
        TRY(cu.StreamDestroy(beside));
        free(workers);
        program_end();
}
