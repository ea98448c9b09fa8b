/* broken: fills its memory, breaks its context with a kernel that writes to an unmapped address,
 * and goes on.
 * --how beside: a second context has as much memory. --how elsewhere: the context that fails is on
 * a second GPU. Obeys the lines on stdin, and answers each:
 *
 *   break [MS]   launches the failing kernel, behind a kernel that takes MS milliseconds
 *   pool         the first GPU allocates from a pool of the second, then does other work; prints
 *                the driver's answers */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

enum how { ALONE, BESIDE, ELSEWHERE };
static const char *const names[] = {"alone", "beside", "elsewhere"};

struct world {
        CUcontext context;
        struct kernels kernels;
        struct blocks b;
};

static void enter(const struct world *w)
{
        TRY(cu.CtxSetCurrent(w->context));
        kernels = w->kernels;
}

static void world_fill(struct world *w, size_t first)
{
        TRY(cu.CtxGetCurrent(&w->context));
        w->kernels = kernels;
        blocks_allocate(&w->b, options.bytes, options.block, first);
        blocks_fill(&w->b, 0);
        TRY(cu.CtxSynchronize());
}

/* Makes calls in a context that has failed, and prints the driver's answers. */
static void say_answers(const struct world *w)
{
        CUdeviceptr verdict = w->b.verdict;
        CUdeviceptr p;
        CUcontext other;
        CUstream s;
        CUdevice device;
        size_t free_bytes, total;
        CUresult r[] = {
                cu.StreamSynchronize(w->b.stream),
                cu.StreamQuery(w->b.stream),
                cu.MemFree(w->b.block[0].at),
                cu.MemAlloc(&p, MIB),
                cu.MemGetInfo(&free_bytes, &total),
                cu.MemsetD8Async(w->b.block[0].at, 0, 8, w->b.stream),
                cu.MemcpyDtoH(&total, w->b.block[0].at, 8),
                cu.LaunchKernel(kernels.tiny, 1, 1, 1, 1, 1, 1, 0, w->b.stream,
                                (void *[]){&verdict}, NULL),
                cu.StreamCreate(&s, CU_STREAM_NON_BLOCKING),
                cu.DeviceGet(&device, 0),
                cu.CtxCreate(&other, 0, device),
                cu.DevicePrimaryCtxRetain(&other, device),
                cu.CtxSynchronize(),
        };
        char text[256] = "";

        for (size_t i = 0; i < ARRAY_SIZE(r); i++)
                (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d",
                               i ? "," : "", (int)r[i]);
        program_say("broken", "\"answers\":[%s]", text);
}

static void say_pool(const struct world *w, CUmemoryPool pool)
{
        CUdeviceptr p;
        CUresult r[] = {
                cu.MemAllocFromPoolAsync(&p, MIB, pool, w->b.stream),
                cu.MemsetD8Async(w->b.block[0].at, 0, 8, w->b.stream),
                cu.StreamSynchronize(w->b.stream),
        };

        program_say("pool", "\"answers\":[%d,%d,%d]", (int)r[0], (int)r[1], (int)r[2]);
}

static void break_it(const struct world *w, double ms)
{
        CUdeviceptr nowhere = 0x10000, verdict = w->b.verdict;
        uint64_t ns = (uint64_t)(ms * 1e6), words = 512, none = 0;

        if (ns)
                (void)cu.LaunchKernel(kernels.spin, 1, 1, 1, 1, 1, 1, 0, w->b.stream,
                                      (void *[]){&ns, &verdict}, NULL);
        (void)cu.LaunchKernel(kernels.fill, 1, 1, 1, THREADS, 1, 1, 0, w->b.stream,
                              (void *[]){&nowhere, &words, &none, &none}, NULL);
        (void)cu.StreamSynchronize(w->b.stream);
}

int main(int argc, char **argv)
{
        struct world primary = {0}, second = {0};
        CUmemoryPool pool = NULL;
        CUdeviceptr p;
        CUdevice device;
        enum how how;
        char line[64];

        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB, .block = 4 * MIB, .how = "alone"},
                      false);
        how = (enum how)program_how(names, ARRAY_SIZE(names));
        TRY(cu.DeviceGet(&device, 0));
        world_fill(&primary, 0);
        if (how == BESIDE) {
                TRY(cu.CtxCreate(&second.context, 0, device));
                kernels_load(&kernels);
                world_fill(&second, 1000);
        }
        if (how == ELSEWHERE) {
                TRY(cu.CtxCreate(&second.context, 0, 1));
                kernels_load(&kernels);
                world_fill(&second, 1000);
                TRY(cu.DeviceGetDefaultMemPool(&pool, 1));
                TRY(cu.MemAllocFromPoolAsync(&p, MIB, pool, second.b.stream));
        }
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (fgets(line, sizeof(line), stdin)) {
                line[strcspn(line, "\n")] = '\0';
                if (strcmp(line, "pool") == 0 && how == ELSEWHERE) {
                        enter(&primary);
                        say_pool(&primary, pool);
                } else if (strncmp(line, "break", 5) != 0) {
                        program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
                } else if (how == ELSEWHERE) {
                        enter(&second);
                        break_it(&second, strtod(line + 5, NULL));
                } else {
                        enter(&primary);
                        break_it(&primary, strtod(line + 5, NULL));
                        say_answers(&primary);
                }
                if (how == BESIDE) {
                        enter(&second);
                        say_answers(&second);
                }
                program_say("done", "\"order\":\"%s\"", line);
        }
        (void)fflush(stdout);
        _Exit(PROGRAM_EXIT_OK);
}
