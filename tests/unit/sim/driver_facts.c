/* driver_facts.c: asks a driver questions that the documentation leaves open, one answer on each
 * line. driver_facts.txt has a real card's answers; the simulated driver must give the same. */
#include "driver_facts.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc both = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc reading = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                        CU_MEM_ACCESS_FLAGS_PROT_READ};

/* ---- errors ---- */

static void unmapped_sync_copies(void)
{
        CUdeviceptr va, p;
        char host[64] = {0};

        begin();
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        NEED(cuMemAlloc_v2(&p, 4096));
        SAY(cuMemcpyHtoD_v2(va, host, 64));
        SAY(cuMemcpyDtoH_v2(host, va, 64));
        SAY(cuMemcpyDtoD_v2(va, p, 64));
        SAY(cuMemcpyDtoD_v2(p, va, 64));
        SAY(cuMemsetD8_v2(va, 1, 64));
        SAY(cuCtxSynchronize());
        SAY(cuMemcpyHtoD_v2(p, host, 64));
}

static void unmapped_async_copy_in(void)
{
        CUdeviceptr va;
        CUstream s;
        void *host;

        begin();
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuMemHostAlloc(&host, 4096, 0));
        SAY(cuMemcpyHtoDAsync_v2(va, host, 64, s));
        SAY(cuStreamSynchronize(s));
        SAY(cuMemcpyDtoHAsync_v2(host, va, 64, s));
        SAY(cuStreamSynchronize(s));
        SAY(cuMemsetD8Async(va, 1, 64, s));
        SAY(cuStreamSynchronize(s));
        SAY(cuCtxSynchronize());
}

static void no_access_sync_copies(void)
{
        CUmemGenericAllocationHandle h;
        char host[64] = {0};
        CUdeviceptr va;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        SAY(cuMemcpyHtoD_v2(va, host, 64));
        SAY(cuMemcpyDtoH_v2(host, va, 64));
        SAY(cuMemsetD8_v2(va, 1, 64));
        SAY(cuCtxSynchronize());
}

static void no_access_async_copy(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr va;
        CUstream s;
        void *host;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuMemHostAlloc(&host, 4096, 0));
        SAY(cuMemcpyHtoDAsync_v2(va, host, 64, s));
        SAY(cuStreamSynchronize(s));
}

static void unmapped_before_it_runs(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr va, flag;
        CUstream s;
        void *host;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuMemHostAlloc(&host, 4096, 0));
        memset(host, 0, 4096);
        flag = (CUdeviceptr)(uintptr_t)host;
        NEED(run(wait_flag, flag, s));
        NEED(cuMemcpyHtoDAsync_v2(va, (char *)host + 64, 64, s));
        SAY(cuMemUnmap(va, 2 * MIB));
        __atomic_store_n((unsigned *)host, 1, __ATOMIC_SEQ_CST);
        SAY(cuStreamSynchronize(s));
}

static void read_only_store(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr va;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        SAY(cuMemSetAccess(va, 2 * MIB, &reading, 1));
        SAY(run(store, va, NULL));
        SAY(cuCtxSynchronize());
}

static void after_illegal_address(void)
{
        CUmemGenericAllocationHandle h, h2, h3;
        CUdeviceptr va, va2, p;
        size_t a, b;
        CUcontext c;
        CUstream s;
        CUevent e;
        void *host;
        int n;

        begin();
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemCreate(&h2, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        NEED(cuMemAlloc_v2(&p, 64));
        NEED(cuMemHostAlloc(&host, 4096, 0));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&e, 0));
        SAY(run(store, va + 2 * MIB, s));
        SAY(cuStreamSynchronize(s));
        SAY(cuStreamQuery(s));
        SAY(cuEventRecord(e, s));
        SAY(cuEventQuery(e));
        SAY(cuEventDestroy_v2(e));
        SAY(cuStreamDestroy_v2(s));
        SAY(cuMemGetInfo_v2(&a, &b));
        SAY(cuMemAlloc_v2(&va2, 64));
        SAY(cuMemFree_v2(p));
        SAY(cuMemFreeHost(host));
        SAY(cuMemUnmap(va, 2 * MIB));
        SAY(cuMemRelease(h));
        SAY(cuMemCreate(&h3, 2 * MIB, &prop, 0));
        SAY(cuMemAddressFree(va, 4 * MIB));
        SAY(cuMemAddressReserve(&va2, 4 * MIB, 0, 0, 0));
        SAY(cuCtxGetCurrent(&c));
        SAY(cuDeviceGetCount(&n));
        SAY(cuDeviceTotalMem_v2(&a, 0));
        SAY(cuCtxSetCurrent(NULL));
        SAY(cuMemRelease(h2));
        SAY(cuMemCreate(&h3, 2 * MIB, &prop, 0));
        SAY(cuCtxSetCurrent(context));
        SAY(cuCtxSynchronize());
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        SAY(cuDevicePrimaryCtxRetain(&c, 0));
        SAY(cuDevicePrimaryCtxReset_v2(0));
        SAY(cuDevicePrimaryCtxRetain(&c, 0));
        SAY(cuCtxCreate_v2(&c, 0, 0));
        SAY(cuMemCreate(&h3, 2 * MIB, &prop, 0));
}

/* Asks what a context can still do after another context of the process has failed. */
static void beside_illegal_address(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr va, p, q;
        CUcontext other;
        CUmodule m;
        CUfunction f;
        CUstream s, s2;
        CUevent e;
        unsigned word = 0;

        begin();
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuCtxCreate_v2(&other, 0, 0));
        NEED(cuModuleLoadData(&m, facts_ptx));
        NEED(cuModuleGetFunction(&f, m, "store"));
        NEED(cuMemAlloc_v2(&p, 64));
        NEED(cuMemsetD32_v2(p, 7, 16));
        NEED(cuMemsetD32_v2(va, 9, 16));
        NEED(cuStreamCreate(&s2, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&e, 0));
        NEED(cuCtxSynchronize());
        NEED(cuCtxSetCurrent(context));
        SAY(run(store, va + 2 * MIB, s));
        SAY(cuStreamSynchronize(s));
        NEED(cuCtxSetCurrent(other));
        SAY(cuCtxSynchronize());
        SAY(cuStreamQuery(s2));
        SAY(cuEventRecord(e, s2));
        SAY(cuEventQuery(e));
        SAY(cuMemcpyDtoH_v2(&word, p, 4));
        NUMBER(word);
        SAY(cuMemcpyDtoH_v2(&word, va, 4));
        NUMBER(word);
        SAY(cuMemsetD32Async(p, 8, 16, s2));
        SAY(cuStreamSynchronize(s2));
        SAY(cuMemcpyDtoHAsync_v2(&word, p, 4, s2));
        SAY(cuStreamSynchronize(s2));
        NUMBER(word);
        SAY(run(f, p, s2));
        SAY(cuStreamSynchronize(s2));
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuMemFree_v2(p));
        SAY(cuStreamDestroy_v2(s2));
        SAY(cuCtxDestroy_v2(other));
}

static void unmapped_while_it_runs(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr va;
        CUstream s;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(run(wait_flag, va, s));
        (void)usleep(100000);
        SAY(cuMemUnmap(va, 2 * MIB));
        SAY(cuStreamSynchronize(s));
}

static void unmapped_in_graphs(void)
{
        CUDA_MEMSET_NODE_PARAMS set = {.value = 1, .elementSize = 1, .width = 64, .height = 1};
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .WidthInBytes = 64,
                              .Height = 1,
                              .Depth = 1};
        CUmemGenericAllocationHandle h;
        CUstreamCaptureStatus status;
        CUgraphNode n;
        CUgraphExec x;
        CUdeviceptr va;
        CUgraph g;
        CUstream s;
        void *host;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuMemHostAlloc(&host, 4096, 0));
        NEED(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        SAY(cuMemcpyHtoDAsync_v2(va, host, 64, s));
        NEED(cuStreamIsCapturing(s, &status));
        NUMBER(status);
        SAY(cuStreamEndCapture(s, &g));
        NEED(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        SAY(cuMemsetD8Async(va, 1, 64, s));
        SAY(cuStreamEndCapture(s, &g));
        NEED(cuGraphCreate(&g, 0));
        copy.srcHost = host;
        copy.dstDevice = va;
        set.dst = va;
        SAY(cuGraphAddMemcpyNode(&n, g, NULL, 0, &copy, context));
        SAY(cuGraphAddMemsetNode(&n, g, NULL, 0, &set, context));

        /* The memory is mapped at capture and instantiation, but not at the launch. */
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        NEED(cuGraphCreate(&g, 0));
        SAY(cuGraphAddMemcpyNode(&n, g, NULL, 0, &copy, context));
        SAY(cuGraphAddMemsetNode(&n, g, NULL, 0, &set, context));
        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphLaunch(x, s));
        SAY(cuStreamSynchronize(s));
        NEED(cuMemUnmap(va, 2 * MIB));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        SAY(cuGraphLaunch(x, s));
        SAY(cuStreamSynchronize(s));
        NEED(cuMemUnmap(va, 2 * MIB));
        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphLaunch(x, s));
        SAY(cuStreamSynchronize(s));
}

/* ---- virtual memory ---- */

static void vmm_shapes(void)
{
        CUmemGenericAllocationHandle h, again, part;
        CUdeviceptr va, base = 0, hint;
        unsigned long long flags = 0;
        size_t bytes = 0, free0, free1, total;
        unsigned word = 0;

        begin();
        SAY(cuMemAddressReserve(&va, MIB, 0, 0, 0));
        SAY(cuMemAddressReserve(&va, 0, 0, 0, 0));
        SAY(cuMemCreate(&h, MIB, &prop, 0));
        NEED(cuMemAddressReserve(&va, 16 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 4 * MIB, &prop, 0));
        SAY(cuMemMap(va, 2 * MIB, 0, h, 0));
        SAY(cuMemMap(va, 4 * MIB, 0, h, 0));
        SAY(cuMemUnmap(va, 2 * MIB));
        SAY(cuMemMap(va, 2 * MIB, 2 * MIB, h, 0));
        SAY(cuMemMap(va, 4 * MIB, 0, h, 0));
        SAY(cuMemUnmap(va, 4 * MIB));
        SAY(cuMemUnmap(va, 2 * MIB));
        SAY(cuMemUnmap(va, 2 * MIB));
        NEED(cuMemMap(va, 4 * MIB, 0, h, 0));
        NEED(cuMemCreate(&part, 4 * MIB, &prop, 0));
        NEED(cuMemMap(va + 4 * MIB, 4 * MIB, 0, part, 0));
        SAY(cuMemSetAccess(va, 2 * MIB, &both, 1));
        SAY(cuMemSetAccess(va + 2 * MIB, 4 * MIB, &both, 1));
        SAY(cuMemSetAccess(va, 16 * MIB, &both, 1));
        SAY(cuMemSetAccess(va, 8 * MIB, &both, 1));
        SAY(cuMemGetAccess(&flags, &both.location, va));
        NUMBER(flags);
        SAY(cuMemGetAccess(&flags, &both.location, va + 8 * MIB));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, va + 5 * MIB));
        NUMBER(base - va);
        NUMBER(bytes);
        SAY(cuMemGetAddressRange_v2(&base, &bytes, va + 9 * MIB));
        SAY(cuMemUnmap(va, 2 * MIB));
        SAY(cuMemUnmap(va, 6 * MIB));
        SAY(cuMemUnmap(va, 16 * MIB));
        SAY(cuMemAddressFree(va, 16 * MIB));
        SAY(cuMemUnmap(va, 8 * MIB));
        SAY(cuMemAddressFree(va, 8 * MIB));
        NEED(cuMemAddressReserve(&va, 16 * MIB, 0, 0, 0));

        /* A released handle keeps its memory and contents while it is mapped. */
        NEED(cuMemMap(va, 4 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 4 * MIB, &both, 1));
        NEED(cuMemcpyDtoH_v2(&word, va, 4));
        NUMBER(word);
        NEED(run(store, va, NULL));
        SAY(cuMemRelease(h));
        NEED(cuMemcpyDtoH_v2(&word, va, 4));
        NUMBER(word);
        SAY(cuMemMap(va + 4 * MIB, 4 * MIB, 0, h, 0));
        SAY(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + MIB)));
        NUMBER(again == h);
        SAY(cuMemUnmap(va, 4 * MIB));
        SAY(cuMemMap(va, 4 * MIB, 0, again, 0));
        SAY(cuMemSetAccess(va, 4 * MIB, &both, 1));
        NEED(cuMemcpyDtoH_v2(&word, va, 4));
        NUMBER(word);
        NEED(cuMemUnmap(va, 4 * MIB));
        NEED(cuMemGetInfo_v2(&free0, &total));
        SAY(cuMemRelease(again));
        NEED(cuMemGetInfo_v2(&free1, &total));
        NUMBER(free1 - free0);
        SAY(cuMemRelease(part));
        SAY(cuMemAddressFree(va, 16 * MIB));

        /* The driver takes a hint if the addresses are free. */
        NEED(cuMemAddressReserve(&hint, 16 * MIB, 0, va, 0));
        NUMBER(hint == va);
        SAY(cuMemAddressReserve(&hint, 16 * MIB, 0, va, 0));
        NUMBER(hint == va);
        SAY(cuMemAddressReserve(&hint, 16 * MIB, 3, 0, 0));
        SAY(cuMemAddressReserve(&hint, 16 * MIB, 64 * MIB, 0, 0));
        NUMBER(hint % (64 * MIB));
        SAY(cuMemAddressReserve(&hint, (size_t)200 << 30, 0, 0, 0));
}

/* Asks what remains of a released handle, and which errors calls with handles return. */
static void vmm_handles(void)
{
        CUmemGenericAllocationHandle h, h2, again = 0;
        CUmemAllocationProp got, p = prop;
        CUdeviceptr va, between, other;
        size_t granularity = 0;
        unsigned word = 0, want = 7;

        begin();
        /* Leaves a hole between two reservations. */
        NEED(cuMemAddressReserve(&between, 96 * MIB, 0, 0, 0));
        NEED(cuMemAddressFree(between, 96 * MIB));
        NEED(cuMemAddressReserve(&va, 32 * MIB, 0, between, 0));
        NEED(cuMemAddressReserve(&other, 32 * MIB, 0, between + 64 * MIB, 0));
        NUMBER(va - between);
        NUMBER(other - between);
        SAY(cuMemCreate(&h, 0, &prop, 0));
        SAY(cuMemCreate(&h, 3 * MIB, &prop, 0));
        SAY(cuMemCreate(&h, 2 * MIB, &prop, 1));
        SAY(cuMemCreate(&h, 2 * MIB, NULL, 0));
        SAY(cuMemCreate(NULL, 2 * MIB, &prop, 0));
        SAY(cuMemCreate(&h, (size_t)1 << 44, &prop, 0));
        p.location.id = 77;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        SAY(cuMemGetAllocationGranularity(&granularity, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        p.location.id = -1;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop;
        p.type = CU_MEM_ALLOCATION_TYPE_INVALID;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop;
        p.location.type = CU_MEM_LOCATION_TYPE_INVALID;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop;
        p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        SAY(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        NUMBER(granularity);
        SAY(cuMemGetAllocationGranularity(&granularity, &prop,
                                          CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
        NUMBER(granularity);
        SAY(cuMemGetAllocationGranularity(NULL, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));

        SAY(cuMemRelease(0));
        SAY(cuMemMap(va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 4 * MIB, &prop, 0));
        SAY(cuMemMap(va, 4 * MIB, 0, h, 1));
        SAY(cuMemMap(va, 0, 0, h, 0));
        SAY(cuMemMap(va + MIB, 4 * MIB, 0, h, 0));
        SAY(cuMemMap(va, 8 * MIB, 0, h, 0));
        SAY(cuMemMap(va, 3 * MIB, 0, h, 0));
        SAY(cuMemMap(va, 4 * MIB, 2 * MIB, h, 0));
        SAY(cuMemMap(va, 4 * MIB, MIB, h, 0));
        SAY(cuMemMap(va + 40 * MIB, 4 * MIB, 0, h, 0));
        SAY(cuMemMap(0x1000000, 4 * MIB, 0, h, 0));
        SAY(cuMemMap(0, 4 * MIB, 0, h, 0));
        SAY(cuMemGetAllocationPropertiesFromHandle(&got, h));
        NUMBER(got.type);
        NUMBER(got.requestedHandleTypes);
        NUMBER(got.location.type);
        NUMBER(got.location.id);
        NUMBER(got.allocFlags.gpuDirectRDMACapable);
        SAY(cuMemGetAllocationPropertiesFromHandle(NULL, h));

        /* Maps one handle at several addresses. */
        SAY(cuMemMap(va, 4 * MIB, 0, h, 0));
        SAY(cuMemMap(va + 8 * MIB, 4 * MIB, 0, h, 0));
        SAY(cuMemMap(other, 4 * MIB, 0, h, 0));
        SAY(cuMemMap(va + 2 * MIB, 4 * MIB, 0, h, 0));
        SAY(cuMemSetAccess(va, 4 * MIB, &both, 1));
        SAY(cuMemSetAccess(other, 4 * MIB, &both, 1));
        NEED(cuMemcpyHtoD_v2(va + 64, &want, 4));
        NEED(cuMemcpyDtoH_v2(&word, other + 64, 4));
        NUMBER(word);
        SAY(cuMemUnmap(va, 32 * MIB));
        NEED(cuMemcpyDtoH_v2(&word, other + 64, 4));
        NUMBER(word);

        /* A handle that is released while mapped can still be named. */
        SAY(cuMemRelease(h));
        SAY(cuMemGetAllocationPropertiesFromHandle(&got, h));
        SAY(cuMemMap(va, 4 * MIB, 0, h, 0));
        SAY(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(other + MIB)));
        NUMBER(again == h);
        SAY(cuMemRelease(again));
        SAY(cuMemUnmap(other, 32 * MIB));
        SAY(cuMemUnmap(va, 32 * MIB));
        SAY(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)other));
        SAY(cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)other));

        /* A handle keeps its contents, mapped or not. */
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        NEED(cuMemcpyHtoD_v2(va, &want, 4));
        NEED(cuMemUnmap(va, 2 * MIB));
        NEED(cuMemMap(other + 6 * MIB, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(other + 6 * MIB, 2 * MIB, &both, 1));
        word = 0;
        NEED(cuMemcpyDtoH_v2(&word, other + 6 * MIB, 4));
        NUMBER(word);
        NEED(cuMemUnmap(other + 6 * MIB, 2 * MIB));
        SAY(cuMemRelease(h));

        /* Makes two adjacent reservations. */
        NEED(cuMemAddressFree(va, 32 * MIB));
        NEED(cuMemAddressFree(other, 32 * MIB));
        NEED(cuMemAddressReserve(&va, 64 * MIB, 0, 0, 0));
        NEED(cuMemAddressFree(va, 64 * MIB));
        NEED(cuMemAddressReserve(&va, 32 * MIB, 0, va, 0));
        NEED(cuMemAddressReserve(&other, 32 * MIB, 0, va + 32 * MIB, 0));
        NUMBER(other - va);
        NEED(cuMemCreate(&h, 4 * MIB, &prop, 0));
        NEED(cuMemCreate(&h2, 4 * MIB, &prop, 0));
        SAY(cuMemMap(va + 30 * MIB, 4 * MIB, 0, h, 0));
        SAY(cuMemAddressFree(va, 32 * MIB));
        SAY(cuMemAddressFree(other, 32 * MIB));
        SAY(cuMemUnmap(va + 30 * MIB, 4 * MIB));
        NEED(cuMemMap(va + 28 * MIB, 4 * MIB, 0, h, 0));
        NEED(cuMemMap(other, 4 * MIB, 0, h2, 0));
        SAY(cuMemSetAccess(va + 28 * MIB, 8 * MIB, &both, 1));
        SAY(cuMemcpyDtoD_v2(va + 30 * MIB, va + 28 * MIB, 2 * MIB));
        SAY(cuMemsetD8_v2(va + 30 * MIB, 1, 4 * MIB));
        SAY(cuMemUnmap(va + 28 * MIB, 8 * MIB));
        SAY(cuMemUnmap(other, 4 * MIB));
        SAY(cuMemAddressFree(va, 64 * MIB));
        SAY(cuMemAddressFree(va + 2 * MIB, 30 * MIB));
        SAY(cuMemUnmap(va + MIB, 2 * MIB));
        SAY(cuMemUnmap(va, 0));
        SAY(cuMemUnmap(0, 2 * MIB));
        SAY(cuMemAddressFree(va, 32 * MIB));
        SAY(cuMemAddressFree(va, 32 * MIB));
        SAY(cuMemUnmap(va, 32 * MIB));
        SAY(cuMemAddressFree(0, 0));
        SAY(cuMemAddressReserve(NULL, 2 * MIB, 0, 0, 0));
        SAY(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 1));
        SAY(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 2));
        SAY(cuMemAddressReserve(&va, 2 * MIB, 4096, 0, 0));
}

/* Asks which access to mappings can be set, and what the driver says of it. */
static void vmm_access(void)
{
        CUmemAccessDesc twice[2] = {both, reading}, d;
        CUmemGenericAllocationHandle h, h2;
        unsigned long long flags = 9;
        CUmemLocation l;
        CUdeviceptr va;

        begin();
        NEED(cuMemAddressReserve(&va, 16 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemCreate(&h2, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemMap(va + 2 * MIB, 2 * MIB, 0, h2, 0));
        SAY(cuMemGetAccess(&flags, &both.location, va));
        NUMBER(flags);
        SAY(cuMemSetAccess(va, 2 * MIB, NULL, 1));
        SAY(cuMemSetAccess(va, 2 * MIB, &both, 0));
        SAY(cuMemSetAccess(va, 0, &both, 1));
        SAY(cuMemSetAccess(va + MIB, 2 * MIB, &both, 1));
        SAY(cuMemSetAccess(va, MIB, &both, 1));
        SAY(cuMemSetAccess(va + 8 * MIB, 2 * MIB, &both, 1));
        d = both;
        d.flags = (CUmemAccess_flags)2;
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d.flags = (CUmemAccess_flags)7;
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d = both;
        d.location.id = 77;
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d.location.id = -1;
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d = both;
        d.location.type = CU_MEM_LOCATION_TYPE_INVALID;
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        SAY(cuMemSetAccess(va, 2 * MIB, twice, 2));
        SAY(cuMemGetAccess(&flags, &both.location, va));
        NUMBER(flags);
        SAY(cuMemSetAccess(va, 4 * MIB, &both, 1));
        SAY(cuMemGetAccess(&flags, &both.location, va + 3 * MIB));
        NUMBER(flags);
        SAY(cuMemGetAccess(&flags, &both.location, va + 64));
        SAY(cuMemSetAccess(va, 2 * MIB, &reading, 1));
        SAY(cuMemGetAccess(&flags, &both.location, va));
        NUMBER(flags);
        d = both;
        d.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        SAY(cuMemGetAccess(&flags, &both.location, va));
        NUMBER(flags);
        SAY(cuMemsetD8_v2(va, 1, 64));
        SAY(cuMemGetAccess(NULL, &both.location, va));
        SAY(cuMemGetAccess(&flags, NULL, va));
        l = both.location;
        l.id = 77;
        SAY(cuMemGetAccess(&flags, &l, va));
        SAY(cuMemGetAccess(&flags, &both.location, va + 8 * MIB));
        SAY(cuMemGetAccess(&flags, &both.location, 4096));

        /* Mapping again after an unmap: the access is gone. */
        NEED(cuMemUnmap(va + 2 * MIB, 2 * MIB));
        NEED(cuMemMap(va + 2 * MIB, 2 * MIB, 0, h2, 0));
        SAY(cuMemGetAccess(&flags, &both.location, va + 2 * MIB));
        NUMBER(flags);
}

static void attribute_of(const char *what, CUdeviceptr base, CUdeviceptr p, int which)
{
        uint64_t v = 0;
        CUresult r = cuPointerGetAttribute(&v, (CUpointer_attribute)which, p);

        if (v - base < 64 * MIB)
                (void)printf("%s: %s: attribute %d = %d, base + %lld\n", group, what, which, r,
                             (long long)(v - base));
        else
                (void)printf("%s: %s: attribute %d = %d, %lld\n", group, what, which, r,
                             (long long)v);
}

/* Prints every attribute of mapped memory, except for numbers that the driver makes up. */
static void vmm_pointers(void)
{
        static const int which[] = {1,  2,  3,  4,  6,  8,  9,  10, 11,
                                    12, 13, 14, 15, 16, 17, 18, 19, 21};
        unsigned long long id = 0, id2 = 0, id3 = 0;
        CUmemGenericAllocationHandle h, h2;
        CUmemAllocationProp shared = prop;
        CUdeviceptr va, base = 0;
        size_t bytes = 0;
        unsigned on = 1;

        begin();
        shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        NEED(cuMemAddressReserve(&va, 32 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 4 * MIB, &prop, 0));
        NEED(cuMemCreate(&h2, 2 * MIB, &shared, 0));
        NEED(cuMemMap(va, 4 * MIB, 0, h, 0));
        NEED(cuMemMap(va + 8 * MIB, 4 * MIB, 0, h, 0));
        NEED(cuMemMap(va + 16 * MIB, 2 * MIB, 0, h2, 0));
        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
                attribute_of("no access", va, va + 64, which[i]);
        NEED(cuMemSetAccess(va, 4 * MIB, &both, 1));
        NEED(cuMemSetAccess(va + 8 * MIB, 4 * MIB, &reading, 1));
        NEED(cuMemSetAccess(va + 16 * MIB, 2 * MIB, &both, 1));
        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
                attribute_of("read and write", va, va + 3 * MIB, which[i]);
        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
                attribute_of("alias to read", va, va + 9 * MIB, which[i]);
        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
                attribute_of("to share", va, va + 16 * MIB, which[i]);
        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
                attribute_of("between", va, va + 20 * MIB, which[i]);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, va));
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, va + 8 * MIB));
        SAY(cuPointerGetAttribute(&id3, CU_POINTER_ATTRIBUTE_BUFFER_ID, va + 16 * MIB));
        NUMBER(id == id2);
        NUMBER(id == id3);
        NUMBER(id == 0);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, va));
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, va + 8 * MIB));
        SAY(cuPointerGetAttribute(&id3, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, va + 16 * MIB));
        NUMBER(id == id2);
        NUMBER(id == id3);
        NUMBER(id == 0);
        SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, va + 9 * MIB));
        NUMBER(base - va);
        NUMBER(bytes);
        SAY(cuMemFree_v2(va));
        SAY(cuMemGetAddressRange_v2(&base, NULL, va + 4 * MIB));
}

/* Asks which mappings and handles end with a context. */
static void vmm_contexts(void)
{
        CUmemGenericAllocationHandle h;
        unsigned word = 0, want = 7;
        size_t free0, free1, total;
        CUcontext c;
        CUdeviceptr va;

        begin();
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 4 * MIB, &prop, 0));
        NEED(cuMemMap(va, 4 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 4 * MIB, &both, 1));
        NEED(cuMemcpyHtoD_v2(va, &want, 4));
        NEED(cuCtxCreate_v2(&c, 0, 0));
        SAY(cuMemcpyDtoH_v2(&word, va, 4));
        NUMBER(word);
        NEED(cuCtxDestroy_v2(c));
        NEED(cuCtxSetCurrent(context));
        SAY(cuMemcpyDtoH_v2(&word, va, 4));
        NEED(cuDevicePrimaryCtxReset_v2(0));
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
        word = 0;
        SAY(cuMemcpyDtoH_v2(&word, va, 4));
        NUMBER(word);
        SAY(cuMemUnmap(va, 4 * MIB));
        NEED(cuMemGetInfo_v2(&free0, &total));
        SAY(cuMemRelease(h));
        NEED(cuMemGetInfo_v2(&free1, &total));
        NUMBER(free1 - free0);
        SAY(cuMemAddressFree(va, 4 * MIB));
}

/* Exports handles as descriptors, and imports them. */
static void vmm_exports(void)
{
        CUmemGenericAllocationHandle h, h2, in = 0, in2 = 0;
        CUmemAllocationProp shared = prop, got;
        unsigned word = 0, want = 7;
        CUdeviceptr va;
        int fd = -1, fd2 = -1;

        begin();
        shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        NEED(cuMemAddressReserve(&va, 32 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 4 * MIB, &shared, 0));
        NEED(cuMemCreate(&h2, 4 * MIB, &prop, 0));
        SAY(cuMemExportToShareableHandle(&fd, h2, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        SAY(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_FABRIC, 0));
        SAY(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_NONE, 0));
        SAY(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
        SAY(cuMemExportToShareableHandle(NULL, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        SAY(cuMemExportToShareableHandle(&fd, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        SAY(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        SAY(cuMemExportToShareableHandle(&fd2, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        NUMBER(fd >= 0 && fd2 >= 0 && fd != fd2);
        SAY(cuMemImportFromShareableHandle(&in, (void *)(intptr_t)fd,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        SAY(cuMemImportFromShareableHandle(&in2, (void *)(intptr_t)fd2,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        NUMBER(in == h);
        NUMBER(in == in2);
        SAY(cuMemGetAllocationPropertiesFromHandle(&got, in));
        NUMBER(got.requestedHandleTypes);
        NEED(cuMemMap(va, 4 * MIB, 0, h, 0));
        SAY(cuMemMap(va + 8 * MIB, 4 * MIB, 0, in, 0));
        NEED(cuMemSetAccess(va, 4 * MIB, &both, 1));
        SAY(cuMemSetAccess(va + 8 * MIB, 4 * MIB, &both, 1));
        NEED(cuMemcpyHtoD_v2(va, &want, 4));
        NEED(cuMemcpyDtoH_v2(&word, va + 8 * MIB, 4));
        NUMBER(word);
        SAY(cuMemExportToShareableHandle(&fd, in, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        SAY(cuMemRelease(h));
        SAY(cuMemUnmap(va, 4 * MIB));
        NEED(cuMemcpyDtoH_v2(&word, va + 8 * MIB, 4));
        NUMBER(word);
        SAY(cuMemUnmap(va + 8 * MIB, 4 * MIB));
        SAY(cuMemRelease(in));
        SAY(cuMemRelease(in2));
        SAY(cuMemImportFromShareableHandle(&in, (void *)(intptr_t)0,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

/* ---- pointers ---- */

static void about(const char *what, CUdeviceptr p)
{
        CUpointer_attribute all[] = {
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CU_POINTER_ATTRIBUTE_IS_MANAGED,
                CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                CU_POINTER_ATTRIBUTE_MAPPED,
                CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        };
        uint64_t v[7], one = 99;
        void *out[7];
        CUcontext c = (CUcontext)99;
        CUresult r;

        memset(v, 0, sizeof(v));
        for (int i = 0; i < 7; i++)
                out[i] = &v[i];
        r = cuPointerGetAttributes(7, all, out, p);
        (void)printf("%s: %s: attributes = %d:", group, what, r);
        for (int i = 0; i < 7; i++)
                (void)printf(" %lld", i == 1 ? (long long)(int)v[i] : (long long)v[i]);
        (void)printf("\n");
        r = cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
        (void)printf("%s: %s: memory type alone = %d\n", group, what, r);
        r = cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p);
        (void)printf("%s: %s: context = %d, %s\n", group, what, r,
                     c == context ? "the context"
                     : c          ? "another"
                                  : "none");
        r = cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p);
        (void)printf("%s: %s: device pointer = %d, same %d\n", group, what, r, one == p);
        r = cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
        (void)printf("%s: %s: host pointer = %d\n", group, what, r);
}

static void pointers(void)
{
        static char plain[4096];
        CUmemGenericAllocationHandle h;
        CUdeviceptr p, va, d = 0, base = 0;
        unsigned flags = 99;
        size_t bytes = 0, a, b, total, pitch;
        char *host;
        void *own;

        begin();
        NEED(cuMemAlloc_v2(&p, 1000));
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemAllocHost_v2((void **)&host, 4096));
        own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(cuMemHostRegister_v2(own, 8192, 0));
        about("cuMemAlloc", p);
        about("cuMemAlloc + 10", p + 10);
        about("mapped", va + 64);
        about("reserved", va + 3 * MIB);
        about("pinned", (uintptr_t)host + 8);
        about("registered", (uintptr_t)own + 8);
        about("plain host", (uintptr_t)plain);
        about("null", 0);
        SAY(cuMemGetAddressRange_v2(&base, &bytes, p + 10));
        NUMBER(base == p);
        NUMBER(bytes);
        SAY(cuMemGetAddressRange_v2(&base, &bytes, (uintptr_t)plain));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, (uintptr_t)host + 8));
        NUMBER(bytes);
        SAY(cuMemHostGetFlags(&flags, host));
        NUMBER(flags);
        SAY(cuMemHostGetFlags(&flags, own));
        NUMBER(flags);
        SAY(cuMemHostGetFlags(&flags, plain));
        SAY(cuMemHostGetDevicePointer_v2(&d, host + 8, 0));
        NUMBER(d == (uintptr_t)host + 8);
        SAY(cuMemHostGetDevicePointer_v2(&d, own, 0));
        SAY(cuMemHostGetDevicePointer_v2(&d, plain, 0));
        SAY(cuMemHostRegister_v2(own, 4096, 0));
        SAY(cuMemHostUnregister(own));
        SAY(cuMemHostUnregister(own));
        SAY(cuMemHostUnregister(host));
        SAY(cuMemFreeHost(host + 8));
        SAY(cuMemFreeHost(host));
        SAY(cuMemFreeHost(NULL));
        SAY(cuMemFree_v2(p + 10));
        SAY(cuMemFree_v2(0));
        SAY(cuMemFree_v2(va));
        SAY(cuMemFree_v2(p));
        SAY(cuMemFree_v2(p));
        SAY(cuMemAlloc_v2(&p, 0));
        NEED(cuMemAlloc_v2(&p, 100));
        NEED(cuMemGetInfo_v2(&a, &total));
        NEED(cuMemAlloc_v2(&d, 100));
        NEED(cuMemGetInfo_v2(&b, &total));
        NUMBER(a - b);
        NUMBER(p % 256);
        NUMBER(d % 256);
        NEED(cuMemAlloc_v2(&d, 5 * MIB));
        NEED(cuMemGetInfo_v2(&a, &total));
        NUMBER(b - a);
        SAY(cuMemAllocPitch_v2(&d, &pitch, 1000, 10, 4));
        NUMBER(pitch);
        SAY(cuMemcpyHtoD_v2(p, plain, 100));
        SAY(cuMemcpyHtoD_v2(p, plain, 4096));
        SAY(cuMemAlloc_v2(&d, (size_t)1 << 50));
}

/* Copies and fills that begin in an allocation and pass its end. */
static void past_the_end(void)
{
        static unsigned char host[4 * MIB];
        CUdeviceptr p, q, low, large;
        CUstream s;

        begin();
        NEED(cuMemAlloc_v2(&p, 1000));
        NEED(cuMemAlloc_v2(&q, 1000));
        NEED(cuMemAlloc_v2(&large, 3 * MIB));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuMemsetD8_v2(p, 7, 1000));
        NEED(cuMemsetD8_v2(q, 7, 1000));
        SAY(cuMemcpyHtoD_v2(p, host, 4096));
        SAY(cuMemcpyDtoH_v2(host, p, 4096));
        SAY(cuMemcpyDtoD_v2(p, large, 4096));
        SAY(cuMemcpyDtoD_v2(large, p, 4096));
        SAY(cuMemcpyHtoDAsync_v2(p, host, 4096, s));
        SAY(cuMemcpyDtoHAsync_v2(host, p, 4096, s));
        SAY(cuMemsetD8_v2(p, 1, 4096));
        SAY(cuMemsetD8Async(p, 1, 4096, s));
        low = p < q ? p : q;
        SAY(cuMemsetD8_v2(low, 1, p + q + 1000 - 2 * low));
        SAY(cuMemcpyHtoD_v2(large, host, 4 * MIB));
        SAY(cuMemcpyHtoD_v2(large + 2 * MIB, host, 2 * MIB));
        SAY(cuMemsetD8_v2(large, 1, 4 * MIB));
        SAY(cuCtxSynchronize());
        NUMBER(host[0]);
        NEED(cuMemcpyDtoH_v2(host, p, 1000));
        NUMBER(host[0]);
        NUMBER(host[999]);
        NEED(cuMemcpyDtoH_v2(host, q, 1000));
        NUMBER(host[0]);
        NUMBER(host[999]);
}

/* ---- capture ---- */

static CUstream capturing, other;

static CUstreamCaptureStatus status_of(CUstream s)
{
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

        (void)cuStreamIsCapturing(s, &status);
        return status;
}

static CUevent captured_event, plain_event;
static CUdeviceptr memory;
static void *host_memory;

/* Prints the result of a call during a capture, and whether the capture survives it. */
#define DURING(call)                                                                         \
        do {                                                                                 \
                CUgraph graph_ = NULL;                                                       \
                CUresult during_, end_;                                                      \
                CUstreamCaptureStatus status_;                                               \
                NEED(cuStreamSynchronize(other));                                            \
                NEED(cuStreamBeginCapture_v2(capturing, capture_mode));                      \
                NEED(run(store, memory, capturing));                                         \
                during_ = elsewhere(call_##call);                                            \
                status_ = status_of(capturing);                                              \
                end_ = cuStreamEndCapture(capturing, &graph_);                               \
                (void)printf("%s: %s = %d, then status %d, end %d\n", group, #call, during_, \
                             status_, end_);                                                 \
                if (graph_)                                                                  \
                        (void)cuGraphDestroy(graph_);                                        \
        } while (0)

static CUstreamCaptureMode capture_mode;
static bool in_other_thread;

struct elsewhere {
        CUresult (*call)(void);
        CUresult result;
};

static void *elsewhere_thread(void *argument)
{
        struct elsewhere *e = argument;

        (void)cuCtxSetCurrent(context);
        e->result = e->call();
        return NULL;
}

static CUresult elsewhere(CUresult (*call)(void))
{
        struct elsewhere e = {call, CUDA_SUCCESS};
        pthread_t t;

        if (!in_other_thread)
                return call();
        (void)pthread_create(&t, NULL, elsewhere_thread, &e);
        (void)pthread_join(t, NULL);
        return e.result;
}

#define CALL(name, ...)                   \
        static CUresult call_##name(void) \
        {                                 \
                __VA_ARGS__               \
        }

CALL(mem_alloc, CUdeviceptr p; CUresult r = cuMemAlloc_v2(&p, 64); if (!r)(void) cuMemFree_v2(p);
     return r;)
static CUdeviceptr spare;
CALL(mem_free, return cuMemFree_v2(spare);)
CALL(mem_host_alloc, void *p; CUresult r = cuMemHostAlloc(&p, 64, 0);
     if (!r)(void) cuMemFreeHost(p); return r;)
static void *spare_host;
CALL(mem_free_host, return cuMemFreeHost(spare_host);)
CALL(mem_get_info, size_t a, b; return cuMemGetInfo_v2(&a, &b);)
CALL(address_reserve, CUdeviceptr p; return cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0);)
static CUmemGenericAllocationHandle spare_handle;
static CUdeviceptr spare_address;
CALL(mem_create, return cuMemCreate(&spare_handle, 2 * MIB, &prop, 0);)
CALL(mem_map, return cuMemMap(spare_address, 2 * MIB, 0, spare_handle, 0);)
CALL(set_access, return cuMemSetAccess(spare_address, 2 * MIB, &both, 1);)
CALL(mem_unmap, return cuMemUnmap(spare_address, 2 * MIB);)
CALL(mem_release, return cuMemRelease(spare_handle);)
CALL(event_query, return cuEventQuery(plain_event);)
CALL(event_synchronize, return cuEventSynchronize(plain_event);)
CALL(event_create, CUevent e; return cuEventCreate(&e, 0);)
CALL(event_record_other, return cuEventRecord(plain_event, other);)
CALL(event_query_captured, (void)cuEventRecord(captured_event, capturing);
     return cuEventQuery(captured_event);)
CALL(event_sync_captured, (void)cuEventRecord(captured_event, capturing);
     return cuEventSynchronize(captured_event);)
CALL(stream_create, CUstream s; return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);)
CALL(stream_query_other, return cuStreamQuery(other);)
CALL(stream_sync_other, return cuStreamSynchronize(other);)
CALL(stream_query_capturing, return cuStreamQuery(capturing);)
CALL(stream_sync_capturing, return cuStreamSynchronize(capturing);)
CALL(stream_query_legacy, return cuStreamQuery(NULL);)
CALL(stream_sync_legacy, return cuStreamSynchronize(NULL);)
CALL(launch_other, return run(store, memory, other);)
CALL(launch_legacy, return run(store, memory, NULL);)
CALL(ctx_synchronize, return cuCtxSynchronize();)
CALL(copy_sync, return cuMemcpyHtoD_v2(memory, host_memory, 64);)
CALL(copy_async_other, return cuMemcpyHtoDAsync_v2(memory, host_memory, 64, other);)
CALL(copy_async_capturing, return cuMemcpyHtoDAsync_v2(memory, host_memory, 64, capturing);)
static char pageable[64];
CALL(copy_pageable_capturing, return cuMemcpyHtoDAsync_v2(memory, pageable, 64, capturing);)
CALL(set_sync, return cuMemsetD8_v2(memory, 0, 64);)
CALL(is_capturing_legacy, CUstreamCaptureStatus s; return cuStreamIsCapturing(NULL, &s);)
CALL(add_callback,
     return cuStreamAddCallback(capturing, (CUstreamCallback)(void *)call_mem_free, NULL, 0);)
CALL(wait_plain_event, return cuStreamWaitEvent(capturing, plain_event, 0);)
CALL(module_load, CUmodule m; return cuModuleLoadData(&m, facts_ptx);)
CALL(func_get_attribute, int v; return cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, store);)
CALL(pointer_attribute, unsigned v;
     return cuPointerGetAttribute(&v, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory);)
CALL(begin_again, return cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_RELAXED);)
CALL(end_other, CUgraph g; return cuStreamEndCapture(other, &g);)
CALL(host_register, void *p = mmap(NULL, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
     return cuMemHostRegister_v2(p, 4096, 0);)

static void capture_calls(CUstreamCaptureMode mode, bool thread, unsigned stream_flags)
{
        char *h;

        begin();
        capture_mode = mode;
        in_other_thread = thread;
        NEED(cuStreamCreate(&capturing, stream_flags));
        NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&captured_event, 0));
        NEED(cuEventCreate(&plain_event, 0));
        NEED(cuMemAlloc_v2(&memory, 4096));
        NEED(cuMemAlloc_v2(&spare, 4096));
        NEED(cuMemHostAlloc((void **)&h, 4096, 0));
        host_memory = h;
        NEED(cuMemHostAlloc(&spare_host, 4096, 0));
        NEED(cuMemAddressReserve(&spare_address, 2 * MIB, 0, 0, 0));
        NEED(cuEventRecord(plain_event, other));
        NEED(cuCtxSynchronize());
        DURING(mem_alloc);
        DURING(mem_free);
        DURING(mem_host_alloc);
        DURING(mem_free_host);
        DURING(mem_get_info);
        DURING(address_reserve);
        DURING(mem_create);
        DURING(mem_map);
        DURING(set_access);
        DURING(mem_unmap);
        DURING(mem_release);
        DURING(event_query);
        DURING(event_synchronize);
        DURING(event_create);
        DURING(event_record_other);
        DURING(event_query_captured);
        DURING(event_sync_captured);
        DURING(stream_create);
        DURING(stream_query_other);
        DURING(stream_sync_other);
        DURING(stream_query_capturing);
        DURING(stream_sync_capturing);
        DURING(stream_query_legacy);
        DURING(stream_sync_legacy);
        DURING(launch_other);
        DURING(launch_legacy);
        DURING(ctx_synchronize);
        DURING(copy_sync);
        DURING(copy_async_other);
        DURING(copy_async_capturing);
        DURING(copy_pageable_capturing);
        DURING(set_sync);
        DURING(is_capturing_legacy);
        DURING(add_callback);
        DURING(wait_plain_event);
        DURING(module_load);
        DURING(func_get_attribute);
        DURING(pointer_attribute);
        DURING(begin_again);
        DURING(end_other);
        DURING(host_register);
}

static void capture_global(void)
{
        capture_calls(CU_STREAM_CAPTURE_MODE_GLOBAL, false, CU_STREAM_NON_BLOCKING);
}

static void capture_global_blocking(void)
{
        capture_calls(CU_STREAM_CAPTURE_MODE_GLOBAL, false, 0);
}

static void capture_global_other_thread(void)
{
        capture_calls(CU_STREAM_CAPTURE_MODE_GLOBAL, true, CU_STREAM_NON_BLOCKING);
}

static void capture_thread_local(void)
{
        capture_calls(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false, CU_STREAM_NON_BLOCKING);
}

static void capture_thread_local_other_thread(void)
{
        capture_calls(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, true, CU_STREAM_NON_BLOCKING);
}

static void capture_relaxed_blocking(void)
{
        capture_calls(CU_STREAM_CAPTURE_MODE_RELAXED, false, 0);
}

static void capture_shapes(void)
{
        CUgraph g = NULL;
        CUgraphExec x;
        CUevent e, join;
        CUstream a, b;
        size_t nodes = 0;
        float ms;

        begin();
        NEED(cuMemAlloc_v2(&memory, 4096));
        NEED(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
        NEED(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&e, 0));
        NEED(cuEventCreate(&join, 0));
        SAY(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
        SAY(cuStreamEndCapture(a, &g));
        NEED(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
        SAY(run(store, memory, a));
        SAY(cuEventRecord(e, a));
        SAY(cuStreamWaitEvent(b, e, 0));
        NUMBER(status_of(b));
        SAY(run(store, memory, b));
        SAY(cuStreamEndCapture(b, &g));
        NUMBER(status_of(a));
        SAY(cuStreamEndCapture(a, &g));
        NUMBER(g == NULL);
        NUMBER(status_of(b));

        NEED(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
        NEED(run(store, memory, a));
        NEED(cuEventRecord(e, a));
        NEED(cuStreamWaitEvent(b, e, 0));
        NEED(run(store, memory, b));
        SAY(cuStreamEndCapture(a, &g));
        NUMBER(g == NULL);

        NEED(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
        NEED(run(store, memory, a));
        NEED(cuEventRecord(e, a));
        NEED(cuStreamWaitEvent(b, e, 0));
        NEED(run(store, memory, b));
        NEED(cuEventRecord(join, b));
        NEED(cuStreamWaitEvent(a, join, 0));
        NEED(run(store, memory, a));
        SAY(cuStreamEndCapture(a, &g));
        SAY(cuGraphGetNodes(g, NULL, &nodes));
        NUMBER(nodes);
        SAY(cuEventQuery(e));
        SAY(cuEventSynchronize(e));
        SAY(cuStreamWaitEvent(a, e, 0));
        SAY(cuEventElapsedTime(&ms, e, join));
        SAY(cuGraphInstantiateWithFlags(&x, g, 0));
        SAY(cuGraphDestroy(g));
        SAY(cuGraphLaunch(x, a));
        SAY(cuGraphLaunch(x, NULL));
        SAY(cuCtxSynchronize());
        SAY(cuGraphExecDestroy(x));
}

/* ---- arrays, resets, attributes ---- */

static void arrays(void)
{
        const CUDA_ARRAY_DESCRIPTOR flat = {64, 64, CU_AD_FORMAT_FLOAT, 1};
        CUDA_ARRAY3D_DESCRIPTOR shape = {512, 512, 0, CU_AD_FORMAT_FLOAT, 1, 0};
        CUDA_RESOURCE_DESC in_array = {.resType = CU_RESOURCE_TYPE_ARRAY};
        CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR};
        const CUDA_TEXTURE_DESC how = {.addressMode = {1, 1, 1}};
        CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcPitch = 256,
                              .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                              .WidthInBytes = 256,
                              .Height = 64};
        static char host[65536];
        CUmipmappedArray m;
        CUdeviceptr p, va;
        CUtexObject tex;
        CUsurfObject surf;
        CUarray a, b, level;

        begin();
        NEED(cuMemAlloc_v2(&p, MIB));
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        SAY(cuArrayCreate_v2(&a, &flat));
        NEED(cuArrayCreate_v2(&b, &flat));
        SAY(cuMemcpyHtoA_v2(a, 0, host, 256));
        SAY(cuMemcpyHtoA_v2(a, 256, host, 256));
        SAY(cuMemcpyHtoA_v2(a, 4, host, 8));
        SAY(cuMemcpyAtoH_v2(host, a, 0, 256));
        SAY(cuMemcpyDtoA_v2(a, 0, p, 256));
        SAY(cuMemcpyAtoD_v2(p, a, 0, 256));
        SAY(cuMemcpyAtoA_v2(b, 0, a, 0, 256));
        SAY(cuMemcpyHtoA_v2(a, 0, host, 64 * 64 * 4));
        SAY(cuMemcpyDtoA_v2(a, 0, va, 256));
        copy.srcDevice = p;
        copy.dstArray = a;
        SAY(cuMemcpy2D_v2(&copy));
        copy.Height = 65;
        SAY(cuMemcpy2D_v2(&copy));
        copy.Height = 64;
        copy.srcDevice = va;
        SAY(cuMemcpy2D_v2(&copy));
        in_array.res.array.hArray = a;
        SAY(cuTexObjectCreate(&tex, &in_array, &how, NULL));
        SAY(cuSurfObjectCreate(&surf, &in_array));
        SAY(cuArrayDestroy(a));
        SAY(cuTexObjectDestroy(tex));
        SAY(cuSurfObjectDestroy(surf));
        SAY(cuSurfObjectDestroy(surf));
        SAY(cuArrayDestroy(NULL));
        linear.res.linear.format = CU_AD_FORMAT_FLOAT;
        linear.res.linear.numChannels = 1;
        linear.res.linear.sizeInBytes = 4096;
        linear.res.linear.devPtr = va;
        SAY(cuTexObjectCreate(&tex, &linear, &how, NULL));
        linear.res.linear.devPtr = p + 4;
        SAY(cuTexObjectCreate(&tex, &linear, &how, NULL));
        SAY(cuMipmappedArrayCreate(&m, &shape, 4));
        SAY(cuMipmappedArrayGetLevel(&level, m, 3));
        SAY(cuArray3DGetDescriptor_v2(&shape, level));
        NUMBER(shape.Width);
        SAY(cuArrayDestroy(level));
        SAY(cuMipmappedArrayGetLevel(&level, m, 4));
        SAY(cuMipmappedArrayDestroy(m));
        shape = (CUDA_ARRAY3D_DESCRIPTOR){64, 64, 0, CU_AD_FORMAT_FLOAT, 3, 0};
        SAY(cuArray3DCreate_v2(&a, &shape));
        shape = (CUDA_ARRAY3D_DESCRIPTOR){0, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0};
        SAY(cuArray3DCreate_v2(&a, &shape));
        shape = (CUDA_ARRAY3D_DESCRIPTOR){200000, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0};
        SAY(cuArray3DCreate_v2(&a, &shape));
        shape = (CUDA_ARRAY3D_DESCRIPTOR){10, 0, 10, CU_AD_FORMAT_FLOAT, 1, 0};
        SAY(cuArray3DCreate_v2(&a, &shape));
        shape = (CUDA_ARRAY3D_DESCRIPTOR){256, 256, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP};
        SAY(cuArray3DCreate_v2(&a, &shape));
}

static void resets(void)
{
        CUdeviceptr p, q;
        unsigned flags;
        int active = 99;
        CUcontext c;
        CUstream s;
        CUevent e;
        char host[64];

        begin();
        NEED(cuDevicePrimaryCtxRetain(&c, 0));
        NEED(cuMemAlloc_v2(&p, 4096));
        NEED(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        NEED(cuEventCreate(&e, 0));
        SAY(cuDevicePrimaryCtxReset_v2(0));
        SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
        NUMBER(active);
        SAY(cuCtxGetCurrent(&c));
        NUMBER(c == context);
        SAY(cuCtxSynchronize());
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuMemFree_v2(p));
        SAY(cuMemcpyDtoH_v2(host, p, 8));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        SAY(cuDevicePrimaryCtxRetain(&c, 0));
        NUMBER(c == context);
        SAY(cuCtxSynchronize());
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        SAY(cuMemAlloc_v2(&q, 64));
        SAY(cuCtxCreate_v2(&c, 0, 0));
        SAY(cuCtxDestroy_v2(c));
        SAY(cuCtxDestroy_v2(c));
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        SAY(cuCtxDestroy_v2(context));
        NEED(cuCtxSetCurrent(context));
        NEED(cuCtxCreate_v2(&c, 0, 0));
        SAY(cuCtxAttach(&c, 0));
        SAY(cuCtxDetach(c));
        SAY(cuMemAlloc_v2(&p, 64));
        SAY(cuCtxDetach(c));
        SAY(cuCtxSynchronize());
}

static void attributes(void)
{
        CUpointer_attribute which[2] = {99, CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
        CUmemGenericAllocationHandle h;
        unsigned long long v;
        void *out[2] = {&v, &v};
        static char plain[64];
        CUdeviceptr p, va;
        unsigned yes = 1;
        void *host;

        begin();
        NEED(cuMemAlloc_v2(&p, 1000));
        NEED(cuMemAddressReserve(&va, 4 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        NEED(cuMemSetAccess(va, 2 * MIB, &both, 1));
        NEED(cuMemHostAlloc(&host, 4096, 0));
        SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va));
        SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va + 3 * MIB));
        SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)host));
        SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)plain));
        SAY(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_MAPPED, p));
        SAY(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        SAY(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
        SAY(cuPointerGetAttribute(&v, 0, p));
        SAY(cuPointerGetAttribute(&v, 99, p));
        SAY(cuPointerGetAttributes(2, which, out, p));
        SAY(cuPointerGetAttributes(0, which, out, p));
        which[0] = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        SAY(cuPointerGetAttributes(2, which, NULL, p));
        SAY(cuPointerGetAttributes(2, NULL, out, p));
        out[0] = NULL;
        SAY(cuPointerGetAttributes(2, which, out, p));
        SAY(cuMemGetAddressRange_v2(NULL, NULL, p));
        SAY(cuMemGetAddressRange_v2(&p, NULL, p + 1000));
}

/* ---- streams, events and exit ---- */

static void streams_and_events(void)
{
        CUevent a, b, untimed;
        CUstream s;
        float ms;

        begin();
        NEED(cuStreamCreate(&s, 0));
        NEED(cuEventCreate(&a, 0));
        NEED(cuEventCreate(&b, 0));
        NEED(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
        SAY(cuEventQuery(a));
        SAY(cuEventSynchronize(a));
        SAY(cuStreamWaitEvent(s, a, 0));
        SAY(cuEventElapsedTime(&ms, a, b));
        NEED(cuEventRecord(a, s));
        NEED(cuEventRecord(untimed, s));
        SAY(cuEventElapsedTime(&ms, a, untimed));
        SAY(cuStreamCreate(&s, 4));
        SAY(cuEventCreate(&a, 64));
        SAY(cuStreamDestroy_v2(NULL));
        SAY(cuEventDestroy_v2(NULL));
        SAY(cuEventQuery(NULL));
        SAY(run(NULL, 0, NULL));
        SAY(cuLaunchKernel(store, 0, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&memory}, NULL));
        SAY(cuLaunchKernel(store, 1, 1, 1, 2048, 1, 1, 0, NULL, (void *[]){&memory}, NULL));
        SAY(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 100000, NULL, (void *[]){&memory}, NULL));
        SAY(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

static CUresult inside;

static void host_function(void *data)
{
        size_t a, b;

        inside = cuMemGetInfo_v2(&a, &b);
}

static void in_host_functions(void)
{
        begin();
        NEED(cuLaunchHostFunc(NULL, host_function, NULL));
        NEED(cuCtxSynchronize());
        NUMBER(inside);
}

static void contexts(void)
{
        CUcontext c, mine;
        unsigned flags, version = 0;
        int active = 99;
        CUdevice d;
        size_t n;

        SAY(cuCtxGetCurrent(&c));
        SAY(cuDeviceGetCount(&active));
        SAY(cuMemGetInfo_v2(&n, &n));
        SAY(cuInit(1));
        NEED(cuInit(0));
        SAY(cuMemGetInfo_v2(&n, &n));
        SAY(cuCtxGetDevice(&d));
        SAY(cuCtxGetCurrent(&c));
        NUMBER(c == NULL);
        SAY(cuCtxPopCurrent_v2(&c));
        SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
        NUMBER(active);
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        SAY(cuDevicePrimaryCtxRetain(&c, 99));
        NEED(cuDevicePrimaryCtxRetain(&c, 0));
        SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
        NUMBER(active);
        SAY(cuCtxCreate_v2(&mine, 0, 0));
        SAY(cuCtxGetCurrent(&c));
        NUMBER(c == mine);
        SAY(cuCtxGetApiVersion(mine, &version));
        SAY(cuCtxDestroy_v2(mine));
        SAY(cuCtxGetCurrent(&c));
        NUMBER(c == NULL);
        SAY(cuDevicePrimaryCtxReset_v2(0));
        SAY(cuDevicePrimaryCtxGetState(0, &flags, &active));
        NUMBER(active);
}

static void after_fork(void)
{
        pid_t child;

        begin();
        (void)fflush(stdout);
        child = fork();
        if (child == 0) {
                CUdeviceptr p;
                CUcontext c;
                int n;

                SAY(cuInit(0));
                SAY(cuMemAlloc_v2(&p, 64));
                SAY(cuDeviceGetCount(&n));
                SAY(cuCtxGetCurrent(&c));
                SAY(cuCtxSynchronize());
                (void)fflush(stdout);
                _exit(0);
        }
        (void)waitpid(child, NULL, 0);
        SAY(cuCtxSynchronize());
}

static void lookups(void)
{
        CUdriverProcAddressQueryResult status;
        void *p, *q;
        int version = 0;

        NEED(cuInit(0));
        SAY(cuGetProcAddress_v2("cuMemAlloc", &p, 13000, 0, &status));
        NUMBER(status);
        NUMBER(p == (void *)cuMemAlloc_v2);
        SAY(cuGetProcAddress_v2("cuMemAlloc_v2", &p, 13000, 0, &status));
        NUMBER(status);
        SAY(cuGetProcAddress_v2("cuNoSuchThing", &p, 13000, 0, &status));
        NUMBER(status);
        NUMBER(p == NULL);
        SAY(cuGetProcAddress_v2("cuNoSuchThing", &p, 13000, 0, NULL));
        SAY(cuGetProcAddress("cuNoSuchThing", &p, 13000, 0));
        SAY(cuGetProcAddress_v2("cuLaunchKernelEx", &p, 11000, 0, &status));
        NUMBER(status);
        SAY(cuGetProcAddress_v2("cuLaunchKernelEx", &p, 11000, 0, NULL));
        SAY(cuGetProcAddress_v2("cuLaunchKernel", &p, 13000, 2, &status));
        SAY(cuGetProcAddress_v2("cuLaunchKernel", &q, 13000, 0, &status));
        NUMBER(p == q);
        SAY(cuGetProcAddress_v2("cuMemAlloc", &q, 13000, 2, &status));
        NUMBER(q == (void *)cuMemAlloc_v2);
        SAY(cuGetProcAddress_v2("cuLaunchKernel", &q, 4000, 2, &status));
        NUMBER(status);
        NUMBER(q == NULL);
        q = &version;
        SAY(cuGetProcAddress("cuLaunchKernel", &q, 4000, 2));
        NUMBER(q == &version);
        SAY(cuGetProcAddress_v2("cuStreamBeginCapture", &q, 10000, 0, &status));
        NUMBER(q == (void *)cuStreamBeginCapture);
        SAY(cuGetProcAddress_v2("cuStreamBeginCapture", &q, 13000, 0, &status));
        NUMBER(q == (void *)cuStreamBeginCapture_v2);
        SAY(cuGetProcAddress_v2("cuGetProcAddress", &q, 11030, 0, &status));
        NUMBER(q == (void *)cuGetProcAddress);
        SAY(cuGetProcAddress_v2("cuCtxGetDevice", &q, 12090, 0, &status));
        NUMBER(q == (void *)cuCtxGetDevice);
        SAY(cuGetProcAddress_v2("cuCtxGetDevice", &q, 13000, 0, &status));
        NUMBER(q == (void *)cuCtxGetDevice_v2);
        SAY(cuGetProcAddress_v2("cuMemAlloc", &q, 13000, 99, &status));
        SAY(cuGetProcAddress_v2("", &q, 13000, 0, &status));
        SAY(cuDriverGetVersion(&version));
}

static void before_it_shuts_down(void)
{
        int count;

        SAY(cuDeviceGetCount(&count));
        SAY(cuMemGetInfo_v2(&(size_t){0}, &(size_t){0}));
        SAY(cuStreamQuery(NULL));
}

static void after_it_has_shut_down(void)
{
        int n;

        SAY(cuDeviceGetCount(&n));
        SAY(cuMemGetInfo_v2(&(size_t){1}, &(size_t){1}));
        SAY(cuStreamQuery(CU_STREAM_LEGACY));
}

/* The driver shuts down in an exit handler that cuInit registers, between these two handlers. */
static void exits(void)
{
        (void)atexit(after_it_has_shut_down);
        NEED(cuInit(0));
        (void)atexit(before_it_shuts_down);
        NEED(cuDevicePrimaryCtxRetain(&context, 0));
        NEED(cuCtxSetCurrent(context));
        exit(0);
}

static const struct facts groups[] = {
        {"unmapped_sync_copies", unmapped_sync_copies},
        {"unmapped_async_copy_in", unmapped_async_copy_in},
        {"no_access_sync_copies", no_access_sync_copies},
        {"no_access_async_copy", no_access_async_copy},
        {"unmapped_before_it_runs", unmapped_before_it_runs},
        {"read_only_store", read_only_store},
        {"unmapped_while_it_runs", unmapped_while_it_runs},
        {"unmapped_in_graphs", unmapped_in_graphs},
        {"after_illegal_address", after_illegal_address},
        {"beside_illegal_address", beside_illegal_address},
        {"vmm_shapes", vmm_shapes},
        {"vmm_handles", vmm_handles},
        {"vmm_access", vmm_access},
        {"vmm_pointers", vmm_pointers},
        {"vmm_contexts", vmm_contexts},
        {"vmm_exports", vmm_exports},
        {"pointers", pointers},
        {"past_the_end", past_the_end},
        {"capture_global", capture_global},
        {"capture_global_blocking", capture_global_blocking},
        {"capture_global_other_thread", capture_global_other_thread},
        {"capture_thread_local", capture_thread_local},
        {"capture_thread_local_other_thread", capture_thread_local_other_thread},
        {"capture_relaxed_blocking", capture_relaxed_blocking},
        {"capture_shapes", capture_shapes},
        {"arrays", arrays},
        {"resets", resets},
        {"attributes", attributes},
        {"streams_and_events", streams_and_events},
        {"in_host_functions", in_host_functions},
        {"contexts", contexts},
        {"after_fork", after_fork},
        {"lookups", lookups},
        {"exits", exits},
        {NULL, NULL},
};

int main(int argc, char *argv[])
{
        static const struct facts *const lists[] = {corner_groups, groups, NULL};

        return facts_main(argc, argv, lists);
}
