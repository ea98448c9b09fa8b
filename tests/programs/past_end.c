/* past_end: makes every copy and fill within an allocation, past the end of one, by one byte, and
 * of no bytes. Prints the answer to each call, and how many bytes have another value than all had
 * before. */
#include "surface.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/macros.h"

#define KEPT   0x5a
#define OTHER  0x33
#define SMALL  1000u
#define LARGE  (3 * MIB)
#define AROUND 8192u /* bytes of the buffers at the other end of copies */

/* The calls of a round. `bytes` are the bytes of linear copies; `rows` and `slices` the heights of
 * copies with pitches, which begin in an allocation of SMALL bytes, too. */
struct round {
        const char *name;
        size_t bytes, rows, slices;
        uint8_t value;
};
static const struct round rounds[] = {
        {"within", SMALL, 4, 3, KEPT},
        {"past", 4096, 6, 5, OTHER},
        {"by one", SMALL + 1, 5, 5, OTHER},
        {"nothing", 0, 0, 0, OTHER},
};
static struct round now;

static CUcontext context;
static CUstream s;
static CUdeviceptr a, b;                /* their contents must stay KEPT */
static CUdeviceptr kept, other, around; /* AROUND bytes each; around is one of the others */
static CUarray bytes_array, words_array;
static uint8_t host[2][AROUND], host_to[AROUND], *h; /* h is one of the first two */
static CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
static size_t first;

static size_t wrong_bytes(const uint8_t *at, size_t n)
{
        size_t wrong = 0;

        for (size_t i = 0; i < n; i++)
                wrong += at[i] != KEPT;
        return wrong;
}

static size_t changed(CUdeviceptr at, size_t bytes)
{
        uint8_t got[SMALL];
        size_t wrong = 0;

        for (size_t done = 0; done < bytes; done += sizeof(got)) {
                size_t n = MIN(sizeof(got), bytes - done);

                TRY(cu.MemcpyDtoH(got, at + done, n));
                wrong += wrong_bytes(got, n);
        }
        return wrong;
}

static void answer(const char *call, const char *arguments, CUresult r)
{
        TRY(cu.CtxSynchronize());
        program_say("answer",
                    "\"round\":\"%s\",\"call\":\"%s\",\"arguments\":\"%s\",\"result\":%d,"
                    "\"changed\":%zu",
                    now.name, call, arguments, (int)r,
                    changed(a, SMALL) + changed(b, SMALL) + wrong_bytes(host_to, AROUND));
        memset(host_to, KEPT, AROUND);
        TRY(cu.MemsetD8(a, KEPT, SMALL));
        TRY(cu.MemsetD8(b, KEPT, SMALL));
        TRY(cu.CtxSynchronize()); /* fills do not wait, and the next call may be in another stream
                                   */
}

#define ROW(symbol, args) \
        answer(#symbol, #args, all.symbol ? all.symbol args : CUDA_ERROR_NOT_SUPPORTED)
/* The call and its variant for per-thread streams. */
#define ROWS(symbol, variant, args)         \
        do {                                \
                ROW(symbol, args);          \
                ROW(symbol##variant, args); \
        } while (0)

static CUdeviceptr address(const void *p)
{
        return (uintptr_t)p;
}

static void linear(size_t n)
{
        CUdeviceptr to[] = {b, a}, from[] = {around, around};
        size_t bytes[] = {SMALL, n}, failed = 99;

        ROWS(cuMemcpy, _ptds, (a, address(h), n));
        ROWS(cuMemcpy, _ptds, (address(host_to), a, n));
        ROWS(cuMemcpyHtoD_v2, _ptds, (a, h, n));
        ROWS(cuMemcpyDtoH_v2, _ptds, (host_to, a, n));
        ROWS(cuMemcpyDtoD_v2, _ptds, (a, around, n));
        ROWS(cuMemcpyDtoD_v2, _ptds, (around, a, n));
        ROWS(cuMemcpyPeer, _ptds, (a, context, around, context, n));
        ROWS(cuMemcpyAsync, _ptsz, (a, around, n, s));
        ROWS(cuMemcpyHtoDAsync_v2, _ptsz, (a, h, n, s));
        ROWS(cuMemcpyDtoHAsync_v2, _ptsz, (host_to, a, n, s));
        ROWS(cuMemcpyDtoDAsync_v2, _ptsz, (a, around, n, s));
        ROWS(cuMemcpyPeerAsync, _ptsz, (a, context, around, context, n, s));
        ROWS(cuMemcpyHtoA_v2, _ptds, (bytes_array, 0, h, n));
        ROWS(cuMemcpyHtoAAsync_v2, _ptsz, (bytes_array, 0, h, n, s));
        ROWS(cuMemcpyAtoD_v2, _ptds, (a, bytes_array, 0, n));
        ROWS(cuMemcpyDtoA_v2, _ptds, (bytes_array, 0, a, n));
        ROWS(cuMemcpyAtoH_v2, _ptds, (host_to, bytes_array, 0, n));
        ROWS(cuMemcpyAtoHAsync_v2, _ptsz, (host_to, bytes_array, 0, n, s));
        ROWS(cuMemcpyAtoA_v2, _ptds, (bytes_array, AROUND / 2, bytes_array, 0, n));
        ROWS(cuMemcpyWithAttributesAsync, _ptsz, (a, around, n, &attributes, s));
        ROWS(cuMemcpyBatchAsync, _ptsz, (to, from, bytes, 2, &attributes, &first, 1, &failed, s));
        program_say("failed", "\"round\":\"%s\",\"index\":%zd", now.name, (ssize_t)failed);
        ROWS(cuMemcpyBatchAsync_v2, _ptsz, (to, from, bytes, 2, &attributes, &first, 1, s));
}

static void fills(size_t n)
{
        unsigned char v = now.value;
        unsigned short v2 = (unsigned short)(v << 8 | v);
        unsigned v4 = (unsigned)v2 << 16 | v2;

        ROWS(cuMemsetD8_v2, _ptds, (a, v, n));
        ROWS(cuMemsetD16_v2, _ptds, (a, v2, (n + 1) / 2));
        ROWS(cuMemsetD32_v2, _ptds, (a, v4, (n + 3) / 4));
        ROWS(cuMemsetD8Async, _ptsz, (a, v, n, s));
        ROWS(cuMemsetD16Async, _ptsz, (a, v2, (n + 1) / 2, s));
        ROWS(cuMemsetD32Async, _ptsz, (a, v4, (n + 3) / 4, s));
        ROWS(cuMemsetD2D8_v2, _ptds, (a, 256, v, 200, now.rows));
        ROWS(cuMemsetD2D16_v2, _ptds, (a, 256, v2, 100, now.rows));
        ROWS(cuMemsetD2D32_v2, _ptds, (a, 256, v4, 50, now.rows));
        ROWS(cuMemsetD2D8Async, _ptsz, (a, 256, v, 200, now.rows, s));
        ROWS(cuMemsetD2D16Async, _ptsz, (a, 256, v2, 100, now.rows, s));
        ROWS(cuMemsetD2D32Async, _ptsz, (a, 256, v4, 50, now.rows, s));
}

static CUDA_MEMCPY3D box(CUdeviceptr to, CUdeviceptr from)
{
        return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = from,
                               .srcPitch = 64,
                               .srcHeight = 4,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = to,
                               .dstPitch = 64,
                               .dstHeight = 4,
                               .WidthInBytes = 60,
                               .Height = 3,
                               .Depth = now.slices};
}

static void pitched(void)
{
        CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                            .srcHost = h,
                            .srcPitch = 256,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = a,
                            .dstPitch = 256,
                            .WidthInBytes = 200,
                            .Height = now.rows};
        CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                             .srcDevice = a,
                             .srcPitch = 256,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = host_to,
                             .dstPitch = 256,
                             .WidthInBytes = 200,
                             .Height = now.rows};
        CUDA_MEMCPY3D to = box(a, around), from = box(around, a);
        CUDA_MEMCPY3D_PEER peer;

        memcpy(&peer, &to, sizeof(peer));
        peer.srcContext = peer.dstContext = context;
        ROWS(cuMemcpy2D_v2, _ptds, (&in));
        ROWS(cuMemcpy2D_v2, _ptds, (&out));
        ROWS(cuMemcpy2DUnaligned_v2, _ptds, (&in));
        ROWS(cuMemcpy2DAsync_v2, _ptsz, (&in, s));
        ROWS(cuMemcpy3D_v2, _ptds, (&to));
        ROWS(cuMemcpy3D_v2, _ptds, (&from));
        ROWS(cuMemcpy3DPeer, _ptds, (&peer));
        ROWS(cuMemcpy3DAsync_v2, _ptsz, (&to, s));
        ROWS(cuMemcpy3DPeerAsync, _ptsz, (&peer, s));
}

static CUmemcpy3DOperand at_pointer(CUdeviceptr p, size_t row, size_t height)
{
        return (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                                   .op.ptr = {.ptr = p, .rowLength = row, .layerHeight = height}};
}

/* A batch of two copies. The second one is from an array, so that its lengths count words. */
static void boxes(void)
{
        CUDA_MEMCPY3D_BATCH_OP op = {.src = at_pointer(around, 64, 4),
                                     .dst = at_pointer(a, 64, 4),
                                     .extent = {60, 3, now.slices},
                                     .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
        CUDA_MEMCPY3D_BATCH_OP two[] = {op, op};
        size_t failed = 99;

        two[0].extent = (struct CUextent3D_st){60, 3, 3};
        two[1].src = (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_ARRAY,
                                         .op.array = {.array = words_array}};
        two[1].dst = at_pointer(a, 64, 0);
        two[1].extent = (struct CUextent3D_st){50, now.rows, now.rows ? 1 : 0};
        ROWS(cuMemcpy3DBatchAsync, _ptsz, (2, two, &failed, 0, s));
        program_say("failed", "\"round\":\"%s\",\"index\":%zd", now.name, (ssize_t)failed);
        ROWS(cuMemcpy3DBatchAsync_v2, _ptsz, (2, two, 0, s));
        ROWS(cuMemcpy3DWithAttributesAsync, _ptsz, (&op, 0, s));
}

static void captured(size_t n)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        CUgraph g;

        TRY(all.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        program_say("captured", "\"round\":\"%s\",\"to\":%d,\"from\":%d", now.name,
                    (int)all.cuMemcpyDtoDAsync_v2(a, around, n, s),
                    (int)all.cuMemcpyDtoDAsync_v2(around, a, n, s));
        TRY(all.cuStreamIsCapturing(s, &status));
        program_say("captured", "\"round\":\"%s\",\"status\":%d,\"end\":%d", now.name, (int)status,
                    (int)all.cuStreamEndCapture(s, &g));
        TRY(all.cuGraphDestroy(g));
}

/* Adds nodes, and changes nodes that are within their allocation. */
static void nodes(void)
{
        const struct round this = now;
        CUDA_MEMSET_NODE_PARAMS set = {a, 256, KEPT, 1, 200, 4};
        CUgraphNodeParams copy_node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
        CUgraphNodeParams set_node = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
        CUgraphNode copies, sets, n;
        CUDA_MEMCPY3D copy;
        CUgraphExec x;
        CUgraph g;

        now = rounds[0];
        copy = box(a, around);
        TRY(all.cuGraphCreate(&g, 0));
        TRY(all.cuGraphAddMemcpyNode(&copies, g, NULL, 0, &copy, context));
        TRY(all.cuGraphAddMemsetNode(&sets, g, NULL, 0, &set, context));
        TRY(all.cuGraphInstantiateWithFlags(&x, g, 0));
        now = this;
        copy = box(a, around);
        set.height = now.rows;
        copy_node.memcpy.copyCtx = context;
        copy_node.memcpy.copyParams = copy;
        set_node.memset.dst = a;
        set_node.memset.pitch = 256;
        set_node.memset.value = KEPT;
        set_node.memset.elementSize = 1;
        set_node.memset.width = 200;
        set_node.memset.height = now.rows;
        set_node.memset.ctx = context;
        ROW(cuGraphMemcpyNodeSetParams, (copies, &copy));
        ROW(cuGraphMemsetNodeSetParams, (sets, &set));
        ROW(cuGraphExecMemcpyNodeSetParams, (x, copies, &copy, context));
        ROW(cuGraphExecMemsetNodeSetParams, (x, sets, &set, context));
        ROW(cuGraphNodeSetParams, (copies, &copy_node));
        ROW(cuGraphNodeSetParams, (sets, &set_node));
        ROW(cuGraphNodeSetParams_v2, (sets, &set_node));
        ROW(cuGraphExecNodeSetParams, (x, copies, &copy_node));
        ROW(cuGraphExecNodeSetParams, (x, sets, &set_node));
        ROW(cuGraphAddMemcpyNode, (&n, g, NULL, 0, &copy, context));
        ROW(cuGraphAddMemsetNode, (&n, g, NULL, 0, &set, context));
        ROW(cuGraphAddNode, (&n, g, NULL, 0, &copy_node));
        ROW(cuGraphAddNode_v2, (&n, g, NULL, NULL, 0, &set_node));
        ROW(cuGraphAddNode_v3, (&n, g, NULL, NULL, 0, &set_node));
        TRY(all.cuGraphExecDestroy(x));
        TRY(all.cuGraphDestroy(g));
}

static void large(void)
{
        CUdeviceptr l, freed, low = MIN(a, b);

        now.name = "large";
        TRY(cu.MemAlloc(&l, LARGE));
        TRY(cu.MemsetD8(l, KEPT, LARGE));
        ROW(cuMemsetD8_v2, (l, KEPT, LARGE));
        ROW(cuMemsetD8_v2, (l, OTHER, LARGE + 1));
        ROW(cuMemsetD8_v2, (l, OTHER, 2 * LARGE));
        ROW(cuMemsetD8_v2, (l + LARGE - 1, OTHER, 2));
        ROW(cuMemcpyDtoD_v2, (l + LARGE - SMALL, other, AROUND));
        ROW(cuMemsetD8_v2, (low, OTHER, MAX(a, b) + SMALL - low));
        program_say("large", "\"changed\":%zu", changed(l, LARGE));
        TRY(cu.MemFree(l));
        TRY(cu.MemAlloc(&freed, SMALL));
        TRY(cu.MemFree(freed));
        ROW(cuMemsetD8_v2, (freed, OTHER, SMALL));
        ROW(cuMemcpyHtoD_v2, (freed, host[1], SMALL));
}

static CUarray array_new(CUarray_format format, size_t width, size_t height)
{
        CUDA_ARRAY_DESCRIPTOR d = {
                .Width = width, .Height = height, .Format = format, .NumChannels = 1};
        CUarray array;

        TRY(all.cuArrayCreate_v2(&array, &d));
        return array;
}

static CUdeviceptr filled(size_t bytes, uint8_t value)
{
        CUdeviceptr at;

        TRY(cu.MemAlloc(&at, bytes));
        TRY(cu.MemsetD8(at, value, bytes));
        return at;
}

int main(int argc, char **argv)
{
        CUDA_MEMCPY2D words = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                               .srcHost = host[1],
                               .srcPitch = 256,
                               .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                               .WidthInBytes = 256,
                               .Height = 16};

        program_begin(argc, argv, &(struct options){0}, false);
        /* Only a look-up by name tells which functions the driver lacks, with sublet or without. */
        (void)setenv("PROGRAM_DOOR", "getproc", 0);
        surface_open();
        TRY(cu.CtxGetCurrent(&context));
        TRY(cu.StreamCreate(&s, CU_STREAM_NON_BLOCKING));
        a = filled(SMALL, KEPT);
        b = filled(SMALL, KEPT);
        kept = filled(AROUND, KEPT);
        other = filled(AROUND, OTHER);
        bytes_array = array_new(CU_AD_FORMAT_UNSIGNED_INT8, AROUND, 0);
        words_array = array_new(CU_AD_FORMAT_UNSIGNED_INT32, 64, 16);
        words.dstArray = words_array;
        memset(host[0], KEPT, AROUND);
        memset(host[1], OTHER, AROUND);
        memset(host_to, KEPT, AROUND);
        for (size_t i = 0; i < ARRAY_SIZE(rounds); i++) {
                now = rounds[i];
                h = host[now.value != KEPT];
                around = now.value == KEPT ? kept : other;
                words.srcHost = h;
                TRY(all.cuMemcpy2D_v2(&words));
                linear(now.bytes);
                fills(now.bytes);
                pitched();
                boxes();
                nodes();
                if (now.bytes)
                        captured(now.bytes);
        }
        large();
        program_end();
}
