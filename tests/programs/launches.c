/* launches: measures --rounds times, after a warm-up, how long --count launches of a tiny kernel
 * and a synchronise take. Prints the nanoseconds for one launch, once at the start and once for
 * each line on stdin. With --bytes it holds memory as well. */
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "program.h"

static double one_round(CUdeviceptr counter, CUstream s)
{
        uint64_t began = program_now_ns();
        void *parameters[] = {&counter};

        for (uint64_t i = 0; i < options.count; i++)
                TRY(cu.LaunchKernel(kernels.tiny, 1, 1, 1, 32, 1, 1, 0, s, parameters, NULL));
        TRY(cu.StreamSynchronize(s));
        return (double)(program_now_ns() - began) / (double)options.count;
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return x < y ? -1 : x > y;
}

/* Makes one measurement. Returns how many kernels it launched. */
static uint64_t measure(CUdeviceptr counter, CUstream s, double *ns, uint64_t n)
{
        uint64_t warm_up = n / 10 + 1;

        for (uint64_t i = 0; i < warm_up; i++)
                (void)one_round(counter, s);
        for (uint64_t i = 0; i < n; i++)
                ns[i] = one_round(counter, s);
        qsort(ns, n, sizeof(*ns), by_value);
        program_say("launches", "\"median_ns\":%.1f,\"p99_ns\":%.1f,\"min_ns\":%.1f", ns[n / 2],
                    ns[(n - 1) * 99 / 100], ns[0]);
        return (n + warm_up) * options.count;
}

int main(int argc, char **argv)
{
        uint64_t n, launched = 0;
        CUdeviceptr counter;
        unsigned counted;
        struct blocks b;
        char line[64];
        double *ns;

        program_begin(argc, argv,
                      &(struct options){.count = 500, .rounds = 200, .block = 256 * MIB}, false);
        TRY(cu.MemAlloc(&counter, 4));
        TRY(cu.MemsetD8(counter, 0, 4));
        TRY(cu.CtxSynchronize());
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        n = MAX(options.rounds, UINT64_C(1));
        ns = calloc(n, sizeof(*ns));
        if (!ns)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        do
                launched += measure(counter, b.stream, ns, n);
        while (fgets(line, sizeof(line), stdin));
        TRY(cu.MemcpyDtoH(&counted, counter, 4));
        if (counted != (unsigned)launched)
                program_fail(PROGRAM_EXIT_WRONG, "%u kernels counted", counted);
        (void)blocks_verify(&b, 0);
        blocks_free(&b);
        TRY(cu.MemFree(counter));
        free(ns);
        program_end();
}
