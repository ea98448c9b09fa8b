/* pair: one of two processes that wait for each other, as workers of one training job do. Both have
 * mapped a page of the file --sample. Each round checks and rewrites all memory, and writes the
 * round's number to the page. Before the round ends, a kernel waits in the page for the other
 * process's number; with `--how value` the stream waits, and no kernel. With `--how late` the first
 * process then waits for the second one, before a thread of it submits what the second one waits
 * for. --seed is 1 in one process and 2 in the other. With --count 2 no process begins its first
 * round before both have filled their memory. --ms is a pause after each round. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

#define MOST_S  120 /* limit of every wait */
#define MOST_NS (MOST_S * UINT64_C(1000000000))
#define PAGE    4096u
#define LATE_US 200000 /* so long a thread does something else, before it submits more */
#define FILLED  128    /* word of the page: the first process has memory; then the second's */

static const char *const hows[] = {"kernel", "value", "late"};

static void await(CUdeviceptr word, uint32_t value, CUdeviceptr late, CUstream s)
{
        if (program_how(hows, ARRAY_SIZE(hows)) > 0)
                TRY(cu.StreamWaitValue32(s, word, value, CU_STREAM_WAIT_VALUE_GEQ));
        else
                launch_await(word, value, 0, 0, MOST_NS, late, s);
}

/* Each process waits for the other one's word. `waits` tells the library in front. */
static void meet_late(CUdeviceptr mine, CUdeviceptr others, uint32_t round, CUstream s,
                      volatile uint32_t *waits)
{
        const bool first = options.seed == 1;
        CUstream other;

        TRY(cu.StreamCreate(&other, CU_STREAM_NON_BLOCKING));
        await(others, round, 0, s);
        *waits = 1;
        if (first)
                (void)usleep(LATE_US);
        TRY(cu.StreamWriteValue32(first ? other : s, mine, round, 0));
        TRY(cu.StreamSynchronize(s));
        *waits = 0;
        TRY(cu.StreamDestroy(other));
}

int main(int argc, char **argv)
{
        CUdeviceptr mapped, mine, others, late;
        uint64_t page_word = 0;
        uint32_t round = 0, gave_up;
        struct blocks b;
        uint32_t *page;
        bool last = false;
        int fd;

        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB,
                                        .block = 4 * MIB,
                                        .rounds = 10,
                                        .seed = 1,
                                        .how = "kernel"},
                      false);
        if (!options.sample || options.seed < 1 || options.seed > 2)
                program_fail(PROGRAM_EXIT_USAGE, "--sample names the file, --seed is 1 or 2");
        (void)alarm(MOST_S);
        fd = open(options.sample, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, PAGE) < 0)
                program_fail(PROGRAM_EXIT_SETUP, "%s: cannot be written", options.sample);
        page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
                program_fail(PROGRAM_EXIT_SETUP, "%s: cannot be mapped", options.sample);
        (void)close(fd);
        TRY(cu.MemHostRegister(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP));
        TRY(cu.MemHostGetDevicePointer(&mapped, page, 0));
        page_word = options.seed - 1;
        mine = mapped + 64 * page_word;
        others = mapped + 64 * (1 - page_word);
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0);
        TRY(cu.MemAlloc(&late, 4));
        TRY(cu.MemsetD32(late, 0, 1));
        TRY(cu.CtxSynchronize());
        program_say("filled", "\"side\":%d", (int)options.seed);
        ((volatile uint32_t *)page)[FILLED + page_word] = 1;
        while (options.count == 2 && !((volatile uint32_t *)page)[FILLED + 1 - page_word])
                (void)usleep(1000);
        while (!last) {
                uint64_t key = pattern_key(options.seed, round);
                uint64_t next_key = pattern_key(options.seed, round + 1);

                /* The process with --seed 1 decides which round is the last. */
                if (page_word == 0)
                        last = !program_more(round + 1);
                for (size_t i = 0; i < b.n; i++)
                        launch_step(b.block[i].at, b.block[i].bytes, b.block[i].origin, key,
                                    next_key, b.verdict, b.stream);
                if (page_word == 0 && last)
                        ((volatile uint32_t *)page)[64] = round + 1;
                TRY(cu.StreamWriteValue32(b.stream, mine, round + 1, 0));
                await(others, round + 1, late, b.stream);
                program_say("round", "\"round\":%u,\"sum\":\"%016llx\"", round,
                            (unsigned long long)verdict_take(b.verdict, round, b.stream));
                if (page_word == 1)
                        last = ((volatile uint32_t *)page)[64] == round + 1;
                round++;
                /* Neither process writes the next number before the other has seen this one. */
                if (!last && program_how(hows, ARRAY_SIZE(hows)) == 2) {
                        meet_late(mine + 4, others + 4, round, b.stream, page + 16 * page_word + 2);
                } else if (!last) {
                        TRY(cu.StreamWriteValue32(b.stream, mine + 4, round, 0));
                        await(others + 4, round, late, b.stream);
                }
                if (options.ms > 0) {
                        TRY(cu.StreamSynchronize(b.stream));
                        (void)usleep((useconds_t)(options.ms * 1000));
                }
        }
        program_say("round", "\"round\":%u,\"sum\":\"%016llx\"", round,
                    (unsigned long long)blocks_verify(&b, round));
        TRY(cu.MemcpyDtoH(&gave_up, late, 4));
        if (gave_up)
                program_fail(PROGRAM_EXIT_WRONG, "%u kernels gave up", gave_up);
        TRY(cu.MemFree(late));
        blocks_free(&b);
        TRY(cu.MemHostUnregister(page));
        program_end();
}
