/* fill: checks all of its memory every round and rewrites it. Prints each round's sum, so that the
 * checker, another process without a GPU, can compare. --ms: a pause after each round. */
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

int main(int argc, char **argv)
{
        struct blocks b;
        uint64_t round = 0, sum;

        program_begin(argc, argv,
                      &(struct options){.bytes = 48 * MIB, .block = 4 * MIB, .rounds = 3}, false);
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (program_more(round + 1)) {
                sum = blocks_step(&b, round);
                program_say("round", "\"round\":%llu,\"sum\":\"%016llx\",\"at\":%llu",
                            (unsigned long long)round, (unsigned long long)sum,
                            (unsigned long long)program_now_ns());
                round++;
                if (options.ms > 0)
                        (void)usleep((useconds_t)(options.ms * 1000));
        }
        sum = blocks_verify(&b, round);
        program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)sum);
        if (options.sample)
                blocks_sample(&b, round, options.sample);
        blocks_free(&b);
        program_end();
}
