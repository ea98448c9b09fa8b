/* spin: runs kernels of --ms each, one after the other, and checks its memory at the end. */
#include "base/macros.h"
#include "program.h"

int main(int argc, char **argv)
{
        CUdeviceptr counter;
        uint64_t round = 0, counted;
        struct blocks b;

        program_begin(argc, argv,
                      &(struct options){.bytes = 4 * MIB, .block = 4 * MIB, .rounds = 10, .ms = 20},
                      false);
        TRY(cu.MemAlloc(&counter, 8));
        TRY(cu.MemsetD8(counter, 0, 8));
        TRY(cu.CtxSynchronize());
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        for (; program_more(round); round++) {
                launch_spin((uint64_t)(options.ms * 1e6), counter, b.stream);
                TRY(cu.StreamSynchronize(b.stream));
        }
        TRY(cu.MemcpyDtoH(&counted, counter, 8));
        if (counted != round)
                program_fail(PROGRAM_EXIT_WRONG, "%llu kernels counted, not %llu",
                             (unsigned long long)counted, (unsigned long long)round);
        program_say("sum", "\"kernels\":%llu,\"sum\":\"%016llx\"", (unsigned long long)counted,
                    (unsigned long long)blocks_verify(&b, 0));
        TRY(cu.MemFree(counter));
        blocks_free(&b);
        program_end();
}
