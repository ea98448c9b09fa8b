/* burst: submits --count kernels of --ms each as fast as the driver takes them, then waits for
 * them. At the end it checks its memory, which the kernels do not touch. A test can measure how
 * much longer than the longest kernel a drain takes. */
#include "base/macros.h"
#include "program.h"

int main(int argc, char **argv)
{
        uint64_t round = 0, counted;
        CUdeviceptr counter;
        struct blocks b;

        program_begin(
                argc, argv,
                &(struct options){
                        .bytes = 16 * MIB, .block = 4 * MIB, .rounds = 2, .ms = 5, .count = 200},
                false);
        blocks_allocate(&b, options.bytes, options.block, 0);
        TRY(cu.MemAlloc(&counter, 8));
        TRY(cu.MemsetD8(counter, 0, 8));
        TRY(cu.CtxSynchronize());
        blocks_fill(&b, 0);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        do {
                for (uint64_t i = 0; i < options.count; i++)
                        launch_spin((uint64_t)(options.ms * 1e6), counter, b.stream);
                TRY(cu.StreamSynchronize(b.stream));
                round++;
        } while (program_more(round));
        TRY(cu.MemcpyDtoH(&counted, counter, 8));
        if (counted != round * options.count)
                program_fail(PROGRAM_EXIT_WRONG, "%llu kernels counted, not %llu",
                             (unsigned long long)counted,
                             (unsigned long long)(round * options.count));
        program_say("round", "\"round\":0,\"sum\":\"%016llx\"",
                    (unsigned long long)blocks_verify(&b, 0));
        if (options.sample)
                blocks_sample(&b, 0, options.sample);
        TRY(cu.MemFree(counter));
        blocks_free(&b);
        program_end();
}
