/* regular: a job whose steps are all alike, so that a test knows what is to be measured. Each step
 * copies --block bytes to the device, checks and rewrites the program's memory, and launches `tiny`
 * --count times. --how:
 *
 *   plain    the tiny kernels are launched one by one
 *   graph    they are one graph, captured before the first step
 *   late     as plain for --ms, then as graph
 *   threads  another thread works in the same way on a stream of its own
 *   wait     as plain, and between two steps the program sleeps for --ms */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "program.h"

enum how { PLAIN, GRAPH, LATE, THREADS_TWO, WAIT };
static const char *const names[] = {"plain", "graph", "late", "threads", "wait"};

static enum how how;
static _Atomic bool over;

struct worker {
        CUstream stream;
        CUdeviceptr counter, input;
        void *host;
        CUgraphExec graph;
        uint64_t graph_ns; /* when the graph is used first */
        uint64_t launched;
};

static void worker_begin(struct worker *w)
{
        CUgraph graph;

        TRY(cu.StreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
        TRY(cu.MemAlloc(&w->counter, 16));
        TRY(cu.MemsetD8(w->counter, 0, 16));
        TRY(cu.MemAlloc(&w->input, options.block));
        TRY(cu.CtxSynchronize());
        w->host = calloc(1, options.block);
        if (!w->host)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        if (how != GRAPH && how != LATE)
                return;
        TRY(cu.StreamBeginCapture(w->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (uint64_t i = 0; i < options.count; i++)
                launch_tiny(w->counter, w->stream);
        TRY(cu.StreamEndCapture(w->stream, &graph));
        TRY(cu.GraphInstantiateWithFlags(&w->graph, graph, 0));
        TRY(cu.GraphDestroy(graph));
        if (how == LATE)
                w->graph_ns = clock_now_ns() + (uint64_t)(options.ms * NSEC_PER_MSEC);
}

static void worker_step(struct worker *w)
{
        const bool whole = w->graph && clock_now_ns() >= w->graph_ns;

        TRY(cu.MemcpyHtoDAsync(w->input, w->host, options.block, w->stream));
        if (whole)
                TRY(cu.GraphLaunch(w->graph, w->stream));
        for (uint64_t i = 0; !whole && i < options.count; i++)
                launch_tiny(w->counter, w->stream);
        TRY(cu.StreamSynchronize(w->stream));
        w->launched += options.count;
}

static void worker_end(struct worker *w)
{
        uint32_t counted = 0;

        TRY(cu.MemcpyDtoH(&counted, w->counter, sizeof(counted)));
        if (counted != (uint32_t)w->launched)
                program_fail(PROGRAM_EXIT_WRONG, "%u kernels have run, not %llu", counted,
                             (unsigned long long)w->launched);
        free(w->host);
}

static void *work_beside(void *unused)
{
        struct worker w = {0};

        program_thread();
        worker_begin(&w);
        while (!over)
                worker_step(&w);
        worker_end(&w);
        return NULL;
}

int main(int argc, char **argv)
{
        struct worker w = {0};
        pthread_t other;
        struct blocks b;
        uint64_t round = 0;

        program_begin(argc, argv,
                      &(struct options){.bytes = 64 * KIB,
                                        .block = 16 * KIB,
                                        .rounds = 100000,
                                        .count = 5,
                                        .ms = 20,
                                        .how = "plain"},
                      false);
        how = (enum how)program_how(names, ARRAY_SIZE(names));
        blocks_allocate(&b, options.bytes, options.bytes / 2, 0);
        blocks_fill(&b, 0);
        worker_begin(&w);
        if (how == THREADS_TWO && pthread_create(&other, NULL, work_beside, NULL))
                program_fail(PROGRAM_EXIT_SETUP, "no thread");
        for (; program_more(round); round++) {
                program_say("round", "\"sum\":\"%llx\"",
                            (unsigned long long)blocks_step(&b, round));
                worker_step(&w);
                if (how == WAIT)
                        (void)usleep((useconds_t)(options.ms * 1000));
        }
        over = true;
        if (how == THREADS_TWO)
                (void)pthread_join(other, NULL);
        worker_end(&w);
        program_say("ended", "\"sum\":\"%llx\"", (unsigned long long)blocks_verify(&b, round));
        program_end();
}
