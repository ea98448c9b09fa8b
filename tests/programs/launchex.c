/* launchex, cooperative: the other ways to launch, used for a reduction with shared memory,
 * barriers, shuffles and votes. launchex alternates between cuLaunchKernelEx and cuLaunchKernel
 * with parameters in a buffer; cooperative uses cuLaunchCooperativeKernel. */
#include <string.h>

#include "base/macros.h"
#include "program.h"

enum { GRID = 8 };

struct work {
        CUdeviceptr partial, done, out;
};

/* Computes on the CPU the sum of the words, and how many are odd. */
static void expect(const struct blocks *b, uint64_t round, size_t i, uint64_t ret[static 2])
{
        uint64_t key = pattern_key(options.seed, round);

        ret[0] = ret[1] = 0;
        for (uint64_t w = 0; w < b->block[i].bytes / 8; w++) {
                uint64_t x = pattern_word(b->block[i].origin + 8 * w, key);

                ret[0] += x;
                ret[1] += x & 1;
        }
}

static void reduce(const struct work *k, struct block *b, uint64_t round, CUstream s)
{
        uint64_t words = b->bytes / 8;
        unsigned shared = THREADS / 32 * 8;
        CUdeviceptr partial = k->partial, done = k->done, out = k->out;
        void *parameters[] = {&b->at, &words, &partial, &done, &out};

        TRY(cu.MemsetD32Async(k->done, 0, 1, s));
#ifdef LAUNCH_COOPERATIVE
        (void)round;
        TRY(cu.LaunchCooperativeKernel(kernels.reduce, GRID, 1, 1, THREADS, 1, 1, shared, s,
                                       parameters));
#else
        if (round % 2 == 0) {
                CUlaunchAttribute a = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
                CUlaunchConfig c = {.gridDimX = GRID,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = THREADS,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .sharedMemBytes = shared,
                                    .hStream = s,
                                    .attrs = &a,
                                    .numAttrs = 1};

                TRY(cu.LaunchKernelEx(&c, kernels.reduce, parameters, NULL));
        } else {
                uint64_t buffer[] = {b->at, words, partial, done, out};
                size_t bytes = sizeof(buffer);
                void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer,
                                 CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

                TRY(cu.LaunchKernel(kernels.reduce, GRID, 1, 1, THREADS, 1, 1, shared, s, NULL,
                                    extra));
        }
#endif
}

int main(int argc, char **argv)
{
        struct blocks b;
        struct work k;
        uint64_t round = 0;

        program_begin(argc, argv,
                      &(struct options){.bytes = 8 * MIB, .block = 2 * MIB, .rounds = 3}, false);
        TRY(cu.MemAlloc(&k.partial, GRID * 16));
        TRY(cu.MemAlloc(&k.done, 4));
        TRY(cu.MemAlloc(&k.out, 16));
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        for (; program_more(round); round++) {
                for (size_t i = 0; i < b.n; i++) {
                        uint64_t got[2], want[2];

                        reduce(&k, &b.block[i], round, b.stream);
                        TRY(cu.MemcpyDtoHAsync(got, k.out, sizeof(got), b.stream));
                        TRY(cu.StreamSynchronize(b.stream));
                        expect(&b, round, i, want);
                        if (memcmp(got, want, sizeof(got)) != 0)
                                program_fail(
                                        PROGRAM_EXIT_WRONG,
                                        "block %zu: sum %016llx, %llu odd; not %016llx, %llu", i,
                                        (unsigned long long)got[0], (unsigned long long)got[1],
                                        (unsigned long long)want[0], (unsigned long long)want[1]);
                }
                program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"",
                            (unsigned long long)round, (unsigned long long)blocks_step(&b, round));
        }
        TRY(cu.MemFree(k.partial));
        TRY(cu.MemFree(k.done));
        TRY(cu.MemFree(k.out));
        blocks_free(&b);
        program_end();
}
