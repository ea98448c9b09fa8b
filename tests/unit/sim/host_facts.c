/* host_facts.c: asks a driver about host memory that cuMemCreate makes. The processor accesses it
 * through a pipe, so that a refused access is an error code and not a signal. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "pool_facts.h"

static const CUmemLocation card = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
static const CUmemLocation node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
static const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
static const CUmemLocation here = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0};

static CUmemAllocationProp prop_at(CUmemLocation where)
{
        CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = where};

        return p;
}

static CUmemAccessDesc access_of(CUmemLocation who, CUmemAccess_flags flags)
{
        CUmemAccessDesc d = {who, flags};

        return d;
}

/* Reads a byte with the processor. Returns its value, or an error if the access is refused. */
static int read_byte(CUdeviceptr p)
{
        unsigned char c = 0;
        int fds[2], r;

        if (pipe(fds) < 0)
                exit(2);
        r = write(fds[1], (const void *)(uintptr_t)p, 1) == 1 && read(fds[0], &c, 1) == 1 ? c
                                                                                          : -errno;
        (void)close(fds[0]);
        (void)close(fds[1]);
        return r;
}

/* Writes a byte with the processor. Returns an error if the access is refused. */
static int write_byte(CUdeviceptr p, unsigned char c)
{
        int fds[2], r;

        if (pipe(fds) < 0 || write(fds[1], &c, 1) != 1)
                exit(2);
        r = read(fds[0], (void *)(uintptr_t)p, 1) == 1 ? 0 : -errno;
        (void)close(fds[0]);
        (void)close(fds[1]);
        return r;
}

static void host_made_at(const char *what, CUmemLocation where)
{
        CUmemAllocationProp p = prop_at(where), got;
        CUmemGenericAllocationHandle h = 0;
        size_t least = 0, best = 0;
        CUresult r, r2;

        r = cuMemGetAllocationGranularity(&least, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        r2 = cuMemGetAllocationGranularity(&best, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
        (void)printf("%s: %s: granularity = %d, %zu; %d, %zu\n", group, what, r, least, r2, best);
        r = cuMemCreate(&h, 2 * MIB, &p, 0);
        (void)printf("%s: %s: cuMemCreate = %d\n", group, what, r);
        if (r != CUDA_SUCCESS)
                return;
        memset(&got, 0xee, sizeof(got));
        SAY(cuMemGetAllocationPropertiesFromHandle(&got, h));
        NUMBER(got.type);
        NUMBER(got.requestedHandleTypes);
        NUMBER(got.location.type);
        NUMBER(got.location.id);
        NUMBER(got.allocFlags.compressionType);
        NUMBER(got.allocFlags.gpuDirectRDMACapable);
        NUMBER(got.allocFlags.usage);
        SAY(cuMemRelease(h));
}

static void host_made(void)
{
        CUmemAllocationProp p;
        CUmemGenericAllocationHandle h;
        CUmemLocation l;
        size_t n;

        begin();
        host_made_at("host", host);
        l = host;
        l.id = 7;
        host_made_at("host 7", l);
        l.id = -1;
        host_made_at("host -1", l);
        host_made_at("node", node);
        l = node;
        l.id = 99;
        host_made_at("node 99", l);
        l.id = -1;
        host_made_at("node -1", l);
        host_made_at("current node", here);
        l = here;
        l.id = 7;
        host_made_at("current node 7", l);
        l.type = (CUmemLocationType)9;
        host_made_at("nowhere", l);
        p = prop_at(host);
        SAY(cuMemCreate(&h, 0, &p, 0));
        SAY(cuMemCreate(&h, MIB, &p, 0));
        SAY(cuMemCreate(&h, 3 * MIB, &p, 0));
        SAY(cuMemCreate(&h, 4096, &p, 0));
        SAY(cuMemCreate(&h, 2 * MIB, &p, 1));
        SAY(cuMemCreate(NULL, 2 * MIB, &p, 0));
        p.type = CU_MEM_ALLOCATION_TYPE_INVALID;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        SAY(cuMemGetAllocationGranularity(&n, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        p.type = CU_MEM_ALLOCATION_TYPE_MANAGED;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop_at(node);
        SAY(cuMemCreate(&h, MIB, &p, 0));
        SAY(cuMemCreate(&h, 4096, &p, 0));
        p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop_at(node);
        p.allocFlags.gpuDirectRDMACapable = 1;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop_at(node);
        p.allocFlags.compressionType = 1;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop_at(node);
        p.allocFlags.usage = 1;
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        SAY(cuMemGetAllocationGranularity(NULL, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

/* Asks whether host memory can be exported to another process. */
static void host_exported(void)
{
        CUmemAllocationProp p = prop_at(node);
        CUmemGenericAllocationHandle h;
        size_t n = 0;
        int fd = -1;

        begin();
        p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        SAY(cuMemGetAllocationGranularity(&n, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        SAY(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
        NUMBER(fd >= 0);
        p.location = host;
        SAY(cuMemGetAllocationGranularity(&n, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        p = prop_at(node);
        NEED(cuMemCreate(&h, 2 * MIB, &p, 0));
        SAY(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

static void flags_at(const char *what, CUdeviceptr p)
{
        const CUmemLocation who[] = {card, host, node, here};
        static const char *const names[] = {"card", "host", "node", "current node"};

        for (int i = 0; i < 4; i++) {
                unsigned long long flags = 9;
                CUresult r = cuMemGetAccess(&flags, &who[i], p);

                (void)printf("%s: %s: access of the %s = %d, %llu\n", group, what, names[i], r,
                             flags);
        }
}

/* Asks which devices may access host memory. */
static void host_access_at(CUmemLocation where)
{
        CUmemAllocationProp p = prop_at(where);
        CUmemGenericAllocationHandle h, again = 0;
        CUmemAccessDesc d;
        CUdeviceptr va, base = 0;
        unsigned char c = 0;
        size_t bytes = 0;

        NEED(cuMemAddressReserve(&va, 8 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 4 * MIB, &p, 0));
        SAY(cuMemMap(va, 2 * MIB, 0, h, 0));
        SAY(cuMemMap(va, 4 * MIB, 0, h, 0));
        flags_at("mapped", va);
        NUMBER(read_byte(va));
        SAY(cuMemsetD8_v2(va, 1, 64));
        d = access_of(card, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        flags_at("for the card", va);
        NUMBER(read_byte(va));
        SAY(cuMemsetD8_v2(va, 5, 64));
        SAY(cuMemcpyDtoH_v2(&c, va, 1));
        NUMBER(c);
        SAY(run(store, va + MIB, NULL));
        SAY(cuCtxSynchronize());
        d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        flags_at("for the host", va);
        NUMBER(read_byte(va));
        NUMBER(read_byte(va + MIB));
        NUMBER(write_byte(va + 1, 9));
        NEED(cuMemcpyDtoH_v2(&c, va + 1, 1));
        NUMBER(c);
        d = access_of(node, CU_MEM_ACCESS_FLAGS_PROT_READ);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        flags_at("for the node, to read", va);
        NUMBER(read_byte(va));
        NUMBER(write_byte(va + 1, 9));
        d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_READ);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        flags_at("for the host, to read", va);
        NUMBER(read_byte(va));
        NUMBER(write_byte(va + 1, 9));
        d = access_of(here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        flags_at("for the current node", va);
        d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        flags_at("not for the host", va);
        NUMBER(read_byte(va));
        d = access_of(card, CU_MEM_ACCESS_FLAGS_PROT_READ);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        flags_at("for the card to read", va);
        SAY(cuMemcpyDtoH_v2(&c, va + 1, 1));
        d.location.id = 99;
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        d = access_of(node, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        d.location.id = 99;
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        d.location = host;
        d.location.id = 99;
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        SAY(cuMemGetAddressRange_v2(&base, &bytes, va + 3 * MIB));
        NUMBER(base == 0);
        NUMBER(bytes);
        SAY(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + MIB)));
        NUMBER(again == h);
        SAY(cuMemRelease(again));
        SAY(cuMemRelease(h));
        NUMBER(read_byte(va + MIB));
        SAY(cuMemUnmap(va, 4 * MIB));
        NUMBER(read_byte(va + MIB));
        SAY(cuMemAddressFree(va, 8 * MIB));
}

static void host_access(void)
{
        begin();
        host_access_at(host);
}

static void node_access(void)
{
        begin();
        host_access_at(node);
}

/* Asks whether the host may have access to memory of the card. */
static void card_access(void)
{
        CUmemAllocationProp p = prop_at(card);
        CUmemGenericAllocationHandle h;
        CUmemAccessDesc d;
        CUdeviceptr va;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &p, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        flags_at("mapped", va);
        d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_READ);
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_NONE);
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d = access_of(node, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        d = access_of(here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        flags_at("refused", va);
        NUMBER(read_byte(va));
}

static void about(const char *what, CUdeviceptr base, CUdeviceptr p)
{
        static const int which[] = {1,  2,  3,  4,  6,  8,  9,  10, 11,
                                    12, 13, 14, 15, 16, 17, 18, 19, 21};

        for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
                uint64_t v = 0;
                CUresult r = cuPointerGetAttribute(&v, (CUpointer_attribute)which[i], p);

                if (v - base < 64 * MIB)
                        (void)printf("%s: %s: attribute %d = %d, base + %lld\n", group, what,
                                     which[i], r, (long long)(v - base));
                else
                        (void)printf("%s: %s: attribute %d = %d, %lld\n", group, what, which[i], r,
                                     (long long)v);
        }
}

static void pointers_at(CUmemLocation where)
{
        CUmemAccessDesc d = access_of(card, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CUmemAllocationProp p = prop_at(where);
        unsigned long long id = 0, id2 = 0;
        CUmemGenericAllocationHandle h;
        unsigned flags = 9, on = 1;
        CUdeviceptr va, at = 0;

        begin();
        NEED(cuMemAddressReserve(&va, 16 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 4 * MIB, &p, 0));
        NEED(cuMemMap(va, 4 * MIB, 0, h, 0));
        NEED(cuMemMap(va + 8 * MIB, 4 * MIB, 0, h, 0));
        about("no access", va, va + 64);
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        about("for the card", va, va + 3 * MIB);
        d.location = host;
        SAY(cuMemSetAccess(va, 4 * MIB, &d, 1));
        about("for both", va, va + 3 * MIB);
        SAY(cuMemSetAccess(va + 8 * MIB, 4 * MIB, &d, 1));
        about("for the host", va, va + 9 * MIB);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, va));
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_BUFFER_ID, va + 8 * MIB));
        NUMBER(id == id2);
        SAY(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, va));
        SAY(cuPointerGetAttribute(&id2, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, va + 8 * MIB));
        NUMBER(id == id2);
        SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va));
        SAY(cuMemHostGetFlags(&flags, (void *)(uintptr_t)va));
        SAY(cuMemHostGetDevicePointer_v2(&at, (void *)(uintptr_t)va, 0));
        SAY(cuMemHostUnregister((void *)(uintptr_t)va));
        SAY(cuMemFreeHost((void *)(uintptr_t)va));
        SAY(cuMemFree_v2(va));
        SAY(cuMemFreeAsync(va, NULL));
        SAY(cuMemHostRegister_v2((void *)(uintptr_t)va, 4 * MIB, 0));
}

static void host_pointers(void)
{
        pointers_at(host);
}

static void node_pointers(void)
{
        pointers_at(node);
}

/* Runs a kernel without access to the host memory that it uses. */
static void host_no_access(void)
{
        CUmemAccessDesc d = access_of(host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CUmemAllocationProp p = prop_at(host);
        CUmemGenericAllocationHandle h;
        CUdeviceptr va;

        begin();
        NEED(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        NEED(cuMemCreate(&h, 2 * MIB, &p, 0));
        NEED(cuMemMap(va, 2 * MIB, 0, h, 0));
        SAY(cuMemSetAccess(va, 2 * MIB, &d, 1));
        SAY(run(store, va, NULL));
        SAY(cuCtxSynchronize());
}

/* Asks which memory ends with a context, and which calls work without one. */
static void host_contexts(void)
{
        CUmemAccessDesc d[2] = {access_of(card, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                                access_of(host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
        CUmemAllocationProp p = prop_at(host);
        CUmemGenericAllocationHandle h;
        CUdeviceptr va;

        NEED(cuInit(0));
        SAY(cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0));
        SAY(cuMemCreate(&h, 2 * MIB, &p, 0));
        SAY(cuMemMap(va, 2 * MIB, 0, h, 0));
        SAY(cuMemSetAccess(va, 2 * MIB, d, 2));
        NUMBER(write_byte(va, 7));
        begin();
        SAY(run(store, va + 64, NULL));
        SAY(cuCtxSynchronize());
        NUMBER(read_byte(va + 64));
        SAY(cuDevicePrimaryCtxReset_v2(0));
        NUMBER(read_byte(va));
        NUMBER(read_byte(va + 64));
        SAY(cuMemUnmap(va, 2 * MIB));
        SAY(cuMemRelease(h));
}

const struct facts host_groups[] = {
        {"host_made", host_made},         {"host_exported", host_exported},
        {"host_access", host_access},     {"node_access", node_access},
        {"card_access", card_access},     {"host_pointers", host_pointers},
        {"node_pointers", node_pointers}, {"host_no_access", host_no_access},
        {"host_contexts", host_contexts}, {NULL, NULL},
};
