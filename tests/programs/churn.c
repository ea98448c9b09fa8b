/* churn: frees memory that a long kernel may still use, allocates again, overwrites the new memory
 * at once on another stream, and checks. Bytes that are reused too early show as wrong contents. */
#include <stdlib.h>

#include "base/macros.h"
#include "program.h"

struct piece {
        CUdeviceptr at;
        uint64_t bytes, origin, round;
};

/* Allocates a random size, so that the next allocations do not fit freed blocks exactly. */
static void piece_allocate(struct piece *p, size_t index, uint64_t *random)
{
        p->bytes =
                (options.block / 2 + program_random(random) % (options.block / 2)) & ~UINT64_C(7);
        p->origin = pattern_origin(index);
        TRY(cu.MemAlloc(&p->at, p->bytes));
}

int main(int argc, char **argv)
{
        CUdeviceptr verdict, counter;
        CUstream busy, other;
        uint64_t random, round = 0;
        struct piece *piece;
        size_t n;

        program_begin(argc, argv,
                      &(struct options){.bytes = 48 * MIB, .block = 4 * MIB, .rounds = 24, .ms = 5},
                      false);
        random = options.seed + 1;
        n = (size_t)MAX(options.bytes / options.block, UINT64_C(2));
        piece = calloc(n, sizeof(*piece));
        if (!piece)
                return PROGRAM_EXIT_SETUP;
        TRY(cu.StreamCreate(&busy, CU_STREAM_NON_BLOCKING));
        TRY(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
        verdict = verdict_new();
        counter = verdict_new();
        for (size_t i = 0; i < n; i++) {
                piece_allocate(&piece[i], i, &random);
                launch_fill(piece[i].at, piece[i].bytes, piece[i].origin,
                            pattern_key(options.seed, 0), busy);
        }
        for (; program_more(round); round++) {
                struct piece *p = &piece[round % n];
                uint64_t key = pattern_key(options.seed, p->round);

                /* Behind a long kernel, checks the contents and scribbles over them. */
                launch_spin((uint64_t)(options.ms * 1e6), counter, busy);
                launch_step(p->at, p->bytes, p->origin, key, ~key, verdict, busy);
                /* Frees the memory while the kernels above have hardly begun. */
                TRY(cu.MemFree(p->at));
                piece_allocate(p, round % n, &random);
                p->round = round + 1;
                launch_fill(p->at, p->bytes, p->origin, pattern_key(options.seed, p->round), other);
                (void)verdict_take(verdict, round, busy);
                TRY(cu.StreamSynchronize(other));
        }
        for (size_t i = 0; i < n; i++)
                launch_verify(piece[i].at, piece[i].bytes, piece[i].origin,
                              pattern_key(options.seed, piece[i].round), verdict, busy);
        program_say("sum", "\"sum\":\"%016llx\"",
                    (unsigned long long)verdict_take(verdict, round, busy));
        for (size_t i = 0; i < n; i++)
                TRY(cu.MemFree(piece[i].at));
        free(piece);
        program_end();
}
