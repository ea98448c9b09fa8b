/* pool_facts.c: asks a driver about memory pools and stream-ordered allocations. */
#include <string.h>

#include "pool_facts.h"

static CUstream stream, second;
static CUmemoryPool usual; /* the device's default pool */

static unsigned long long value_of(CUmemoryPool pool, int which)
{
        unsigned long long v = 0;
        CUresult r = cuMemPoolGetAttribute(pool, (CUmemPool_attribute)which, &v);

        return r == CUDA_SUCCESS ? v : 1000000000ull + r;
}

/* Prints how many bytes a pool holds. */
static void holds(const char *when, CUmemoryPool pool)
{
        (void)printf("%s: %s: reserved %llu, high %llu; used %llu, high %llu\n", group, when,
                     value_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT),
                     value_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH),
                     value_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                     value_of(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

static const CUmemPoolProps plain = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static CUmemoryPool pool_new(size_t most)
{
        CUmemPoolProps props = plain;
        CUmemoryPool pool;

        props.maxSize = most;
        NEED(cuMemPoolCreate(&pool, &props));
        return pool;
}

static void begin_with_streams(void)
{
        begin();
        NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        NEED(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
        NEED(cuDeviceGetDefaultMemPool(&usual, 0));
}

/* Makes a flag that a kernel can wait for. Returns its address for the kernel. */
static CUdeviceptr flag_new(volatile unsigned **ret_flag)
{
        CUdeviceptr p;

        NEED(cuMemHostAlloc((void **)ret_flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
        NEED(cuMemHostGetDevicePointer_v2(&p, (void *)*ret_flag, 0));
        **ret_flag = 0;
        return p;
}

static void range_of(const char *what, CUdeviceptr p)
{
        CUdeviceptr base = 0;
        size_t bytes = 0;
        CUresult r = cuMemGetAddressRange_v2(&base, &bytes, p);

        if (r == CUDA_SUCCESS)
                (void)printf("%s: %s: range: base + %lld, %zu bytes\n", group, what,
                             (long long)(p - base), bytes);
        else
                (void)printf("%s: %s: range = %d\n", group, what, r);
}

/* ---- pools ---- */

static void all_attributes(const char *what, CUmemoryPool pool)
{
        for (int i = 0; i <= 12; i++) {
                unsigned long long v = 0x1111111122222222ull;
                CUresult r = cuMemPoolGetAttribute(pool, (CUmemPool_attribute)i, &v);

                (void)printf("%s: %s: attribute %d = %d, %llx\n", group, what, i, r, v);
        }
}

static void pools_of_a_device(void)
{
        CUmemoryPool own, is;
        CUdeviceptr p;

        begin_with_streams();
        SAY(cuDeviceGetMemPool(&is, 0));
        NUMBER(is == usual);
        all_attributes("the device's", usual);
        own = pool_new(0);
        all_attributes("a new one", own);
        SAY(cuDeviceSetMemPool(0, own));
        SAY(cuDeviceGetMemPool(&is, 0));
        NUMBER(is == own);
        SAY(cuDeviceGetDefaultMemPool(&is, 0));
        NUMBER(is == usual);
        SAY(cuMemAllocAsync(&p, 1000, stream));
        holds("the device's", usual);
        holds("its current", own);
        SAY(cuMemPoolDestroy(own));
        SAY(cuDeviceGetMemPool(&is, 0));
        NUMBER(is == usual);
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemPoolDestroy(usual));
        SAY(cuDeviceSetMemPool(0, NULL));
        SAY(cuDeviceSetMemPool(0, usual));
        SAY(cuDeviceSetMemPool(99, usual));
        SAY(cuDeviceSetMemPool(-1, usual));
        SAY(cuDeviceGetMemPool(NULL, 0));
        SAY(cuDeviceGetMemPool(&is, 99));
        SAY(cuDeviceGetMemPool(&is, -1));
        SAY(cuDeviceGetDefaultMemPool(NULL, 0));
        SAY(cuDeviceGetDefaultMemPool(&is, 99));
        SAY(cuDeviceGetDefaultMemPool(&is, -1));
}

static void pools_at_places(void)
{
        CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
        CUmemLocation far = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
        CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_INVALID, 0};
        CUmemoryPool is = NULL, own;

        begin_with_streams();
        SAY(cuMemGetDefaultMemPool(&is, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
        NUMBER(is == usual);
        SAY(cuMemGetMemPool(&is, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
        NUMBER(is == usual);
        own = pool_new(0);
        SAY(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own));
        SAY(cuMemGetMemPool(&is, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
        NUMBER(is == own);
        SAY(cuDeviceGetMemPool(&is, 0));
        NUMBER(is == own);
        SAY(cuMemGetDefaultMemPool(&is, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
        NUMBER(is == usual);
        SAY(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, NULL));
        SAY(cuMemGetDefaultMemPool(&is, &here, CU_MEM_ALLOCATION_TYPE_INVALID));
        SAY(cuMemGetDefaultMemPool(&is, &far, CU_MEM_ALLOCATION_TYPE_PINNED));
        SAY(cuMemGetMemPool(&is, &far, CU_MEM_ALLOCATION_TYPE_PINNED));
        SAY(cuMemSetMemPool(&far, CU_MEM_ALLOCATION_TYPE_PINNED, own));
        SAY(cuMemGetDefaultMemPool(&is, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
        SAY(cuMemGetDefaultMemPool(&is, NULL, CU_MEM_ALLOCATION_TYPE_PINNED));
        SAY(cuMemGetDefaultMemPool(NULL, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
        SAY(cuMemGetMemPool(NULL, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
        SAY(cuMemGetMemPool(&is, NULL, CU_MEM_ALLOCATION_TYPE_PINNED));
        SAY(cuMemSetMemPool(NULL, CU_MEM_ALLOCATION_TYPE_PINNED, own));
}

static void pools_made(void)
{
        CUmemPoolProps props = {0};
        CUmemoryPool pool;

        begin_with_streams();
        SAY(cuMemPoolCreate(&pool, NULL));
        SAY(cuMemPoolCreate(NULL, &plain));
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.allocType = (CUmemAllocationType)7;
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.location.id = 99;
        SAY(cuMemPoolCreate(&pool, &props));
        props.location.id = -1;
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.location.type = CU_MEM_LOCATION_TYPE_INVALID;
        SAY(cuMemPoolCreate(&pool, &props));
        props.location.type = (CUmemLocationType)9;
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
        SAY(cuMemPoolCreate(&pool, &props));
        props.handleTypes = (CUmemAllocationHandleType)64;
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.reserved[0] = 1;
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.reserved[53] = 1;
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.usage = 1;
        SAY(cuMemPoolCreate(&pool, &props));
        props.usage = 2;
        SAY(cuMemPoolCreate(&pool, &props));
        props = plain;
        props.win32SecurityAttributes = &props;
        SAY(cuMemPoolCreate(&pool, &props));
        SAY(cuMemPoolDestroy(NULL));
}

static void pools_set(void)
{
        unsigned long long big = 0;
        CUmemoryPool pool;
        int small = 2;

        begin_with_streams();
        pool = pool_new(0);
        for (int i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
             i <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++) {
                const CUmemPool_attribute reuse = (CUmemPool_attribute)i;

                for (int j = 2; j >= -1; j--) {
                        small = j;
                        SAY(cuMemPoolSetAttribute(pool, reuse, &small));
                        SAY(cuMemPoolGetAttribute(pool, reuse, &small));
                        NUMBER(small);
                }
        }
        big = 123456789;
        SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &big));
        NUMBER(value_of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
        big = ~0ull;
        SAY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &big));
        NUMBER(value_of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
        for (int i = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT; i <= 12; i++) {
                const CUmemPool_attribute count = (CUmemPool_attribute)i;

                big = 0;
                SAY(cuMemPoolSetAttribute(pool, count, &big));
                big = 1;
                SAY(cuMemPoolSetAttribute(pool, count, &big));
        }
        SAY(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)0, &big));
        SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, NULL));
        SAY(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &big));
}

static void pool_null_set(void)
{
        unsigned long long big = 0;

        begin_with_streams();
        SAY(cuMemPoolSetAttribute(NULL, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &big));
}

static void pool_null_trim(void)
{
        begin_with_streams();
        SAY(cuMemPoolTrimTo(NULL, 0));
}

static void pools_reached(void)
{
        CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                      far = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
        CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
        CUmemAccessDesc d = {here, CU_MEM_ACCESS_FLAGS_PROT_NONE};
        CUmemAccess_flags flags = (CUmemAccess_flags)9;
        CUmemoryPool pool;

        begin_with_streams();
        pool = pool_new(0);
        SAY(cuMemPoolGetAccess(&flags, pool, &here));
        NUMBER(flags);
        SAY(cuMemPoolGetAccess(&flags, usual, &here));
        NUMBER(flags);
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.flags = (CUmemAccess_flags)2;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.flags = (CUmemAccess_flags)7;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        SAY(cuMemPoolSetAccess(pool, &d, 0));
        SAY(cuMemPoolSetAccess(pool, NULL, 0));
        SAY(cuMemPoolSetAccess(pool, NULL, 1));
        d.location = far;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.location.id = -1;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.location = host;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        d.location.type = CU_MEM_LOCATION_TYPE_INVALID;
        SAY(cuMemPoolSetAccess(pool, &d, 1));
        SAY(cuMemPoolGetAccess(&flags, pool, &here));
        NUMBER(flags);
        SAY(cuMemPoolGetAccess(&flags, pool, &far));
        SAY(cuMemPoolGetAccess(&flags, pool, &host));
        NUMBER(flags);
        SAY(cuMemPoolGetAccess(&flags, pool, &d.location));
        SAY(cuMemPoolGetAccess(NULL, pool, &here));
        SAY(cuMemPoolGetAccess(&flags, pool, NULL));
        SAY(cuMemPoolGetAccess(&flags, NULL, &here));
}

static void pool_null_access(void)
{
        CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

        begin_with_streams();
        SAY(cuMemPoolSetAccess(NULL, &d, 1));
}

static void pool_without_context(void)
{
        unsigned long long v = 5;
        CUmemoryPool pool;
        CUdeviceptr p;

        SAY(cuDeviceGetDefaultMemPool(&usual, 0));
        SAY(cuMemPoolCreate(&pool, &plain));
        SAY(cuMemAllocAsync(&p, 64, NULL));
        NEED(cuInit(0));
        SAY(cuDeviceGetDefaultMemPool(&usual, 0));
        SAY(cuMemPoolGetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        NUMBER(v);
        SAY(cuMemPoolTrimTo(usual, 0));
        SAY(cuMemPoolCreate(&pool, &plain));
        SAY(cuMemAllocAsync(&p, 64, NULL));
        SAY(cuMemAllocFromPoolAsync(&p, 64, pool, NULL));
        SAY(cuMemFreeAsync(0x123400, NULL));
        SAY(cuMemFreeAsync(0, NULL));
        SAY(cuDeviceSetMemPool(0, pool));
        SAY(cuMemPoolDestroy(pool));
}

static void pools_destroyed(void)
{
        unsigned long long v;
        CUdeviceptr p, q;
        CUmemoryPool pool, of;

        begin_with_streams();
        pool = pool_new(0);
        NEED(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, stream));
        NEED(cuMemAllocFromPoolAsync(&q, 4 * MIB, pool, stream));
        NEED(cuMemFreeAsync(q, stream));
        SAY(cuMemPoolDestroy(pool));
        SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        SAY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &v));
        SAY(cuMemAllocFromPoolAsync(&q, 4 * MIB, pool, stream));
        SAY(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
        NUMBER(of == pool);
        range_of("its memory", p);
        SAY(cuMemsetD8Async(p, 1, 4 * MIB, stream));
        SAY(run(store, p, stream));
        SAY(cuStreamSynchronize(stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuStreamSynchronize(stream));
        range_of("freed", p);
}

/* ---- memory ---- */

static void pool_sizes(void)
{
        static const size_t sizes[] = {1,       512,     513,      1000,     100000,       MIB,
                                       MIB + 1, 2 * MIB, 33 * MIB, 40 * MIB, 100 * MIB + 1};
        CUdeviceptr p = 5, first = 0;
        CUmemoryPool small;

        begin_with_streams();
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                CUresult r = cuMemAllocAsync(&p, sizes[i], stream);

                if (i == 0)
                        first = p;
                (void)printf("%s: %zu bytes = %d, first + %lld\n", group, sizes[i], r,
                             i < 8 ? (long long)(p - first) : 0);
                range_of("all", p);
                range_of("its last byte", p + sizes[i] - 1);
                holds("now", usual);
        }
        p = 5;
        SAY(cuMemAllocAsync(&p, 0, stream));
        NUMBER(p);
        SAY(cuMemAllocAsync(NULL, 10, stream));
        SAY(cuMemAllocAsync(NULL, 0, stream));
        p = 5;
        SAY(cuMemAllocAsync(&p, (size_t)1 << 45, stream));
        NUMBER(p);
        SAY(cuMemAllocAsync(&p, (size_t)1 << 63, stream));
        SAY(cuMemAllocAsync(&p, ~(size_t)0, stream));
        SAY(cuMemAllocFromPoolAsync(&p, 1000, NULL, stream));
        SAY(cuMemAllocFromPoolAsync(NULL, 1000, usual, stream));
        p = 5;
        SAY(cuMemAllocFromPoolAsync(&p, 0, usual, stream));
        NUMBER(p);
        holds("after the refused", usual);
        small = pool_new(64 * MIB);
        SAY(cuMemAllocFromPoolAsync(&p, 60 * MIB, small, stream));
        holds("of 64 MiB", small);
        SAY(cuMemAllocFromPoolAsync(&p, 4 * MIB, small, stream));
        SAY(cuMemAllocFromPoolAsync(&p, 4 * MIB, small, stream));
        SAY(cuMemAllocFromPoolAsync(&p, 60 * MIB, small, stream));
        holds("of 64 MiB", small);
        small = pool_new(50 * MIB);
        SAY(cuMemAllocFromPoolAsync(&p, 20 * MIB, small, stream));
        holds("of 50 MiB", small);
        SAY(cuMemAllocFromPoolAsync(&p, 20 * MIB, small, stream));
        holds("of 50 MiB", small);
        SAY(cuMemAllocFromPoolAsync(&p, 51 * MIB, small, stream));
        small = pool_new(1);
        SAY(cuMemAllocFromPoolAsync(&p, 1, small, stream));
        holds("of a byte", small);
        SAY(cuCtxSynchronize());
}

static void pool_frees(void)
{
        CUdeviceptr p, q;

        begin_with_streams();
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        SAY(cuMemFreeAsync(p + 512, stream));
        SAY(cuMemFree_v2(p + 512));
        SAY(cuMemFreeAsync(p + 4 * MIB, stream));
        SAY(cuMemFreeAsync(0, stream));
        SAY(cuMemFreeAsync(0x123400, stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFree_v2(p));
        SAY(cuStreamSynchronize(stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFree_v2(p));
        range_of("freed", p);
        SAY(cuMemsetD8_v2(p, 1, 16));
        SAY(cuMemsetD8Async(p, 1, 16, stream));
        NEED(cuStreamSynchronize(stream)); /* a driver that accepts the fill needs the memory */
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        SAY(cuMemFree_v2(p));
        holds("after cuMemFree", usual);
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFree_v2(p));

        /* Frees an allocation in another stream than the one that made it. */
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        SAY(cuMemFreeAsync(p, second));
        holds("freed elsewhere", usual);
        NEED(cuCtxSynchronize());
        holds("waited for", usual);

        /* Copies and fills past the end of an allocation. */
        NEED(cuMemAllocAsync(&p, 1000, stream));
        NEED(cuMemAllocAsync(&q, 1000, stream));
        SAY(cuMemsetD8_v2(p, 1, 1000));
        SAY(cuMemsetD8_v2(p, 1, 1024));
        SAY(cuMemsetD8_v2(p, 1, 2000));
        SAY(cuMemsetD8Async(p, 1, 4096, stream));
        SAY(cuMemcpyDtoD_v2(p, q, 2000));
        SAY(cuMemsetD8_v2(p, 1, 64 * MIB));
        SAY(cuCtxSynchronize());
        SAY(cuMemFreeAsync(p, NULL));
        SAY(cuMemFreeAsync(q, CU_STREAM_PER_THREAD));
        SAY(cuMemAllocAsync(&p, 1000, NULL));
        SAY(cuMemAllocAsync(&q, 1000, CU_STREAM_LEGACY));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemAllocAsync(&p, 1000, CU_STREAM_PER_THREAD));
        SAY(cuCtxSynchronize());
}

static void pool_frees_in_flight(void)
{
        volatile unsigned *flag;
        CUdeviceptr p, q, at;
        int type;

        begin_with_streams();
        at = flag_new(&flag);
        NEED(cuMemAlloc_v2(&q, 4 * MIB));
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        NEED(run(wait_flag, at, stream));
        SAY(cuMemFreeAsync(p, stream));
        range_of("freed behind a kernel", p);
        SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
        holds("freed behind a kernel", usual);
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFree_v2(p));
        SAY(cuMemPoolTrimTo(usual, 0));
        holds("trimmed", usual);
        SAY(cuMemFreeAsync(q, stream));
        range_of("cuMemAlloc's", q);
        SAY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, q));
        SAY(cuStreamQuery(stream));
        *flag = 1;
        NEED(cuStreamSynchronize(stream));
}

static void pool_frees_of_others(void)
{
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
        CUmemGenericAllocationHandle h;
        CUdeviceptr p, va;
        static char own[64];
        void *host;

        begin_with_streams();
        NEED(cuMemAlloc_v2(&p, 4 * MIB));
        SAY(cuMemFreeAsync(p + 512, stream));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuStreamSynchronize(stream));
        range_of("cuMemAlloc's", p);
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFree_v2(p));
        NEED(cuMemAllocManaged(&p, 4 * MIB, 1));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuMemFree_v2(p));
        NEED(cuMemAllocHost_v2(&host, 4096));
        SAY(cuMemFreeAsync((uintptr_t)host, stream));
        SAY(cuMemFreeAsync((uintptr_t)own, stream));
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        SAY(cuMemFreeAsync(va, stream));
        NEED(cuMemCreate(&h, 2 * MIB, &prop, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        SAY(cuMemFreeAsync(va, stream));
        SAY(cuMemFree_v2(va));
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        SAY(cuMemUnmap(p, 4 * MIB));
        SAY(cuMemAddressFree(p, 4 * MIB));
        SAY(cuMemRetainAllocationHandle(&h, (void *)(uintptr_t)p));
        SAY(cuMemFreeHost((void *)(uintptr_t)p));
        SAY(cuMemHostGetFlags(&(unsigned){0}, (void *)(uintptr_t)p));
}

static void allocate_four(CUdeviceptr p[4])
{
        for (int i = 0; i < 4; i++)
                NEED(cuMemAllocAsync(&p[i], 50 * MIB, stream));
}

static void free_four(const CUdeviceptr p[4])
{
        for (int i = 0; i < 4; i++)
                NEED(cuMemFreeAsync(p[i], stream));
}

static void pool_thresholds(void)
{
        unsigned long long v;
        CUdeviceptr p[4];
        CUevent e;

        begin_with_streams();
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        allocate_four(p);
        holds("four of 50 MiB", usual);
        free_four(p);
        holds("freed", usual);
        NEED(cuEventRecord(e, stream));
        while (cuStreamQuery(stream) != CUDA_SUCCESS)
                ;
        holds("queried", usual);
        NEED(cuEventQuery(e));
        holds("the event queried", usual);
        NEED(cuEventSynchronize(e));
        holds("the event awaited", usual);
        allocate_four(p);
        holds("again", usual);
        free_four(p);
        NEED(cuStreamSynchronize(second));
        holds("another stream awaited", usual);
        NEED(cuStreamSynchronize(stream));
        holds("the stream awaited", usual);
        v = 70 * MIB;
        NEED(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        allocate_four(p);
        free_four(p);
        NEED(cuCtxSynchronize());
        holds("a threshold of 70 MiB", usual);
        v = ~0ull;
        NEED(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        allocate_four(p);
        free_four(p);
        NEED(cuCtxSynchronize());
        holds("no threshold", usual);
        SAY(cuMemPoolTrimTo(usual, ~(size_t)0));
        holds("trimmed to all", usual);
        v = 0;
        SAY(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &v));
        holds("one high set", usual);
        SAY(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v));
        holds("both highs set", usual);
        NEED(cuMemAllocAsync(&p[0], 50 * MIB, stream));
        NEED(cuMemAllocAsync(&p[1], 50 * MIB, stream));
        NEED(cuMemFreeAsync(p[0], stream));
        NEED(cuStreamSynchronize(stream));
        holds("one is left", usual);
        v = 3;
        SAY(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v));
        v = 0;
        SAY(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v));
        SAY(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &v));
        holds("highs set", usual);
        SAY(cuMemPoolTrimTo(usual, 0));
        holds("trimmed", usual);
        NEED(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        NEED(cuMemFreeAsync(p[1], stream));
        NEED(cuStreamSynchronize(stream));
        holds("all freed", usual);
}

/* Asks which stream gets memory that another stream freed. */
static void pool_reuses(void)
{
        volatile unsigned *flag;
        CUdeviceptr p, q, at;
        unsigned long long v = ~0ull;
        CUevent e;

        begin_with_streams();
        at = flag_new(&flag);
        NEED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
        NEED(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        for (int mask = 0; mask < 8; mask++) {
                for (int i = 0; i < 3; i++) {
                        int on = mask >> i & 1;

                        NEED(cuMemPoolSetAttribute(usual, (CUmemPool_attribute)(i + 1), &on));
                }
                (void)printf("%s: reuse %d\n", group, mask);
                NEED(cuMemPoolTrimTo(usual, 0));
                NEED(cuMemAllocAsync(&p, 64 * MIB, stream));
                *flag = 0;
                NEED(run(wait_flag, at, stream));
                NEED(cuMemFreeAsync(p, stream));
                NEED(cuMemAllocAsync(&q, 64 * MIB, stream));
                NUMBER(q == p);
                NEED(cuMemFreeAsync(q, stream));
                NEED(cuMemAllocAsync(&q, 64 * MIB, second));
                NUMBER(q == p);
                SAY(cuStreamQuery(second));
                NEED(cuMemFreeAsync(q, second));
                *flag = 1;
                NEED(cuCtxSynchronize());
                NEED(cuMemPoolTrimTo(usual, 0));
                *flag = 0;
                NEED(cuMemAllocAsync(&p, 64 * MIB, stream));
                NEED(run(wait_flag, at, stream));
                NEED(cuMemFreeAsync(p, stream));
                NEED(cuEventRecord(e, stream));
                NEED(cuStreamWaitEvent(second, e, 0));
                NEED(cuMemAllocAsync(&q, 64 * MIB, second));
                NUMBER(q == p);
                *flag = 1;
                NEED(cuMemFreeAsync(q, second));
                NEED(cuCtxSynchronize());
                NEED(cuMemPoolTrimTo(usual, 0));
                NEED(cuMemAllocAsync(&p, 64 * MIB, stream));
                NEED(cuMemFreeAsync(p, stream));
                NEED(cuStreamSynchronize(stream));
                NEED(cuMemAllocAsync(&q, 64 * MIB, second));
                NUMBER(q == p);
                NEED(cuMemFreeAsync(q, second));
                NEED(cuStreamSynchronize(second));
        }
}

/* ---- answers about addresses of a pool ---- */

static void about(const char *what, CUdeviceptr base, CUdeviceptr p, CUmemoryPool pool)
{
        static const int which[] = {1,  2,  3,  4,  6,  8,  9,  10, 11,
                                    12, 13, 14, 15, 16, 17, 18, 19, 21};
        CUpointer_attribute all[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                     CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                     CU_POINTER_ATTRIBUTE_RANGE_SIZE};
        unsigned long long v[4] = {1, 0, 1, 1};
        void *out[] = {&v[0], &v[1], &v[2], &v[3]};
        CUresult r;

        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
                uint64_t one = 0;

                r = cuPointerGetAttribute(&one, (CUpointer_attribute)which[i], p);
                if (one && one == (uintptr_t)pool)
                        (void)printf("%s: %s: attribute %d = %d, the pool\n", group, what, which[i],
                                     r);
                else if (one - base + 512 * MIB < 1024 * MIB)
                        (void)printf("%s: %s: attribute %d = %d, base + %lld\n", group, what,
                                     which[i], r, (long long)(one - base));
                else
                        (void)printf("%s: %s: attribute %d = %d, %lld\n", group, what, which[i], r,
                                     (long long)one);
        }
        r = cuPointerGetAttributes(4, all, out, p);
        (void)printf("%s: %s: at once = %d, context %d, type %d, pool %d, %lld bytes\n", group,
                     what, r, v[0] != 0, (int)v[1], v[2] && v[2] == (uintptr_t)pool,
                     (long long)v[3]);
        range_of(what, p);
}

static void pool_pointers(void)
{
        unsigned long long id = 0, id2 = 0;
        CUdeviceptr p, q, far, own;
        unsigned on = 1;
        CUipcMemHandle ipc;
        CUmemPoolPtrExportData data;
        CUmemoryPool pool;
        char host[64];
        int fd;

        begin_with_streams();
        pool = pool_new(0);
        NEED(cuMemAllocAsync(&p, 5000, stream));
        NEED(cuMemAllocAsync(&q, 5000, stream));
        NEED(cuMemAllocAsync(&far, 40 * MIB, stream));
        NEED(cuMemAllocFromPoolAsync(&own, 5000, pool, stream));
        about("of the device's pool", p, p, usual);
        about("within", p, p + 700, usual);
        about("its neighbour", q, q + 5, usual);
        about("past the end", p, p + 5100, usual);
        about("another pool's", own, own, pool);
        about("large", far, far + 35 * MIB, usual);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, q));
        NUMBER(id == id2);
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, own));
        NUMBER(id == id2);
        NUMBER(id == 0);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, p));
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, q));
        NUMBER(id == id2);
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, own));
        NUMBER(id == id2);
        NUMBER(id == 0);
        SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        SAY(cuIpcGetMemHandle(&ipc, p));
        SAY(cuMemPoolExportPointer(&data, p));
        SAY(cuMemPoolExportPointer(&data, own));
        SAY(cuMemPoolExportPointer(NULL, own));
        SAY(cuMemPoolExportPointer(&data, 0x1000));
        SAY(cuMemPoolExportToShareableHandle(&fd, usual, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0));
        SAY(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0));
        SAY(cuMemPoolExportToShareableHandle(NULL, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0));
        SAY(cuMemcpyDtoH_v2(host, p, 64));
        SAY(cuMemFreeAsync(p, stream));
        SAY(cuStreamSynchronize(stream));
        about("freed", p, p, usual);
        SAY(cuMemcpyDtoH_v2(host, p, 64));
}

/* ---- contexts ---- */

static void pool_contexts(void)
{
        CUcontext other, of = NULL;
        CUdeviceptr p, q, more;
        CUstream theirs;

        begin_with_streams();
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        NEED(cuCtxCreate_v2(&other, 0, 0));
        NEED(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
        SAY(cuMemAllocAsync(&q, 4 * MIB, theirs));
        SAY(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, q));
        NUMBER(of == NULL);
        SAY(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
        NUMBER(of == NULL);
        SAY(cuMemAllocAsync(&more, 4 * MIB, stream));
        SAY(cuMemFreeAsync(p, theirs));
        SAY(cuStreamSynchronize(theirs));
        NEED(cuMemAllocAsync(&p, 4 * MIB, theirs));
        SAY(cuMemFreeAsync(p, stream));
        holds("before", usual);
        SAY(cuCtxDestroy_v2(other));
        NEED(cuCtxSetCurrent(context));
        holds("destroyed", usual);
        range_of("of the destroyed", q);
        SAY(cuMemsetD8_v2(q, 1, 100));
        SAY(cuMemFreeAsync(q, stream));
        SAY(cuStreamSynchronize(stream));
        holds("freed", usual);
}

static void pool_reset(void)
{
        unsigned long long v = 77 * MIB;
        CUmemoryPool pool, again;
        CUdeviceptr p, q;

        begin_with_streams();
        pool = pool_new(0);
        NEED(cuMemPoolSetAttribute(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        NEED(cuMemAllocFromPoolAsync(&q, 4 * MIB, pool, stream));
        NEED(cuCtxSynchronize());
        SAY(cuDevicePrimaryCtxReset_v2(0));
        SAY(cuDevicePrimaryCtxRetain(&context, 0));
        SAY(cuCtxSetCurrent(context));
        SAY(cuDeviceGetDefaultMemPool(&again, 0));
        NUMBER(again == usual);
        holds("the device's", usual);
        holds("another", pool);
        NUMBER(value_of(usual, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
        range_of("the device's", p);
        range_of("another's", q);
        SAY(cuMemsetD8_v2(p, 1, 16));
        SAY(cuMemFreeAsync(p, NULL));
        SAY(cuMemFreeAsync(q, NULL));
        SAY(cuMemAllocAsync(&p, 4 * MIB, NULL));
        SAY(cuMemAllocFromPoolAsync(&p, 4 * MIB, pool, NULL));
        SAY(cuCtxSynchronize());
        holds("the device's", usual);
        holds("another", pool);
}

static void pool_release(void)
{
        CUdeviceptr p;

        begin_with_streams();
        NEED(cuMemAllocAsync(&p, 4 * MIB, stream));
        NEED(cuCtxSynchronize());
        SAY(cuDevicePrimaryCtxRelease_v2(0));
        holds("released", usual);
        SAY(cuDevicePrimaryCtxRetain(&context, 0));
        SAY(cuCtxSetCurrent(context));
        holds("retained", usual);
        range_of("memory", p);
        SAY(cuMemFree_v2(p));
        SAY(cuMemAllocAsync(&p, 4 * MIB, NULL));
        SAY(cuCtxSynchronize());
        holds("after", usual);
}

const struct facts pool_groups[] = {
        {"pools_of_a_device", pools_of_a_device},
        {"pools_at_places", pools_at_places},
        {"pools_made", pools_made},
        {"pools_set", pools_set},
        {"pool_null_set", pool_null_set},
        {"pool_null_trim", pool_null_trim},
        {"pools_reached", pools_reached},
        {"pool_null_access", pool_null_access},
        {"pool_without_context", pool_without_context},
        {"pools_destroyed", pools_destroyed},
        {"pool_sizes", pool_sizes},
        {"pool_frees", pool_frees},
        {"pool_frees_in_flight", pool_frees_in_flight},
        {"pool_frees_of_others", pool_frees_of_others},
        {"pool_thresholds", pool_thresholds},
        {"pool_reuses", pool_reuses},
        {"pool_pointers", pool_pointers},
        {"pool_contexts", pool_contexts},
        {"pool_reset", pool_reset},
        {"pool_release", pool_release},
        {NULL, NULL},
};

int main(int argc, char *argv[])
{
        static const struct facts *const lists[] = {pool_groups,  pool_graph_groups, free_groups,
                                                    green_groups, host_groups,       NULL};

        return facts_main(argc, argv, lists);
}
