/* pool_graph_facts.c: asks a driver about memory allocated during captures and in graphs. */
#include <stdbool.h>
#include <string.h>

#include "pool_facts.h"

static CUstream stream, second;
static CUmemoryPool usual;

static void begin_with_streams(void)
{
        begin();
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        NEED(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
        NEED(cuDeviceGetDefaultMemPool(&usual, 0));
}

static void graphs_hold(const char *when)
{
        unsigned long long v[4] = {0};

        for (int i = 0; i < 4; i++)
                NEED(cuDeviceGetGraphMemAttribute(0, (CUgraphMem_attribute)i, &v[i]));
        (void)printf("%s: %s: used %llu, high %llu; reserved %llu, high %llu\n", group, when, v[0],
                     v[1], v[2], v[3]);
}

static void pool_holds(const char *when)
{
        cuuint64_t v[2] = {0};

        NEED(cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &v[0]));
        NEED(cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v[1]));
        (void)printf("%s: %s: the pool: reserved %llu, used %llu\n", group, when,
                     (unsigned long long)v[0], (unsigned long long)v[1]);
}

static CUstreamCaptureStatus status_of(CUstream s)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        (void)cuStreamIsCapturing(s, &status);
        return status;
}

static void pool_in_capture(void)
{
        CUdeviceptr p, q, x, base;
        size_t bytes = 0;
        CUgraph g;

        begin_with_streams();
        NEED(cuMemAllocAsync(&x, 4 * MIB, stream));
        NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        SAY(cuMemAllocAsync(&p, 4 * MIB, stream));
        SAY(cuMemsetD8Async(p, 1, 4 * MIB, stream));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, p));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFreeAsync(p, stream));
        NUMBER(status_of(stream));
        SAY(cuMemAllocAsync(&q, 8 * MIB, stream));
        NUMBER(q == p);
        SAY(cuMemAllocAsync(&q, 0, stream));
        NUMBER(q);
        SAY(cuMemFreeAsync(0, stream));
        SAY(cuMemAllocAsync(NULL, 10, stream));
        NUMBER(status_of(stream));
        SAY(cuMemAllocFromPoolAsync(&q, 1000, usual, stream));
        SAY(cuMemAllocFromPoolAsync(&q, 1000, NULL, stream));
        NEED(cuStreamEndCapture(stream, &g));
        pool_holds("captured");
        SAY(cuMemFreeAsync(x, stream));
}

/* Makes one call that a capture forbids, and prints what becomes of the capture. */
#define FORBIDDEN(call)                                                                    \
        do {                                                                               \
                CUgraph graph_ = NULL;                                                     \
                CUresult said_, end_;                                                      \
                CUstreamCaptureStatus status_;                                             \
                NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));      \
                said_ = (call);                                                            \
                status_ = status_of(stream);                                               \
                end_ = cuStreamEndCapture(stream, &graph_);                                \
                (void)printf("%s: %s = %d, then status %d, end %d\n", group, #call, said_, \
                             status_, end_);                                               \
        } while (0)

static void pool_beside_capture(void)
{
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        CUmemAccessDesc d = {props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemAccess_flags flags;
        CUmemoryPool pool, own, is;
        unsigned long long v = 0;
        CUdeviceptr p, x, y;

        begin_with_streams();
        NEED(cuMemAllocAsync(&x, 4 * MIB, stream));
        NEED(cuMemAlloc_v2(&y, 4 * MIB));
        NEED(cuStreamSynchronize(stream));
        FORBIDDEN(cuMemFreeAsync(x, stream));
        FORBIDDEN(cuMemFreeAsync(y, stream));
        FORBIDDEN(cuMemFreeAsync(0x1000, stream));
        FORBIDDEN(cuMemAllocAsync(&p, 4 * MIB, second));
        FORBIDDEN(cuMemAllocAsync(&p, 0, second));
        FORBIDDEN(cuMemAllocAsync(&p, 4 * MIB, NULL));
        FORBIDDEN(cuMemFreeAsync(x, second));
        FORBIDDEN(cuMemFreeAsync(0, second));
        FORBIDDEN(cuMemFree_v2(x));
        FORBIDDEN(cuMemAllocAsync(&p, (size_t)1 << 45, stream));
        FORBIDDEN(cuMemPoolTrimTo(usual, 0));
        FORBIDDEN(cuMemPoolCreate(&pool, &props));
        NEED(cuMemPoolCreate(&own, &props));
        FORBIDDEN(cuMemPoolDestroy(own));
        FORBIDDEN(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        FORBIDDEN(cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        FORBIDDEN(cuMemPoolSetAccess(usual, &d, 1));
        FORBIDDEN(cuMemPoolGetAccess(&flags, usual, &d.location));
        FORBIDDEN(cuDeviceGetMemPool(&is, 0));
        FORBIDDEN(cuDeviceGetDefaultMemPool(&is, 0));
        FORBIDDEN(cuDeviceSetMemPool(0, usual));
        FORBIDDEN(cuDeviceGraphMemTrim(0));
        FORBIDDEN(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &v));
        FORBIDDEN(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &v));
}

static CUgraph captured(bool to_free, CUdeviceptr *ret_ptr)
{
        CUgraph g;

        NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        NEED(cuMemAllocAsync(ret_ptr, 4 * MIB, stream));
        NEED(cuMemsetD8Async(*ret_ptr, 7, 4 * MIB, stream));
        if (to_free)
                NEED(cuMemFreeAsync(*ret_ptr, stream));
        NEED(cuStreamEndCapture(stream, &g));
        return g;
}

/* Asks about memory that a launch of a graph leaves to the program. */
static void graph_memory_left(void)
{
        static const int which[] = {1, 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
        unsigned char byte = 0;
        unsigned long long v;
        CUdeviceptr q, base;
        CUgraphExec x, again;
        size_t bytes;
        CUgraph g;

        begin_with_streams();
        g = captured(false, &q);
        graphs_hold("captured");
        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        graphs_hold("instantiated");
        SAY(cuMemGetAddressRange_v2(&base, &bytes, q));
        SAY(cuMemFreeAsync(q, stream));
        SAY(cuMemFree_v2(q));
        SAY(cuMemsetD8_v2(q, 1, 16));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        graphs_hold("launched");
        pool_holds("launched");
        SAY(cuMemcpyDtoH_v2(&byte, q, 1));
        NUMBER(byte);
        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
                uint64_t one = 0;
                CUresult r = cuPointerGetAttribute(&one, (CUpointer_attribute)which[i], q);

                if (one - q < 64 * MIB)
                        (void)printf("%s: attribute %d = %d, base + %lld\n", group, which[i], r,
                                     (long long)(one - q));
                else
                        (void)printf("%s: attribute %d = %d, %lld\n", group, which[i], r,
                                     (long long)one);
        }
        SAY(cuMemGetAddressRange_v2(&base, &bytes, q + 5));
        NUMBER(base == q);
        NUMBER(bytes);
        SAY(cuGraphLaunch(x, stream));
        SAY(cuDeviceGraphMemTrim(0));
        graphs_hold("trimmed");
        SAY(cuMemFreeAsync(q + 512, stream));
        SAY(cuMemFreeAsync(q, stream));
        SAY(cuMemFreeAsync(q, stream));
        SAY(cuStreamSynchronize(stream));
        graphs_hold("freed");
        SAY(cuMemGetAddressRange_v2(&base, &bytes, q));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        SAY(cuMemFree_v2(q));
        SAY(cuMemFree_v2(q));
        graphs_hold("freed at once");
        SAY(cuGraphInstantiateWithFlags(&again, g, 0));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        SAY(cuGraphExecDestroy(x));
        SAY(cuGraphDestroy(g));
        graphs_hold("destroyed");
        SAY(cuMemcpyDtoH_v2(&byte, q, 1));
        NUMBER(byte);
        SAY(cuMemFreeAsync(q, stream));
        SAY(cuStreamSynchronize(stream));
        graphs_hold("freed");
        SAY(cuDeviceGraphMemTrim(0));
        graphs_hold("trimmed");
        v = 1;
        SAY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &v));
        SAY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &v));
        v = 0;
        SAY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &v));
        SAY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &v));
        SAY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &v));
        graphs_hold("one high set");
        SAY(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &v));
        graphs_hold("both highs set");
        SAY(cuDeviceGetGraphMemAttribute(0, (CUgraphMem_attribute)9, &v));
        SAY(cuDeviceSetGraphMemAttribute(0, (CUgraphMem_attribute)9, &v));
        SAY(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, NULL));
        SAY(cuDeviceGetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &v));
        SAY(cuDeviceGraphMemTrim(99));
        SAY(cuDeviceGraphMemTrim(-1));
}

/* Asks about memory that a graph frees itself. */
static void graph_memory_freed(void)
{
        CUDA_MEM_ALLOC_NODE_PARAMS params = {0};
        CUgraphNode nodes[8];
        CUdeviceptr p, q, freed = 0;
        CUgraphExec x, again;
        CUgraphNodeType type;
        size_t n = 8, bytes;
        CUgraph g, clone, other;

        begin_with_streams();
        g = captured(true, &p);
        SAY(cuGraphGetNodes(g, nodes, &n));
        NUMBER(n);
        for (size_t i = 0; i < n; i++) {
                NEED(cuGraphNodeGetType(nodes[i], &type));
                NUMBER(type);
        }
        SAY(cuGraphMemAllocNodeGetParams(nodes[0], &params));
        NUMBER(params.bytesize);
        NUMBER(params.dptr == p);
        NUMBER(params.accessDescCount);
        NUMBER(params.poolProps.allocType);
        NUMBER(params.poolProps.location.type);
        NUMBER(params.poolProps.location.id);
        NUMBER(params.poolProps.maxSize);
        SAY(cuGraphMemAllocNodeGetParams(nodes[1], &params));
        SAY(cuGraphMemAllocNodeGetParams(nodes[0], NULL));
        SAY(cuGraphMemFreeNodeGetParams(nodes[2], &freed));
        NUMBER(freed == p);
        SAY(cuGraphMemFreeNodeGetParams(nodes[0], &freed));
        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        graphs_hold("launched twice");
        SAY(cuMemGetAddressRange_v2(&q, &bytes, p));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFree_v2(p));
        SAY(cuGraphClone(&clone, g));
        SAY(cuGraphInstantiateWithFlags(&again, g, 0));
        SAY(cuGraphExecDestroy(x));
        SAY(cuGraphInstantiateWithFlags(&again, g, 0));
        SAY(cuGraphDestroyNode(nodes[0]));
        SAY(cuGraphExecDestroy(again));
        SAY(cuGraphDestroy(g));
        graphs_hold("destroyed");
        SAY(cuDeviceGraphMemTrim(0));
        graphs_hold("trimmed");

        /* Memory of two graphs has different addresses, but they use the same bytes of the card. */
        g = captured(true, &p);
        other = captured(true, &q);
        NUMBER(p == q);
        NEED(cuGraphInstantiateWithFlags(&x, g, 0));
        NEED(cuGraphInstantiateWithFlags(&again, other, 0));
        NEED(cuGraphLaunch(x, stream));
        NEED(cuGraphLaunch(again, stream));
        NEED(cuStreamSynchronize(stream));
        graphs_hold("two graphs");
}

/* Launches a graph again while memory of its first launch is still allocated. */
static void graph_memory_auto(void)
{
        CUgraphExec x;
        CUdeviceptr p;
        CUgraph g;

        begin_with_streams();
        g = captured(false, &p);
        SAY(cuGraphInstantiateWithFlags(&x, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        graphs_hold("launched twice");
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        SAY(cuGraphExecDestroy(x));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuCtxSynchronize());
        graphs_hold("freed");
}

/* Launches graphs that free memory of the program or of another graph. */
static void graph_memory_of_others(void)
{
        CUgraphExec x, y;
        CUdeviceptr p, q;
        CUgraph g, h;

        begin_with_streams();
        g = captured(false, &p);
        NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuStreamEndCapture(stream, &h));
        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphInstantiateWithFlags(&y, h, 0));
        SAY(cuGraphLaunch(y, stream));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuGraphLaunch(y, stream));
        SAY(cuStreamSynchronize(stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuGraphLaunch(y, stream));
        SAY(cuGraphLaunch(x, stream));
        SAY(cuStreamSynchronize(stream));
        graphs_hold("left");
        SAY(cuMemFree_v2(p));
        graphs_hold("freed");
        NEED(cuMemAllocAsync(&q, 4 * MIB, stream));
        NEED(cuStreamSynchronize(stream));
        NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        SAY(cuMemAllocAsync(&p, 4 * MIB, stream));
        SAY(cuMemAllocAsync(&p, 4 * MIB, second));
        SAY(cuMemFreeAsync(p, second));
        SAY(cuMemFreeAsync(q, second));
        SAY(cuStreamEndCapture(stream, &g));
        SAY(cuStreamSynchronize(second));
}

const struct facts pool_graph_groups[] = {
        {"pool_in_capture", pool_in_capture},
        {"pool_beside_capture", pool_beside_capture},
        {"graph_memory_left", graph_memory_left},
        {"graph_memory_freed", graph_memory_freed},
        {"graph_memory_auto", graph_memory_auto},
        {"graph_memory_of_others", graph_memory_of_others},
        {NULL, NULL},
};
