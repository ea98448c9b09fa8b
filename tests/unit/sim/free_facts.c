/* free_facts.c: asks a driver when freed memory is free again, what a pool and a graph take from
 * the free memory, and which context a graph's copy needs. */
#include "pool_facts.h"

static CUstream stream, second;
static CUmemoryPool usual; /* the device's default pool */
static volatile unsigned *flag;
static CUdeviceptr flag_at;
static long long free_then;

static size_t free_now(void)
{
        size_t bytes, total;

        NEED(cuMemGetInfo_v2(&bytes, &total));
        return bytes;
}

static void begin_frees(void)
{
        begin();
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        NEED(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
        NEED(cuDeviceGetDefaultMemPool(&usual, 0));
        NEED(cuMemHostAlloc((void **)&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        NEED(cuMemHostGetDevicePointer_v2(&flag_at, (void *)flag, 0));
        /* The first kernel takes memory of its own. */
        *flag = 1;
        NEED(run(wait_flag, flag_at, stream));
        NEED(cuCtxSynchronize());
        free_then = (long long)free_now();
}

/* Prints by how much free memory has fallen since begin_frees(), and what the pool holds. */
static void taken(const char *when)
{
        cuuint64_t reserved = 0, used = 0;

        NEED(cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
        NEED(cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
        (void)printf("%s: %s: taken %lld, of the pool %llu, used %llu\n", group, when,
                     free_then - (long long)free_now(), (unsigned long long)reserved,
                     (unsigned long long)used);
}

static void there(const char *when, CUdeviceptr p)
{
        CUdeviceptr base;
        size_t bytes;

        (void)printf("%s: %s: range = %d\n", group, when,
                     cuMemGetAddressRange_v2(&base, &bytes, p));
}

static void hold_back(CUstream s)
{
        *flag = 0;
        NEED(run(wait_flag, flag_at, s));
}

static void let_go(CUstream s)
{
        *flag = 1;
        while (cuStreamQuery(s) == CUDA_ERROR_NOT_READY)
                ;
}

/* Memory of cuMemAlloc that is freed in the order of a stream. */
static void free_in_order(void)
{
        CUdeviceptr p;
        CUevent e;

        begin_frees();
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        NEED(cuMemAlloc_v2(&p, 64 * MIB));
        taken("allocated");
        hold_back(stream);
        SAY(cuMemFreeAsync(p, stream));
        taken("freed behind a kernel");
        let_go(stream);
        taken("the stream queried");
        there("the stream queried", p);
        SAY(cuStreamSynchronize(second));
        taken("another stream awaited");
        SAY(cuStreamSynchronize(stream));
        taken("the stream awaited");
        there("the stream awaited", p);

        NEED(cuMemAlloc_v2(&p, 64 * MIB));
        hold_back(second);
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuStreamSynchronize(stream));
        taken("awaited beside a kernel");
        there("awaited beside a kernel", p);
        let_go(second);

        NEED(cuMemAlloc_v2(&p, 64 * MIB));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuCtxSynchronize());
        taken("the context awaited");
        there("the context awaited", p);

        NEED(cuMemAlloc_v2(&p, 64 * MIB));
        SAY(cuMemFreeAsync(p, stream));
        NEED(cuEventRecord(e, stream));
        SAY(cuEventSynchronize(e));
        taken("an event awaited");
        there("an event awaited", p);
}

/* Memory of a pool that is freed without an order. */
static void free_at_once(void)
{
        CUdeviceptr p, q, r;

        begin_frees();
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        hold_back(stream);
        SAY(cuMemFree_v2(p));
        SAY(cuStreamQuery(stream));
        taken("freed beside a kernel");
        there("freed beside a kernel", p);
        SAY(cuMemFree_v2(p));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemPoolTrimTo(usual, 0));
        taken("trimmed");
        let_go(stream);
        taken("the stream queried");
        SAY(cuStreamSynchronize(second));
        taken("another stream awaited");
        SAY(cuStreamSynchronize(stream));
        taken("the stream awaited");
        SAY(cuCtxSynchronize());
        taken("the context awaited");

        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        hold_back(stream);
        SAY(cuMemFree_v2(p));
        NEED(cuMemAllocAsync(&q, 4 * MIB, stream));
        NEED(cuMemAllocAsync(&r, 4 * MIB, second));
        NUMBER(q == p);
        NUMBER(r == p);
        let_go(stream);
        NEED(cuMemFreeAsync(q, stream));
        NEED(cuMemFreeAsync(r, second));
        SAY(cuCtxSynchronize());
        taken("all freed");
}

/* What a pool holds until the program waits. */
static void pool_until_awaited(void)
{
        static char host[64];
        CUdeviceptr p, plain;
        CUevent e;

        begin_frees();
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        NEED(cuMemAlloc_v2(&plain, 4096));
        free_then = (long long)free_now();
        NEED(cuMemAllocAsync(&p, 1, stream));
        taken("a byte");
        SAY(cuMemFreeAsync(p, stream));
        taken("freed");
        let_go(stream);
        taken("the stream queried");
        SAY(cuStreamSynchronize(second));
        taken("another stream awaited");
        SAY(cuStreamSynchronize(NULL));
        taken("the legacy stream awaited");
        SAY(cuMemcpyDtoH_v2(host, plain, 64));
        taken("copied to the host");
        SAY(cuMemcpyHtoD_v2(plain, host, 64));
        taken("copied to the card");
        SAY(cuMemsetD8_v2(plain, 0, 64));
        taken("filled");
        NEED(cuMemAlloc_v2(&plain, 64));
        taken("allocated");
        SAY(cuMemFree_v2(plain));
        taken("other memory freed");
        SAY(cuMemPoolTrimTo(usual, 0));
        taken("trimmed");
        NEED(cuMemAllocAsync(&p, 1, stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuStreamSynchronize(stream));
        taken("the stream awaited");
        NEED(cuMemAllocAsync(&p, 1, NULL));
        SAY(cuMemFreeAsync(p, NULL));
        let_go(NULL);
        taken("freed on the legacy stream");
        SAY(cuStreamSynchronize(NULL));
        taken("the legacy stream awaited");
        NEED(cuMemAllocAsync(&p, 1, stream));
        SAY(cuMemFreeAsync(p, stream));
        NEED(cuEventRecord(e, stream));
        SAY(cuStreamWaitEvent(second, e, 0));
        SAY(cuStreamSynchronize(second));
        taken("a stream awaited that waits for it");
        SAY(cuCtxSynchronize());
        taken("the context awaited");
}

/* Frees of several streams in one mapping, and in several. */
static void pool_of_two_streams(void)
{
        CUdeviceptr p[3];

        begin_frees();
        for (int i = 0; i < 3; i++)
                NEED(cuMemAllocAsync(&p[i], i < 2 ? 1000 : 64 * MIB, i ? second : stream));
        taken("three allocations");
        SAY(cuMemFreeAsync(p[0], stream));
        SAY(cuMemFreeAsync(p[1], second));
        SAY(cuStreamSynchronize(second));
        taken("one of two awaited");
        SAY(cuStreamSynchronize(stream));
        taken("both awaited");
        SAY(cuMemFreeAsync(p[2], second));
        SAY(cuStreamSynchronize(stream));
        taken("the other awaited");
        SAY(cuStreamSynchronize(second));
        taken("the last awaited");
}

/* What a graph's own memory takes. */
static void graph_takes(void)
{
        CUgraphExec x;
        CUdeviceptr p;
        CUgraph g;

        begin_frees();
        NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        NEED(cuMemFreeAsync(p, stream));
        NEED(cuStreamEndCapture(stream, &g));
        taken("captured");
        NEED(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        taken("launched");
        SAY(cuGraphExecDestroy(x));
        SAY(cuGraphDestroy(g));
        taken("destroyed");
        SAY(cuDeviceGraphMemTrim(0));
        taken("trimmed");
}

/* ---- contexts of a graph's copies ---- */

static void nodes_with(const char *what, CUdeviceptr p, CUcontext c)
{
        static char host[64];
        const CUDA_MEMCPY3D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                   .srcDevice = p,
                                   .dstMemoryType = CU_MEMORYTYPE_HOST,
                                   .dstHost = host,
                                   .WidthInBytes = 64,
                                   .Height = 1,
                                   .Depth = 1};
        const CUDA_MEMCPY3D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                  .srcHost = host,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = p,
                                  .WidthInBytes = 64,
                                  .Height = 1,
                                  .Depth = 1};
        const CUDA_MEMCPY3D within = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .srcDevice = p,
                                      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .dstDevice = p + 512,
                                      .WidthInBytes = 64,
                                      .Height = 1,
                                      .Depth = 1};
        const CUDA_MEMCPY3D *const copies[] = {&out, &in, &within};
        static const char *const names[] = {"out", "in", "within"};
        const CUDA_MEMSET_NODE_PARAMS set = {.dst = p, .elementSize = 1, .width = 64, .height = 1};
        CUgraphNodeParams fill = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
        CUgraphNode n, filled;
        CUgraphExec x;
        CUresult made;
        CUgraph g;

        NEED(cuGraphCreate(&g, 0));
        for (int i = 0; i < 3; i++) {
                CUgraphNodeParams copy = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
                CUresult any, own;

                copy.memcpy.copyParams = *copies[i];
                copy.memcpy.copyCtx = c;
                any = cuGraphAddNode(&n, g, NULL, 0, &copy);
                own = cuGraphAddMemcpyNode(&n, g, NULL, 0, copies[i], c);
                (void)printf("%s: %s: %s: node %d, copy %d\n", group, what, names[i], any, own);
                if (any == CUDA_SUCCESS || own == CUDA_SUCCESS) {
                        any = cuGraphNodeSetParams(n, &copy);
                        own = cuGraphMemcpyNodeSetParams(n, copies[i]);
                        (void)printf("%s: %s: %s: set %d, %d\n", group, what, names[i], any, own);
                }
        }
        fill.memset.dst = p;
        fill.memset.elementSize = 1;
        fill.memset.width = 64;
        fill.memset.height = 1;
        fill.memset.ctx = c;
        (void)printf("%s: %s: fill: node %d, own %d\n", group, what,
                     cuGraphAddNode(&n, g, NULL, 0, &fill),
                     cuGraphAddMemsetNode(&n, g, NULL, 0, &set, c));
        NEED(cuGraphAddMemsetNode(&filled, g, NULL, 0, &set, context));
        made = cuGraphInstantiateWithFlags(&x, g, 0);
        (void)printf("%s: %s: made = %d\n", group, what, made);
        if (made == CUDA_SUCCESS) {
                (void)printf("%s: %s: fill: set %d, %d\n", group, what,
                             cuGraphNodeSetParams(filled, &fill),
                             cuGraphMemsetNodeSetParams(filled, &set));
                (void)printf("%s: %s: fill: of the instance %d, %d\n", group, what,
                             cuGraphExecNodeSetParams(x, filled, &fill),
                             cuGraphExecMemsetNodeSetParams(x, filled, &set, c));
                (void)printf("%s: %s: launched = %d\n", group, what, cuGraphLaunch(x, stream));
                (void)printf("%s: %s: awaited = %d\n", group, what, cuStreamSynchronize(stream));
        }
        NEED(cuGraphDestroy(g));
}

static void graph_copies(void)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        const CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                   CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemGenericAllocationHandle h;
        CUdeviceptr plain, pooled, mapped;

        begin_frees();
        NEED(cuMemAlloc_v2(&plain, 4096));
        NEED(cuMemAllocAsync(&pooled, 4096, stream));
        NEED(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(mapped, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(mapped, 2 * MIB, &d, 1));
        NEED(cuCtxSynchronize());
        nodes_with("cuMemAlloc's", plain, context);
        nodes_with("cuMemAlloc's, no context", plain, NULL);
        nodes_with("a pool's", pooled, context);
        nodes_with("a pool's, no context", pooled, NULL);
        nodes_with("mapped", mapped, context);
        nodes_with("mapped, no context", mapped, NULL);
        NEED(cuCtxSetCurrent(NULL));
        nodes_with("cuMemAlloc's, nothing current", plain, NULL);
        nodes_with("cuMemAlloc's, not current", plain, context);
}

const struct facts free_groups[] = {
        {"free_in_order", free_in_order},
        {"free_at_once", free_at_once},
        {"pool_until_awaited", pool_until_awaited},
        {"pool_of_two_streams", pool_of_two_streams},
        {"graph_takes", graph_takes},
        {"graph_copies", graph_copies},
        {NULL, NULL},
};
