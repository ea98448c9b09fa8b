/* threads: --count threads (default 4), each with its own stream and its own part of the memory. */
#include <pthread.h>

#include "base/macros.h"
#include "program.h"

enum { WORKERS_MAX = 64 };

struct worker {
        pthread_t thread;
        unsigned number;
        uint64_t rounds, sum;
};

static unsigned workers;

static void *work(void *argument)
{
        struct worker *w = argument;
        uint64_t bytes = options.bytes / workers;
        struct blocks b;

        program_thread();
        blocks_allocate(&b, bytes, options.block, w->number * (size_t)1000);
        blocks_fill(&b, 0);
        while (program_more(w->rounds + 1)) {
                (void)blocks_step(&b, w->rounds);
                w->rounds++;
        }
        w->sum = blocks_verify(&b, w->rounds);
        blocks_free(&b);
        return NULL;
}

int main(int argc, char **argv)
{
        struct worker worker[WORKERS_MAX];

        program_begin(
                argc, argv,
                &(struct options){.bytes = 48 * MIB, .block = 4 * MIB, .rounds = 3, .count = 4},
                false);
        workers = (unsigned)MIN(MAX(options.count, UINT64_C(1)), (uint64_t)WORKERS_MAX);
        for (unsigned i = 0; i < workers; i++) {
                worker[i] = (struct worker){.number = i};
                if (pthread_create(&worker[i].thread, NULL, work, &worker[i]))
                        program_fail(PROGRAM_EXIT_SETUP, "cannot create a thread");
        }
        for (unsigned i = 0; i < workers; i++) {
                (void)pthread_join(worker[i].thread, NULL);
                program_say("thread", "\"thread\":%u,\"rounds\":%llu,\"sum\":\"%016llx\"", i,
                            (unsigned long long)worker[i].rounds,
                            (unsigned long long)worker[i].sum);
        }
        program_end();
}
