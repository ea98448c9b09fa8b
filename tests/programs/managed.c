/* managed: the evaluation program of the study of Unified Memory that test_managed.py repeats. The
 * processor first writes chunks of managed memory. Then kernels use the chunks in order, one kernel
 * for each chunk and one thread for each word. Obeys the lines on stdin, and answers each with a
 * JSON line:
 *
 *   init          the processor writes everything     check   the processor compares everything
 *   run [N]       a kernel on each chunk, N times (default 1), or until the file --until exists
 *   reverse       a kernel on each chunk once, the last chunk first
 *   prefetch      everything moves to the card         home    everything moves to the host
 *   touch         the processor reads a word of each 64 KiB of the first chunk
 *   copies        the card fills, copies and writes values in the last chunk, and undoes it
 *   mostly        advises read-mostly for the end of the first chunk and the start of the second
 *   alloc SIZE    allocates ordinary memory            refuse SIZE  the driver must refuse it
 *   end           (so does the end of stdin) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/units.h"
#include "program.h"

struct chunk {
        CUdeviceptr at;
        uint64_t origin;
};

static struct {
        struct chunk *chunk;
        size_t n;
        uint64_t words,       /* words of a chunk */
                runs;         /* runs over all chunks so far */
        uint64_t factor, sum; /* the runs' effect on a word: factor * word + sum */
} mine = {.factor = 1};

static uint64_t *host(const struct chunk *c)
{
        return (uint64_t *)(uintptr_t)c->at; /* NOLINT(performance-no-int-to-ptr) */
}

static uint64_t first_word(const struct chunk *c, uint64_t i)
{
        return pattern_word(c->origin + 8 * i, pattern_key(options.seed, 0));
}

static void run(bool backwards)
{
        uint64_t addend = ++mine.runs;

        for (size_t i = 0; i < mine.n; i++) {
                struct chunk *c = &mine.chunk[backwards ? mine.n - 1 - i : i];
                void *params[] = {&c->at, &mine.words, &addend};

                TRY(cu.LaunchKernel(kernels.advance, (unsigned)(mine.words / THREADS), 1, 1,
                                    THREADS, 1, 1, 0, NULL, params, NULL));
        }
        TRY(cu.CtxSynchronize());
        mine.factor *= 3;
        mine.sum = mine.sum * 3 + addend;
}

static void check(void)
{
        uint64_t wrong = 0;

        for (size_t k = 0; k < mine.n; k++)
                for (uint64_t i = 0; i < mine.words; i++)
                        wrong += host(&mine.chunk[k])[i] !=
                                 first_word(&mine.chunk[k], i) * mine.factor + mine.sum;
        if (wrong)
                program_fail(PROGRAM_EXIT_WRONG, "%llu words wrong", (unsigned long long)wrong);
}

/* Uses the copy engine: copies the last chunk's first half to its second half through pinned
 * memory, writes other words in between, and copies the second half back. */
static void copies(void)
{
        struct chunk *last = &mine.chunk[mine.n - 1];
        uint64_t half = mine.words / 2 * 8;
        CUdeviceptr second = last->at + half;
        uint8_t *kept, *seen;

        TRY(cu.MemHostAlloc((void **)&kept, half, 0));
        TRY(cu.MemHostAlloc((void **)&seen, half, 0));
        TRY(cu.MemcpyDtoH(kept, second, half));
        TRY(cu.MemcpyDtoD(second, last->at, half));
        TRY(cu.MemsetD8(second, 0x5a, 4096));
        TRY(cu.MemcpyDtoH(seen, second, half));
        for (uint64_t i = 0; i < half; i++)
                if (seen[i] != (i < 4096 ? 0x5a : ((uint8_t *)host(last))[i]))
                        program_fail(PROGRAM_EXIT_WRONG, "byte %llu of a copy",
                                     (unsigned long long)i);
        TRY(cu.MemcpyHtoD(second, kept, half));
        /* Here managed memory is the host's side of a copy. */
        TRY(cu.MemcpyDtoH(host(last), second, half));
        TRY(cu.Memcpy((CUdeviceptr)(uintptr_t)seen, last->at, half));
        if (memcmp(seen, kept, half) != 0)
                program_fail(PROGRAM_EXIT_WRONG, "a copy to managed memory");
        for (uint64_t i = 0; i < mine.words / 2; i++)
                host(last)[i] = first_word(last, i) * mine.factor + mine.sum;
        TRY(cu.MemFreeHost(kept));
        TRY(cu.MemFreeHost(seen));
}

static bool obey(const char *line)
{
        uint64_t bytes;

        if (!strcmp(line, "init")) {
                for (size_t k = 0; k < mine.n; k++)
                        for (uint64_t i = 0; i < mine.words; i++)
                                host(&mine.chunk[k])[i] = first_word(&mine.chunk[k], i);
        } else if (!strncmp(line, "run", 3)) {
                for (unsigned long n = line[3] ? strtoul(line + 4, NULL, 10) : 1; n > 0; n--)
                        if (!options.until || access(options.until, F_OK) < 0)
                                run(false);
        } else if (!strcmp(line, "reverse")) {
                run(true);
        } else if (!strcmp(line, "check")) {
                check();
        } else if (!strcmp(line, "prefetch") || !strcmp(line, "home")) {
                for (size_t k = 0; k < mine.n; k++)
                        TRY(cu.MemPrefetchAsync(mine.chunk[k].at, mine.words * 8,
                                                *line == 'h' ? CU_DEVICE_CPU : 0, NULL));
                TRY(cu.CtxSynchronize());
        } else if (!strcmp(line, "touch")) {
                for (uint64_t i = 0; i < mine.words; i += 64 * KIB / 8)
                        if (host(mine.chunk)[i] !=
                            first_word(mine.chunk, i) * mine.factor + mine.sum)
                                program_fail(PROGRAM_EXIT_WRONG, "word %llu",
                                             (unsigned long long)i);
        } else if (!strcmp(line, "mostly")) {
                TRY(cu.MemAdvise(mine.chunk[0].at + mine.words * 4, mine.words * 4,
                                 CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
                TRY(cu.MemAdvise(mine.chunk[1].at, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
        } else if (!strcmp(line, "copies")) {
                copies();
        } else if (!strncmp(line, "alloc ", 6) && program_size(line + 6, &bytes) == 0) {
                CUdeviceptr p;

                TRY(cu.MemAlloc(&p, bytes));
                TRY(cu.MemsetD8(p, 1, bytes));
                TRY(cu.CtxSynchronize());
        } else if (!strncmp(line, "refuse ", 7) && program_size(line + 7, &bytes) == 0) {
                CUdeviceptr p;

                if (cu.MemAlloc(&p, bytes) != CUDA_ERROR_OUT_OF_MEMORY)
                        program_fail(PROGRAM_EXIT_WRONG, "%s: not refused", line);
        } else if (strcmp(line, "end") != 0) {
                program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
        }
        return strcmp(line, "end") != 0;
}

int main(int argc, char **argv)
{
        char line[128];

        program_begin(argc, argv, &(struct options){.bytes = 80 * MIB, .block = 16 * MIB}, false);
        mine.n = options.bytes / options.block;
        mine.words = options.block / 8;
        mine.chunk = calloc(mine.n, sizeof(*mine.chunk));
        if (!mine.chunk)
                program_fail(PROGRAM_EXIT_SETUP, "no memory");
        for (size_t k = 0; k < mine.n; k++) {
                mine.chunk[k].origin = pattern_origin(k);
                TRY(cu.MemAllocManaged(&mine.chunk[k].at, mine.words * 8, CU_MEM_ATTACH_GLOBAL));
        }
        program_say("ready", "\"pid\":%d", (int)getpid());
        while (fgets(line, sizeof(line), stdin)) {
                uint64_t began = program_now_ns();
                bool more;

                line[strcspn(line, "\n")] = '\0';
                more = obey(line);
                program_say("done", "\"order\":\"%s\",\"ms\":%.1f", line,
                            (double)(program_now_ns() - began) / 1e6);
                if (!more)
                        break;
        }
        for (size_t k = 0; k < mine.n; k++)
                TRY(cu.MemFree(mine.chunk[k].at));
        free(mine.chunk);
        program_end();
}
