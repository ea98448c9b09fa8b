/* room: allocates on order, and says what it got. Obeys the lines on stdin, and answers each with a
 * JSON line:
 *
 *   take SIZE   allocates a block     brim SIZE   allocates blocks until one is refused
 *   give N      frees the last N blocks           info
 *
 * "result" in the answer is that of the last allocation; "free" and "total" are the driver's
 * figures before the order. --how names the driver's calls: alloc, async, handles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"
#include "program.h"

enum way { WAY_ALLOC, WAY_ASYNC, WAY_HANDLES };
static const char *const names[] = {"alloc", "async", "handles"};

#define BLOCKS_MOST 4096u

static enum way way;
static struct {
        CUdeviceptr at;
        CUmemGenericAllocationHandle handle;
} block[BLOCKS_MOST];
static unsigned blocks;

static CUresult create(uint64_t bytes, CUmemGenericAllocationHandle *ret)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, options.gpu}};

        return cu.MemCreate(ret, bytes, &prop, 0);
}

static CUresult take(const char *size)
{
        uint64_t bytes;
        CUresult r;

        if (program_size(size, &bytes) < 0 || blocks == BLOCKS_MOST)
                program_fail(PROGRAM_EXIT_USAGE, "%s is no size, or there are too many blocks",
                             size);
        if (way == WAY_HANDLES)
                r = create(bytes, &block[blocks].handle);
        else if (way == WAY_ASYNC)
                r = cu.MemAllocAsync(&block[blocks].at, bytes, NULL);
        else
                r = cu.MemAlloc(&block[blocks].at, bytes);
        if (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY)
                program_check(r, "an allocation", __FILE__, __LINE__);
        if (r == CUDA_SUCCESS && way != WAY_HANDLES)
                TRY(cu.MemsetD8(block[blocks].at, 1, bytes));
        blocks += r == CUDA_SUCCESS;
        return r;
}

static void give(void)
{
        if (!blocks)
                program_fail(PROGRAM_EXIT_USAGE, "no block is left");
        blocks--;
        if (way == WAY_HANDLES)
                TRY(cu.MemRelease(block[blocks].handle));
        else if (way == WAY_ASYNC)
                TRY(cu.MemFreeAsync(block[blocks].at, NULL));
        else
                TRY(cu.MemFree(block[blocks].at));
        TRY(cu.CtxSynchronize());
}

static CUresult obey(char *line)
{
        const char *order = strsep(&line, " ");
        CUresult r = CUDA_SUCCESS;

        if (!strcmp(order, "take") && line)
                return take(line);
        if (!strcmp(order, "brim") && line)
                while (r == CUDA_SUCCESS)
                        r = take(line);
        else if (!strcmp(order, "give") && line)
                for (unsigned long n = strtoul(line, NULL, 10); n > 0; n--)
                        give();
        else if (strcmp(order, "info") != 0)
                program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", order);
        return r;
}

int main(int argc, char **argv)
{
        char line[128];

        program_begin(argc, argv, &(struct options){.how = "alloc"}, false);
        way = (enum way)program_how(names, ARRAY_SIZE(names));
        program_say("ready", "\"bytes\":0");
        while (fgets(line, sizeof(line), stdin)) {
                size_t free_bytes, total_bytes;
                CUresult r;

                line[strcspn(line, "\n")] = '\0';
                TRY(cu.MemGetInfo(&free_bytes, &total_bytes));
                r = obey(line);
                program_say("done", "\"result\":%d,\"blocks\":%u,\"free\":%zu,\"total\":%zu",
                            (int)r, blocks, free_bytes, total_bytes);
        }
        program_end();
}
