/* ordered: stream-ordered memory, from pools. Data that a stream has written stays until that
 * stream frees the memory, whichever stream gets the memory next. --how:
 *
 *   streams  several streams allocate, hand over and free, with slow kernels between
 *   cache    --bytes stay allocated; --count blocks of --block bytes are freed, and the pool keeps
 *            them; lines on stdin: verify, take (allocates the freed bytes again), trim, exit
 *   graph    a graph that allocates --bytes is launched --rounds times */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

enum { STREAMS = 4, SLOTS = 24 };

struct piece {
        CUdeviceptr at;
        uint64_t bytes, origin, key;
        CUstream stream;
};

static CUmemoryPool pool_default(void)
{
        CUmemoryPool pool;
        CUdevice device;

        TRY(cu.DeviceGet(&device, 0));
        TRY(cu.DeviceGetDefaultMemPool(&pool, device));
        return pool;
}

static uint64_t pool_figure(CUmemoryPool pool, CUmemPool_attribute which)
{
        cuuint64_t value;

        TRY(cu.MemPoolGetAttribute(pool, which, &value));
        return value;
}

static void expect(CUresult got, CUresult want, const char *what)
{
        if (got != want)
                program_fail(PROGRAM_EXIT_WRONG, "%s: %d instead of %d", what, (int)got, (int)want);
}

static void expect_equal(uint64_t got, uint64_t want, const char *what)
{
        if (got != want)
                program_fail(PROGRAM_EXIT_WRONG, "%s: %llu instead of %llu", what,
                             (unsigned long long)got, (unsigned long long)want);
}

static void order(CUevent event, CUstream before, CUstream after)
{
        TRY(cu.EventRecord(event, before));
        TRY(cu.StreamWaitEvent(after, event, 0));
}

/* Checks a pool's answers about an allocation, and its refusals. */
static void check_answers(CUmemoryPool pool, CUstream s)
{
        static const CUpointer_attribute lacks[] = {
                CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
        };
        uint64_t used = pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
        CUdeviceptr at, base, plain;
        CUmemoryPool of;
        size_t bytes;

        TRY(cu.MemAllocAsync(&at, 5000, s));
        expect_equal(at % 512, 0, "alignment");
        expect_equal(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), used + 5000, "used");
        TRY(cu.MemGetAddressRange(&base, &bytes, at + 700));
        expect_equal(base, at, "start of the range");
        expect_equal(bytes, 5000, "bytes of the range");
        TRY(cu.PointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, at));
        if (of != pool)
                program_fail(PROGRAM_EXIT_WRONG, "the memory is of another pool");
        for (size_t i = 0; i < ARRAY_SIZE(lacks); i++) {
                unsigned is = 9;

                TRY(cu.PointerGetAttribute(&is, lacks[i], at));
                expect_equal(is, 0, "what memory of a pool lacks");
        }
        expect(cu.MemFreeAsync(at + 512, s), CUDA_ERROR_INVALID_VALUE, "free of what is inside");
        TRY(cu.MemFreeAsync(at, s));
        expect(cu.MemFreeAsync(at, s), CUDA_ERROR_INVALID_VALUE, "second free");
        expect(cu.MemGetAddressRange(&base, &bytes, at), CUDA_ERROR_NOT_FOUND,
               "range of what is freed");
        expect_equal(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), used, "used, freed");
        TRY(cu.MemFreeAsync(0, s));
        TRY(cu.MemAllocAsync(&at, 0, s));
        expect_equal(at, 0, "address of nothing");
        expect(cu.MemAllocAsync(&at, (size_t)1 << 50, s), CUDA_ERROR_OUT_OF_MEMORY, "too much");
        TRY(cu.MemAllocAsync(&at, 3 * MIB, s));
        TRY(cu.MemFree(at));
        TRY(cu.MemAlloc(&plain, 3 * MIB));
        TRY(cu.MemFreeAsync(plain, s));
        TRY(cu.StreamSynchronize(s));
        expect(cu.MemFree(plain), CUDA_ERROR_INVALID_VALUE, "free of what a stream has freed");
}

/* Frees memory behind a kernel, and uses it at once on the same stream. */
static void check_order(CUdeviceptr verdict, CUstream s)
{
        uint64_t bytes = 2 * MIB;
        CUdeviceptr first, second;

        TRY(cu.MemAllocAsync(&first, bytes, s));
        launch_fill(first, bytes, pattern_origin(1), 1, s);
        launch_spin((uint64_t)(options.ms * 1e6), verdict + sizeof(struct verdict), s);
        launch_verify(first, bytes, pattern_origin(1), 1, verdict, s);
        TRY(cu.MemFreeAsync(first, s));
        TRY(cu.MemAllocAsync(&second, bytes, s));
        launch_fill(second, bytes, pattern_origin(2), 2, s);
        launch_verify(second, bytes, pattern_origin(2), 2, verdict, s);
        TRY(cu.MemFreeAsync(second, s));
}

/* Checks memory that belongs to a graph: the graph allocates, fills, checks and frees it. */
static void check_graph(CUdeviceptr verdict, CUstream s, uint64_t bytes, uint64_t launches)
{
        CUgraphExec exec;
        CUgraph graph;
        CUdeviceptr at;

        TRY(cu.StreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
        TRY(cu.MemAllocAsync(&at, bytes, s));
        launch_fill(at, bytes, pattern_origin(3), 3, s);
        launch_verify(at, bytes, pattern_origin(3), 3, verdict, s);
        TRY(cu.MemFreeAsync(at, s));
        TRY(cu.StreamEndCapture(s, &graph));
        TRY(cu.GraphInstantiateWithFlags(&exec, graph, 0));
        for (uint64_t i = 0; i < launches; i++)
                TRY(cu.GraphLaunch(exec, s));
        TRY(cu.StreamSynchronize(s));
        TRY(cu.GraphExecDestroy(exec));
        TRY(cu.GraphDestroy(graph));
}

static void streams_round(struct piece *piece, CUstream *stream, CUevent event, CUmemoryPool own,
                          CUdeviceptr verdict, uint64_t *random, uint64_t round)
{
        for (size_t step = 0; step < 4 * SLOTS; step++) {
                uint64_t r = program_random(random);
                struct piece *p = &piece[r % SLOTS];
                CUstream s = stream[(r >> 8) % STREAMS];

                if ((r >> 16) % 16 == 0)
                        launch_spin((uint64_t)(options.ms * 1e6), verdict + sizeof(struct verdict),
                                    s);
                if (!p->at) {
                        p->bytes = (r >> 20) % 3 ? 512 * (1 + (r >> 24) % 64)
                                                 : align_up(1 + (r >> 24) % options.block, 8);
                        p->origin = pattern_origin(r % SLOTS);
                        p->key = pattern_key(options.seed + step, round);
                        p->stream = s;
                        if ((r >> 50) % 2)
                                TRY(cu.MemAllocAsync(&p->at, p->bytes, s));
                        else
                                TRY(cu.MemAllocFromPoolAsync(&p->at, p->bytes, own, s));
                        launch_fill(p->at, p->bytes, p->origin, p->key, s);
                        continue;
                }
                if (s != p->stream)
                        order(event, p->stream, s);
                launch_verify(p->at, p->bytes, p->origin, p->key, verdict, s);
                TRY(cu.MemFreeAsync(p->at, s));
                p->at = 0;
        }
}

static void streams(void)
{
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
        struct piece piece[SLOTS] = {0};
        CUstream stream[STREAMS] = {0}; /* the first is the legacy stream */
        uint64_t random = options.seed + 1, sum = 0, round = 0;
        CUmemoryPool pool = pool_default(), own;
        CUdeviceptr verdict;
        CUevent event;

        TRY(cu.MemPoolCreate(&own, &props));
        TRY(cu.EventCreate(&event, CU_EVENT_DISABLE_TIMING));
        TRY(cu.MemAlloc(&verdict, 2 * sizeof(struct verdict)));
        TRY(cu.MemsetD8(verdict, 0, 2 * sizeof(struct verdict)));
        TRY(cu.CtxSynchronize());
        (void)verdict_take(verdict, 0, NULL);
        for (size_t i = 1; i < STREAMS; i++)
                TRY(cu.StreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        for (; program_more(round); round++) {
                check_answers(pool, stream[1]);
                check_order(verdict, stream[1]);
                streams_round(piece, stream, event, own, verdict, &random, round);
                check_graph(verdict, stream[2], MIB, 3);
                TRY(cu.CtxSynchronize());
                sum = sum * 31 + verdict_take(verdict, round, NULL);
        }
        for (size_t i = 0; i < SLOTS; i++)
                if (piece[i].at)
                        TRY(cu.MemFreeAsync(piece[i].at, piece[i].stream));
        for (size_t i = 1; i < STREAMS; i++)
                TRY(cu.StreamDestroy(stream[i]));
        TRY(cu.CtxSynchronize());
        expect_equal(pool_figure(own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0, "used at the end");
        TRY(cu.MemPoolTrimTo(own, 0));
        expect_equal(pool_figure(own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0,
                     "reserved at the end");
        TRY(cu.MemPoolDestroy(own));
        program_say("sum", "\"rounds\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)sum);
}

static void graph(void)
{
        CUdeviceptr verdict = verdict_new();
        CUstream s;

        TRY(cu.StreamCreate(&s, CU_STREAM_NON_BLOCKING));
        check_graph(verdict, s, options.bytes, options.rounds);
        (void)verdict_take(verdict, 0, s);
}

/* ---- cache ---- */

static CUdeviceptr *take_all(CUstream s)
{
        CUdeviceptr *all = calloc(options.count, sizeof(*all));

        if (!all)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        for (size_t i = 0; i < options.count; i++) {
                TRY(cu.MemAllocAsync(&all[i], options.block, s));
                launch_fill(all[i], options.block, pattern_origin(i), 9, s);
        }
        return all;
}

static void cache(void)
{
        cuuint64_t all = UINT64_MAX;
        uint64_t key = pattern_key(options.seed, 0);
        CUmemoryPool pool = pool_default();
        CUdeviceptr live, *freed, verdict = verdict_new();
        char line[64];
        CUstream s;

        TRY(cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
        TRY(cu.StreamCreate(&s, CU_STREAM_NON_BLOCKING));
        TRY(cu.MemAllocAsync(&live, options.bytes, s));
        launch_fill(live, options.bytes, pattern_origin(0), key, s);
        freed = take_all(s);
        for (size_t i = 0; i < options.count; i++)
                TRY(cu.MemFreeAsync(freed[i], s));
        free(freed);
        TRY(cu.StreamSynchronize(s));
        program_say("cached", "\"used\":%llu,\"reserved\":%llu",
                    (unsigned long long)pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                    (unsigned long long)pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
        while (fgets(line, sizeof(line), stdin)) {
                line[strcspn(line, "\n")] = '\0';
                if (!strcmp(line, "verify")) {
                        launch_verify(live, options.bytes, pattern_origin(0), key, verdict, s);
                        (void)verdict_take(verdict, 0, s);
                } else if (!strcmp(line, "take")) {
                        freed = take_all(s);
                        for (size_t i = 0; i < options.count; i++) {
                                launch_verify(freed[i], options.block, pattern_origin(i), 9,
                                              verdict, s);
                                TRY(cu.MemFreeAsync(freed[i], s));
                        }
                        free(freed);
                        (void)verdict_take(verdict, 0, s);
                } else if (!strcmp(line, "trim")) {
                        TRY(cu.MemPoolTrimTo(pool, 0));
                } else if (!strcmp(line, "exit")) {
                        break;
                } else {
                        program_fail(PROGRAM_EXIT_USAGE, "%s: unknown order", line);
                }
                program_say("done", "\"order\":\"%s\",\"reserved\":%llu", line,
                            (unsigned long long)pool_figure(pool,
                                                            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
        }
        TRY(cu.MemFreeAsync(live, s));
        TRY(cu.StreamSynchronize(s));
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*run)(void);
        } ways[] = {{"streams", streams}, {"cache", cache}, {"graph", graph}};
        const char *names[ARRAY_SIZE(ways)];

        for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
                names[i] = ways[i].name;
        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB,
                                        .block = 2 * MIB,
                                        .count = 8,
                                        .rounds = 3,
                                        .ms = 1,
                                        .how = "streams"},
                      false);
        ways[program_how(names, ARRAY_SIZE(ways))].run();
        program_end();
}
