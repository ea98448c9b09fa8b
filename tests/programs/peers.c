/* peers: two GPUs of one process. Kernels of the second GPU read memory of the first, allocated
 * before and after access was given; copies go both ways. Each round checks every byte of both. */
#include <stdlib.h>

#include "base/macros.h"
#include "program.h"

static CUcontext contexts[2];
static struct kernels both[2];

static void use(unsigned gpu)
{
        TRY(cu.CtxSetCurrent(contexts[gpu]));
        kernels = both[gpu];
}

static void expect(CUresult got, CUresult wanted, const char *what)
{
        if (got != wanted)
                program_fail(PROGRAM_EXIT_WRONG, "%s: %d, not %d", what, (int)got, (int)wanted);
}

/* Clears the second GPU's words, and adds the first GPU's words to them. */
static void add_across(struct blocks *to, const struct blocks *from)
{
        use(1);
        for (size_t i = 0; i < to->n; i++) {
                TRY(cu.MemsetD8Async(to->block[i].at, 0, to->block[i].bytes, to->stream));
                launch_add(to->block[i].at, from->block[i].at, to->block[i].bytes, to->stream);
        }
        TRY(cu.StreamSynchronize(to->stream));
}

int main(int argc, char **argv)
{
        struct blocks first, second, late;
        uint64_t round = 0;
        int count = 0, can = 0;

        program_begin(argc, argv,
                      &(struct options){.bytes = 8 * MIB, .block = 2 * MIB, .rounds = 4}, false);
        TRY(cu.DeviceGetCount(&count));
        if (count < 2)
                program_fail(PROGRAM_EXIT_SETUP, "needs two GPUs");
        TRY(cu.DeviceCanAccessPeer(&can, 1, 0));
        if (!can)
                program_fail(PROGRAM_EXIT_SETUP, "the GPUs cannot access each other");
        TRY(cu.CtxGetCurrent(&contexts[0]));
        both[0] = kernels;
        TRY(cu.DevicePrimaryCtxRetain(&contexts[1], 1));
        TRY(cu.CtxSetCurrent(contexts[1]));
        kernels_load(&both[1]);

        use(0);
        blocks_allocate(&first, options.bytes, options.block, 0);
        blocks_fill(&first, 0);
        use(1);
        expect(cu.CtxDisablePeerAccess(contexts[0]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "disable");
        expect(cu.CtxEnablePeerAccess(contexts[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "self");
        TRY(cu.CtxEnablePeerAccess(contexts[0], 0));
        expect(cu.CtxEnablePeerAccess(contexts[0], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
               "enable again");
        blocks_allocate(&second, options.bytes, options.block, 0);
        use(0);
        blocks_allocate(&late, options.bytes, options.block, 0);
        blocks_fill(&late, 0);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        do {
                uint64_t sums[3];

                add_across(&second, &first);
                sums[0] = blocks_verify(&second, round);
                add_across(&second, &late);
                sums[1] = blocks_verify(&second, round);
                /* Copies need no peer access: this one goes to the second GPU and back. */
                for (size_t i = 0; i < first.n; i++)
                        TRY(cu.MemcpyPeer(second.block[i].at, contexts[1], first.block[i].at,
                                          contexts[0], first.block[i].bytes));
                use(1);
                TRY(cu.CtxSynchronize());
                sums[2] = blocks_step(&second, round);
                for (size_t i = 0; i < first.n; i++)
                        TRY(cu.MemcpyPeer(first.block[i].at, contexts[0], second.block[i].at,
                                          contexts[1], first.block[i].bytes));
                TRY(cu.CtxSynchronize());
                use(0);
                TRY(cu.CtxSynchronize());
                (void)blocks_step(&late, round);
                round++;
                program_say("round",
                            "\"round\":%llu,\"sums\":[\"%016llx\",\"%016llx\",\"%016llx\"]",
                            (unsigned long long)round, (unsigned long long)sums[0],
                            (unsigned long long)sums[1], (unsigned long long)sums[2]);
        } while (program_more(round));
        use(1);
        TRY(cu.CtxDisablePeerAccess(contexts[0]));
        blocks_free(&second);
        use(0);
        blocks_free(&first);
        blocks_free(&late);
        TRY(cu.DevicePrimaryCtxRelease(1));
        program_end();
}
