/* turns: runs kernels of --ms each, one after the other, until it is told to end. Prints when it
 * had the GPU to itself, by the GPU's own clock: a turn ends if no kernel of the program ran for
 * 20 ms. So the turns of two programs can be compared. */
#include "base/macros.h"
#include "program.h"

enum { KERNELS = 4 }; /* kernels between two looks at the clock */

#define PAUSE_NS UINT64_C(20000000)

static struct turn {
        uint64_t begin, end, kernels, busy;
} turn;

static void turn_say(void)
{
        if (turn.kernels)
                program_say("turn", "\"begin\":%llu,\"end\":%llu,\"kernels\":%llu,\"busy_ns\":%llu",
                            (unsigned long long)turn.begin, (unsigned long long)turn.end,
                            (unsigned long long)turn.kernels, (unsigned long long)turn.busy);
        turn = (struct turn){0};
}

static void turn_note(uint64_t begin, uint64_t end)
{
        if (turn.kernels && begin > turn.end + PAUSE_NS)
                turn_say();
        if (!turn.kernels)
                turn.begin = begin;
        turn.end = end;
        turn.kernels++;
        turn.busy += end - begin;
}

int main(int argc, char **argv)
{
        uint64_t stamps[2 * KERNELS], sum;
        CUdeviceptr out;
        struct blocks b;

        program_begin(argc, argv,
                      &(struct options){.bytes = 4 * MIB, .block = 4 * MIB, .seconds = 1, .ms = 2},
                      false);
        TRY(cu.MemAlloc(&out, sizeof(stamps)));
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (program_more(0)) {
                for (unsigned i = 0; i < KERNELS; i++)
                        launch_stamp((uint64_t)(options.ms * 1e6), out + 16 * i, b.stream);
                TRY(cu.MemcpyDtoHAsync(stamps, out, sizeof(stamps), b.stream));
                TRY(cu.StreamSynchronize(b.stream));
                for (unsigned i = 0; i < KERNELS; i++)
                        turn_note(stamps[2 * i], stamps[2 * i + 1]);
        }
        turn_say();
        sum = blocks_verify(&b, 0);
        program_say("round", "\"round\":0,\"sum\":\"%016llx\"", (unsigned long long)sum);
        TRY(cu.MemFree(out));
        blocks_free(&b);
        program_end();
}
