/* many: --count small allocations of up to --block bytes, by cuMemAlloc or (--how async)
 * cuMemAllocAsync, and the cost of each. Prints "ready". Waits for a line on stdin before each
 * step, so that another process can look at the card:
 *
 *   1. makes all allocations; prints "held" and "touched"
 *   2. frees a twentieth of them and allocates them again; prints "churned"
 *   3. frees a twentieth of them; prints "freed"
 *
 * It does not free all, because some drivers take 0.1 ms for each free if there are a million. The
 * rest end with the context. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

static bool ordered;

static void take(CUdeviceptr *at, uint64_t bytes)
{
        TRY(ordered ? cu.MemAllocAsync(at, bytes, NULL) : cu.MemAlloc(at, bytes));
}

static void give(CUdeviceptr at)
{
        TRY(ordered ? cu.MemFreeAsync(at, NULL) : cu.MemFree(at));
}

static uint64_t size_of(size_t i)
{
        uint64_t random = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

        return 1 + program_random(&random) % options.block;
}

static void await_line(void)
{
        char line[64];

        if (!fgets(line, sizeof(line), stdin))
                exit(PROGRAM_EXIT_OK);
}

static void say(const char *event, uint64_t began_ns, uint64_t calls)
{
        program_say(event, "\"ns\":%.1f", (double)(program_now_ns() - began_ns) / (double)calls);
}

int main(int argc, char **argv)
{
        static const char *const names[] = {"alloc", "async"};
        uint64_t began, random, n, few;
        CUdeviceptr *at, counter;

        program_begin(argc, argv,
                      &(struct options){.count = 20000, .block = 16 * KIB, .how = "alloc"}, false);
        ordered = program_how(names, ARRAY_SIZE(names)) == 1;
        n = options.count;
        few = (n + 19) / 20;
        at = calloc(n, sizeof(*at));
        if (!at)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        if (ordered) {
                CUmemoryPool pool;
                cuuint64_t all = UINT64_MAX;

                TRY(cu.DeviceGetDefaultMemPool(&pool, 0));
                TRY(cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
        }
        TRY(cu.MemAlloc(&counter, 8));
        launch_tiny(counter, NULL);
        TRY(cu.CtxSynchronize());
        program_say("ready", "\"how\":\"%s\"", options.how);

        await_line();
        began = program_now_ns();
        for (size_t i = 0; i < n; i++)
                take(&at[i], size_of(i));
        say("held", began, n);
        launch_tiny(counter, NULL); /* the library backs all new memory before this launch */
        TRY(cu.CtxSynchronize());
        program_say("touched", "\"allocations\":%llu", (unsigned long long)n);

        await_line();
        random = options.seed + 1;
        began = program_now_ns();
        for (size_t i = 0; i < few; i++) {
                size_t k = program_random(&random) % n;

                give(at[k]);
                take(&at[k], size_of(i));
        }
        say("churned", began, few);

        await_line();
        began = program_now_ns();
        for (size_t i = 0; i < few; i++)
                give(at[i]);
        say("freed", began, few);
        free(at);
        program_end();
}
