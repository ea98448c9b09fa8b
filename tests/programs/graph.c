/* graph, graphbuild: a graph of kernels, copies and a memset, captured from a stream or built node
 * by node, and launched again and again. Its result depends on every launch, and the CPU computes
 * the same. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

/* One launch works on two halves A and B of equal size, a scratch block S and a pinned block H:
 *   A = 3A + addend;  B += A;  S = 0x5a everywhere;  S's first half = A's beginning;  H = S
 * The built graph changes the addend from launch to launch. */
struct state {
        CUdeviceptr a, b, s;
        uint64_t half, scratch;
        uint8_t *h;
        CUgraph graph; /* kept while its nodes are used */
        CUgraphExec exec;
        CUgraphNode advance;
};

#define ADDEND UINT64_C(0x1234567)

static uint64_t addend_of(uint64_t replay)
{
#ifdef GRAPH_BUILT
        return ADDEND + replay;
#else
        return ADDEND;
#endif
}

#ifndef GRAPH_BUILT
static void graph_make(struct state *g, CUstream stream)
{

        TRY(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        launch_advance(g->a, g->half, addend_of(0), stream);
        launch_add(g->b, g->a, g->half, stream);
        TRY(cu.MemsetD8Async(g->s, 0x5a, g->scratch, stream));
        TRY(cu.MemcpyDtoDAsync(g->s, g->a, g->scratch / 2, stream));
        TRY(cu.MemcpyDtoHAsync(g->h, g->s, g->scratch, stream));
        TRY(cu.StreamEndCapture(stream, &g->graph));
        TRY(cu.GraphInstantiateWithFlags(&g->exec, g->graph, 0));
}

static void graph_set(struct state *g, uint64_t replay)
{
        (void)g;
        (void)replay;
}
#else
static CUDA_KERNEL_NODE_PARAMS advance_node(void **parameters, uint64_t bytes)
{
        return (CUDA_KERNEL_NODE_PARAMS){.func = kernels.advance,
                                         .gridDimX = kernels_grid(bytes / 8),
                                         .gridDimY = 1,
                                         .gridDimZ = 1,
                                         .blockDimX = THREADS,
                                         .blockDimY = 1,
                                         .blockDimZ = 1,
                                         .kernelParams = parameters};
}

static void graph_set(struct state *g, uint64_t replay)
{
        uint64_t words = g->half / 8, addend = addend_of(replay);
        CUDA_KERNEL_NODE_PARAMS k = advance_node((void *[]){&g->a, &words, &addend}, g->half);

        TRY(cu.GraphExecKernelNodeSetParams(g->exec, g->advance, &k));
}

static void graph_make(struct state *g, CUstream stream)
{
        uint64_t words = g->half / 8, addend = addend_of(0);
        CUDA_KERNEL_NODE_PARAMS k = advance_node((void *[]){&g->a, &words, &addend}, g->half);
        CUDA_MEMSET_NODE_PARAMS set = {
                .dst = g->s, .value = 0x5a, .elementSize = 1, .width = g->scratch, .height = 1};
        CUDA_MEMCPY3D inner = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = g->a,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = g->s,
                               .WidthInBytes = g->scratch / 2,
                               .Height = 1,
                               .Depth = 1};
        CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = g->s,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = g->h,
                             .WidthInBytes = g->scratch,
                             .Height = 1,
                             .Depth = 1};
        CUgraphNode add, memset_node, copy, both, last;
        CUcontext context;

        (void)stream;
        TRY(cu.CtxGetCurrent(&context));
        TRY(cu.GraphCreate(&g->graph, 0));
        TRY(cu.GraphAddKernelNode(&g->advance, g->graph, NULL, 0, &k));
        k.func = kernels.add;
        k.kernelParams = (void *[]){&g->b, &g->a, &words};
        TRY(cu.GraphAddKernelNode(&add, g->graph, &g->advance, 1, &k));
        TRY(cu.GraphAddMemsetNode(&memset_node, g->graph, NULL, 0, &set, context));
        TRY(cu.GraphAddMemcpyNode(&copy, g->graph, (CUgraphNode[]){g->advance, memset_node}, 2,
                                  &inner, context));
        TRY(cu.GraphAddEmptyNode(&both, g->graph, (CUgraphNode[]){add, copy}, 2));
        TRY(cu.GraphAddMemcpyNode(&last, g->graph, &both, 1, &out, context));
        TRY(cu.GraphInstantiateWithFlags(&g->exec, g->graph, 0));
}
#endif

/* Compares A and B, piece by piece, with the CPU's result of the same number of launches. */
static uint64_t check(const struct state *g, uint64_t replays)
{
        uint64_t key = pattern_key(options.seed, 0), piece = MIN(g->half, 4 * MIB), sum = 0;
        uint64_t *a = malloc(piece), *b = malloc(piece);

        if (!a || !b)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        for (uint64_t offset = 0; offset < g->half; offset += piece) {
                uint64_t bytes = MIN(piece, g->half - offset);

                TRY(cu.MemcpyDtoH(a, g->a + offset, bytes));
                TRY(cu.MemcpyDtoH(b, g->b + offset, bytes));
                for (uint64_t i = 0; i < bytes / 8; i++) {
                        uint64_t want_a = pattern_word(pattern_origin(0) + offset + 8 * i, key);
                        uint64_t want_b = pattern_word(pattern_origin(1) + offset + 8 * i, key);

                        for (uint64_t r = 0; r < replays; r++) {
                                want_a = want_a * 3 + addend_of(r);
                                want_b += want_a;
                        }
                        if (a[i] != want_a || b[i] != want_b)
                                program_fail(PROGRAM_EXIT_WRONG, "word %llu: wrong after %llu",
                                             (unsigned long long)(offset / 8 + i),
                                             (unsigned long long)replays);
                        sum += want_a + 7 * want_b;
                }
                if (offset == 0) {
                        uint64_t inner = g->scratch / 2;

                        if (memcmp(g->h, a, inner) != 0)
                                program_fail(PROGRAM_EXIT_WRONG, "copied out: first half wrong");
                        for (uint64_t i = inner; i < g->scratch; i++)
                                if (g->h[i] != 0x5a)
                                        program_fail(PROGRAM_EXIT_WRONG,
                                                     "copied out: byte %llu wrong",
                                                     (unsigned long long)i);
                }
        }
        free(a);
        free(b);
        return sum;
}

int main(int argc, char **argv)
{
        struct state g = {0};
        CUstream stream;
        uint64_t round = 0;

        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB, .block = 64 * KIB, .rounds = 5}, false);
        g.half = options.bytes / 2 & ~UINT64_C(15);
        g.scratch = MIN(options.block, g.half) & ~UINT64_C(15);
        TRY(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        TRY(cu.MemAlloc(&g.a, g.half));
        TRY(cu.MemAlloc(&g.b, g.half));
        TRY(cu.MemAlloc(&g.s, g.scratch));
        TRY(cu.MemHostAlloc((void **)&g.h, g.scratch, 0));
        launch_fill(g.a, g.half, pattern_origin(0), pattern_key(options.seed, 0), stream);
        launch_fill(g.b, g.half, pattern_origin(1), pattern_key(options.seed, 0), stream);
        TRY(cu.StreamSynchronize(stream));
        graph_make(&g, stream);
        for (; program_more(round); round++) {
                memset(g.h, 0, g.scratch);
                graph_set(&g, round);
                TRY(cu.GraphLaunch(g.exec, stream));
                TRY(cu.StreamSynchronize(stream));
        }
        program_say("graph", "\"replays\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)check(&g, round));
        TRY(cu.GraphExecDestroy(g.exec));
        TRY(cu.GraphDestroy(g.graph));
        TRY(cu.MemFree(g.a));
        TRY(cu.MemFree(g.b));
        TRY(cu.MemFree(g.s));
        TRY(cu.MemFreeHost(g.h));
        TRY(cu.StreamDestroy(stream));
        program_end();
}
