/* greedy: allocates pieces of --block bytes and writes to each, until the driver refuses one or
 * --bytes are reached. Then prints "got". --how names the driver's calls:
 *
 *   alloc, pitch, async, pool, handles, managed, arrays
 *   advised   managed memory that is marked as mostly read
 *   mixed     a quarter of --bytes by alloc, then arrays
 *   threads   four threads, each by alloc
 *   contexts  by alloc, each piece in a context of its own
 *
 * Orders come from stdin: "more" goes on until the next refusal, and prints "got" again.
 * "become COMMAND" calls exec. The end of stdin ends the program. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

enum way {
        WAY_ALLOC,
        WAY_PITCH,
        WAY_ASYNC,
        WAY_POOL,
        WAY_HANDLES,
        WAY_MANAGED,
        WAY_ARRAYS,
        WAY_ADVISED,
        WAY_MIXED,
        WAY_THREADS,
        WAY_CONTEXTS,
};
static const char *const names[] = {"alloc",  "pitch",   "async", "pool",    "handles", "managed",
                                    "arrays", "advised", "mixed", "threads", "contexts"};

#define CONTEXTS_MOST 8

static enum way way;
static CUmemoryPool pool;
static _Atomic uint64_t got;

/* ---- one piece ---- */

static CUresult by_pitch(CUdeviceptr *at)
{
        size_t pitch;

        return cu.MemAllocPitch(at, &pitch, 64 * KIB, options.block / (64 * KIB), 16);
}

static CUresult by_handle(CUdeviceptr *at)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, options.gpu}};
        const CUmemAccessDesc both = {{CU_MEM_LOCATION_TYPE_DEVICE, options.gpu},
                                      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemGenericAllocationHandle handle;
        CUresult r = cu.MemCreate(&handle, options.block, &prop, 0);

        if (r != CUDA_SUCCESS)
                return r;
        TRY(cu.MemAddressReserve(at, options.block, 0, 0, 0));
        TRY(cu.MemMap(*at, options.block, 0, handle, 0));
        TRY(cu.MemSetAccess(*at, options.block, &both, 1));
        return CUDA_SUCCESS;
}

static CUresult by_array(void)
{
        const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 1024,
                                               .Height = options.block / (4 * KIB),
                                               .Format = CU_AD_FORMAT_FLOAT,
                                               .NumChannels = 1};
        CUarray array;

        return cu.Array3DCreate(&array, &shape);
}

static CUresult by_advice(CUdeviceptr *at)
{
        CUresult r = cu.MemAllocManaged(at, options.block, CU_MEM_ATTACH_GLOBAL);

        if (r == CUDA_SUCCESS)
                TRY(cu.MemAdvise(*at, options.block, CU_MEM_ADVISE_SET_READ_MOSTLY, options.gpu));
        return r;
}

static CUresult in_a_context(CUdeviceptr *at)
{
        CUcontext own;
        CUdevice device;
        CUresult r;

        if (got / options.block >= CONTEXTS_MOST)
                return cu.MemAlloc(at, options.block);
        TRY(cu.DeviceGet(&device, options.gpu));
        r = cu.CtxCreate(&own, 0, device);
        return r == CUDA_SUCCESS ? cu.MemAlloc(at, options.block) : r;
}

/* *at stays 0 for memory without an address. */
static CUresult take(CUdeviceptr *at)
{
        switch (way) {
        case WAY_PITCH:
                return by_pitch(at);
        case WAY_ASYNC:
                return cu.MemAllocAsync(at, options.block, NULL);
        case WAY_POOL:
                return cu.MemAllocFromPoolAsync(at, options.block, pool, NULL);
        case WAY_HANDLES:
                return by_handle(at);
        case WAY_MANAGED:
                return cu.MemAllocManaged(at, options.block, CU_MEM_ATTACH_GLOBAL);
        case WAY_ADVISED:
                return by_advice(at);
        case WAY_ARRAYS:
                return by_array();
        case WAY_MIXED:
                return got < options.bytes / 4 ? cu.MemAlloc(at, options.block) : by_array();
        case WAY_CONTEXTS:
                return in_a_context(at);
        default:
                return cu.MemAlloc(at, options.block);
        }
}

/* ---- as much as there is ---- */

static void *grow(void *unused)
{
        (void)unused;
        if (way == WAY_THREADS)
                program_thread();
        while (got < options.bytes) {
                CUdeviceptr at = 0;
                CUresult r = take(&at);

                if (r != CUDA_SUCCESS && r != CUDA_ERROR_OUT_OF_MEMORY)
                        program_check(r, "an allocation", __FILE__, __LINE__);
                if (r != CUDA_SUCCESS)
                        return NULL;
                if (at)
                        TRY(cu.MemsetD8(at, 1, options.block));
                TRY(cu.CtxSynchronize());
                got += options.block;
        }
        return NULL;
}

static void grow_all(void)
{
        pthread_t threads[4];

        if (way != WAY_THREADS) {
                (void)grow(NULL);
        } else {
                for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
                        if (pthread_create(&threads[i], NULL, grow, NULL) != 0)
                                program_fail(PROGRAM_EXIT_SETUP, "cannot make a thread");
                for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
                        (void)pthread_join(threads[i], NULL);
        }
        program_say("got", "\"bytes\":%llu", (unsigned long long)got);
}

static void become(const char *command)
{
        char text[512];

        (void)snprintf(text, sizeof(text), "exec %s", command);
        (void)execl("/bin/sh", "sh", "-c", text, (char *)NULL);
        program_fail(PROGRAM_EXIT_SETUP, "cannot execute %s", command);
}

int main(int argc, char **argv)
{
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        char line[512];

        program_begin(argc, argv,
                      &(struct options){.bytes = 100 * MIB, .block = 2 * MIB, .how = "alloc"},
                      false);
        way = (enum way)program_how(names, ARRAY_SIZE(names));
        if (way == WAY_POOL)
                TRY(cu.MemPoolCreate(&pool, &props));
        grow_all();
        while (fgets(line, sizeof(line), stdin)) {
                line[strcspn(line, "\n")] = '\0';
                if (!strcmp(line, "more"))
                        grow_all();
                else if (!strncmp(line, "become ", 7))
                        become(line + 7);
                else
                        program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
        }
        program_end();
}
