/* late: threads that use the GPU while they end. Each round starts --count threads (default 4).
 * Each thread fills memory of its own. A destructor of the thread, which runs after the libraries'
 * destructors, checks, rewrites and frees that memory. The main thread works at the same time, as
 * the program `fill` does. */
#include <limits.h>
#include <pthread.h>

#include "base/macros.h"
#include "program.h"

enum { THREADS_MAX = 64, OWN_BYTES = 1 << 20 };

struct worker {
        pthread_t thread;
        struct blocks b;
        unsigned number, ends; /* ends: how often the destructor has run */
};

static pthread_key_t key;

/* Runs once in every round of destructors. */
static void ending(void *argument)
{
        struct worker *w = argument;

        (void)blocks_step(&w->b, w->ends++);
        if (w->ends < PTHREAD_DESTRUCTOR_ITERATIONS) {
                (void)pthread_setspecific(key, w);
                return;
        }
        (void)blocks_verify(&w->b, w->ends);
        blocks_free(&w->b);
}

static void *work(void *argument)
{
        struct worker *w = argument;

        program_thread();
        blocks_allocate(&w->b, OWN_BYTES, OWN_BYTES, w->number * (size_t)1000);
        blocks_fill(&w->b, 0);
        (void)pthread_setspecific(key, w);
        return NULL;
}

int main(int argc, char **argv)
{
        static struct worker worker[THREADS_MAX];
        struct blocks b;
        uint64_t round = 0;
        unsigned n;

        program_begin(
                argc, argv,
                &(struct options){.bytes = 32 * MIB, .block = 4 * MIB, .rounds = 3, .count = 4},
                false);
        n = (unsigned)MIN(MAX(options.count, UINT64_C(1)), (uint64_t)THREADS_MAX);
        /* This key is made after cuInit, so the libraries' destructors run before this one. */
        if (pthread_key_create(&key, ending))
                program_fail(PROGRAM_EXIT_SETUP, "cannot create a key");
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        for (; program_more(round + 1); round++) {
                for (unsigned i = 0; i < n; i++) {
                        worker[i] = (struct worker){.number = i + 1};
                        if (pthread_create(&worker[i].thread, NULL, work, &worker[i]))
                                program_fail(PROGRAM_EXIT_SETUP, "cannot create a thread");
                }
                program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"",
                            (unsigned long long)round, (unsigned long long)blocks_step(&b, round));
                for (unsigned i = 0; i < n; i++)
                        (void)pthread_join(worker[i].thread, NULL);
        }
        program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)blocks_verify(&b, round));
        blocks_free(&b);
        program_end();
}
