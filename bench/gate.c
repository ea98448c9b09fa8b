/* gate.c: measures the time that a kernel launch takes the calling thread. run_gate.py runs this
 * program on the no-op driver, with and without libsublet.so. The difference is the cost of
 * sublet's gate and of its wrapper around the driver's function.
 *
 *   gate [--threads N] [--launches M]
 *
 * Launches are timed in batches, so that reading the clock does not count. Prints one JSON line
 * with figures over the batches of all threads. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "cuda/cuda_abi.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

enum { BATCH = 256, THREADS_MAX = 64 };

static size_t batches = 4000;
static CUcontext context;
static pthread_barrier_t start;

struct runner {
        pthread_t thread;
        double *ns; /* nanoseconds per launch, one value for each batch */
};

static void batch(void **parameters)
{
        for (unsigned i = 0; i < BATCH; i++)
                (void)cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
}

static void *run(void *argument)
{
        struct runner *r = argument;
        void *parameters[] = {NULL};

        (void)cuCtxSetCurrent(context);
        for (unsigned i = 0; i < 200; i++)
                batch(parameters);
        (void)pthread_barrier_wait(&start);
        for (size_t i = 0; i < batches; i++) {
                uint64_t began = clock_now_ns();

                batch(parameters);
                r->ns[i] = (double)(clock_now_ns() - began) / BATCH;
        }
        return NULL;
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                {"threads", required_argument, NULL, 't'},
                {"launches", required_argument, NULL, 'n'},
                {0},
        };
        struct runner runner[THREADS_MAX];
        unsigned threads = 1;
        double *all;
        size_t n;
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
                unsigned long v = optarg ? strtoul(optarg, NULL, 10) : 0;

                if (v == 0 || (c == 't' && v > THREADS_MAX)) {
                        (void)fprintf(stderr, "usage: gate [--threads 1..%d] [--launches N]\n",
                                      THREADS_MAX);
                        return 2;
                }
                if (c == 't')
                        threads = (unsigned)v;
                else
                        batches = MAX(v / BATCH, 1UL);
        }
        if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) {
                (void)fprintf(stderr, "gate: no driver\n");
                return 1;
        }
        n = threads * batches;
        all = calloc(n, sizeof(*all));
        if (!all || pthread_barrier_init(&start, NULL, threads))
                return 1;
        for (unsigned i = 0; i < threads; i++) {
                runner[i].ns = all + i * batches;
                if (pthread_create(&runner[i].thread, NULL, run, &runner[i]))
                        return 1;
        }
        for (unsigned i = 0; i < threads; i++)
                (void)pthread_join(runner[i].thread, NULL);
        qsort(all, n, sizeof(*all), by_value);
        (void)printf("{\"threads\":%u,\"median_ns\":%.3f,\"p99_ns\":%.3f,\"min_ns\":%.3f}\n",
                     threads, all[n / 2], all[(n - 1) * 99 / 100], all[0]);
        free(all);
        return 0;
}
