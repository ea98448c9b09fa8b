/* contexts: in each of --rounds rounds, makes a second context beside the primary one, does a
 * little work in each, and destroys the second. */
#include "base/macros.h"
#include "program.h"

/* Works in the current context. Returns the sum of the contents. */
static uint64_t work(uint64_t round)
{
        struct blocks b;
        uint64_t sum;

        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, round);
        sum = blocks_verify(&b, round);
        blocks_free(&b);
        return sum;
}

int main(int argc, char **argv)
{
        struct kernels primary;
        CUcontext own;
        CUdevice device;

        program_begin(argc, argv,
                      &(struct options){.bytes = 1 * MIB, .block = 256 * KIB, .rounds = 2}, false);
        primary = kernels;
        TRY(cu.DeviceGet(&device, 0));
        for (uint64_t round = 0; program_more(round); round++) {
                uint64_t sums[2];

                sums[0] = work(round);
                TRY(cu.CtxCreate(&own, 0, device));
                kernels_load(&kernels);
                sums[1] = work(round);
                TRY(cu.CtxDestroy(own));
                kernels = primary;
                program_thread();
                if (sums[0] != sums[1])
                        program_fail(PROGRAM_EXIT_WRONG, "the contexts' sums differ");
                program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"",
                            (unsigned long long)round, (unsigned long long)sums[0]);
        }
        program_end();
}
