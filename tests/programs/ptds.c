/* ptds: two threads name no stream, and use the variants for per-thread default streams. One thread
 * keeps its stream busy with long kernels; the other thread's work must not wait for these. */
#include <pthread.h>

#include "base/macros.h"
#include "program.h"

static void *spin(void *argument)
{
        CUdeviceptr *counter = argument;

        program_thread();
        for (uint64_t i = 0; i < options.count; i++)
                launch_spin((uint64_t)(options.ms * 1e6), *counter, NULL);
        TRY(cu.StreamSynchronize(NULL));
        return NULL;
}

int main(int argc, char **argv)
{
        CUdeviceptr counter;
        uint64_t round = 0, spins;
        struct blocks b;
        pthread_t thread;

        program_begin(
                argc, argv,
                &(struct options){
                        .bytes = 16 * MIB, .block = 4 * MIB, .rounds = 3, .count = 10, .ms = 10},
                true);
        TRY(cu.MemAlloc(&counter, 8));
        TRY(cu.MemsetD8(counter, 0, 8));
        blocks_allocate(&b, options.bytes, options.block, 0);
        TRY(cu.StreamDestroy(b.stream));
        b.stream = NULL;
        blocks_fill(&b, 0);
        if (pthread_create(&thread, NULL, spin, &counter))
                program_fail(PROGRAM_EXIT_SETUP, "cannot create a thread");
        while (program_more(round + 1)) {
                (void)blocks_step(&b, round);
                round++;
        }
        program_say("sum", "\"sum\":\"%016llx\"", (unsigned long long)blocks_verify(&b, round));
        (void)pthread_join(thread, NULL);
        TRY(cu.MemcpyDtoH(&spins, counter, 8));
        if (spins != options.count)
                program_fail(PROGRAM_EXIT_WRONG, "%llu kernels counted, not %llu",
                             (unsigned long long)spins, (unsigned long long)options.count);
        TRY(cu.MemFree(counter));
        TRY(cu.StreamCreate(&b.stream, CU_STREAM_NON_BLOCKING));
        blocks_free(&b);
        program_end();
}
