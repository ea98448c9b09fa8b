/* devices: what a process sees of its devices, and what it can do with them, in the CUDA runtime
 * library as a shared library. --how:
 *
 *   list   says how NVML, the runtime and the driver call each
 *   one    works on the device --gpu
 *   all    works on every device, beginning with --gpu, each in its own thread, too
 *
 * Working on a device checks that the runtime says that memory and threads are the device's, and
 * that the driver takes the device's ordinal where programs pass it on. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "cudart/cudart.h"
#include "program.h"

#define MOST 64

static struct runtime rt;
static int n, cards;
static CUcontext contexts[MOST];
static struct kernels loaded[MOST];
static struct blocks work[MOST];
static pthread_barrier_t chosen;

static void wrong(const char *what, long long got, long long wanted)
{
        if (got != wanted)
                program_fail(PROGRAM_EXIT_WRONG, "%s: %lld, not %lld", what, got, wanted);
}

/* The runtime's errors have the driver's numbers. */
#define RT(call) program_check((CUresult)(call), #call, __FILE__, __LINE__)

static void *symbol(void *library, const char *name)
{
        void *f = library ? dlsym(library, name) : NULL;

        if (!f)
                program_fail(PROGRAM_EXIT_SETUP, "no %s", name);
        return f;
}

static void runtime_open(void)
{
#ifdef DRIVER_LINKED
#define MEMBER(member, symbol, params) .member = symbol,
        rt = (struct runtime){RUNTIME_ALL(MEMBER)};
#else
        void *library = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);

#define MEMBER(member, name, params) *(void **)&rt.member = symbol(library, #name);
        RUNTIME_ALL(MEMBER)
#endif
}

static void list_nvml(void)
{
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *handle[MOST], *same;
        int (*by_index)(unsigned, void **), (*uuid)(void *, char *, unsigned);
        unsigned count = 0, before = 0;

        wrong("nvmlInit", ((int (*)(void))symbol(library, "nvmlInit_v2"))(), 0);
        ((int (*)(unsigned *))symbol(library, "nvmlDeviceGetCount_v2"))(&count);
        ((int (*)(unsigned *))symbol(library, "nvmlDeviceGetCount"))(&before);
        wrong("the older count", before, count);
        *(void **)&by_index = symbol(library, "nvmlDeviceGetHandleByIndex_v2");
        *(void **)&uuid = symbol(library, "nvmlDeviceGetUUID");
        for (unsigned i = 0; i < count; i++)
                wrong("handle", by_index(i, &handle[i]), 0);
        wrong("a handle too many", by_index(count, &same) == 0, 0);
        for (unsigned i = 0; i < count; i++) {
                char text[96];

                wrong("uuid", uuid(handle[i], text, sizeof(text)), 0);
                program_say("nvml", "\"index\":%u,\"uuid\":\"%s\"", i, text);
        }
}

static void write_uuid(char text[static 33], const void *uuid)
{
        for (unsigned k = 0; k < 16; k++)
                (void)sprintf(text + 2 * k, "%02x", ((const unsigned char *)uuid)[k]);
}

static void refuse(int device)
{
        struct runtime_properties is;
        char pci[32];
        void *pool;
        int got;

        wrong("cudaSetDevice", rt.set_device(device), RUNTIME_INVALID_DEVICE);
        wrong("cudaInitDevice", rt.init_device(device, 0, 0), RUNTIME_INVALID_DEVICE);
        wrong("properties", rt.get_properties(&is, device), RUNTIME_INVALID_DEVICE);
        wrong("attribute", rt.get_attribute(&got, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device),
              RUNTIME_INVALID_DEVICE);
        wrong("address", rt.get_bus_id(pci, sizeof(pci), device), RUNTIME_INVALID_DEVICE);
        wrong("pool", rt.get_default_pool(&pool, device), RUNTIME_INVALID_DEVICE);
        wrong("peer", rt.can_access_peer(&got, device, 0), RUNTIME_INVALID_DEVICE);
        wrong("peer", rt.can_access_peer(&got, 0, device), RUNTIME_INVALID_DEVICE);
        wrong("valid devices", rt.set_valid_devices(&device, 1), RUNTIME_INVALID_DEVICE);
        wrong("cuDeviceGet", cu.DeviceGet(&(CUdevice){0}, device), CUDA_ERROR_INVALID_DEVICE);
}

/* The names of the devices, which are the runtime's, and those of the cards, which are the
 * driver's. */
static void list(void)
{
        for (int i = 0; i < n; i++) {
                int domain, bus, slot, back = -1;
                struct runtime_properties is, same;
                char pci[32], text[33];

                RT(rt.get_properties(&is, i));
                RT(rt.get_properties_v2(&same, i));
                wrong("the newer properties", memcmp(is.uuid, same.uuid, sizeof(is.uuid)), 0);
                RT(rt.get_bus_id(pci, sizeof(pci), i));
                RT(rt.get_by_bus_id(&back, pci));
                wrong("by address", back, i);
                RT(rt.get_attribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, i));
                RT(rt.get_attribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
                RT(rt.get_attribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, i));
                write_uuid(text, is.uuid);
                program_say("device",
                            "\"ordinal\":%d,\"uuid\":\"%s\",\"name\":\"%s\",\"pci\":\"%s\","
                            "\"numbers\":[%d,%d,%d]",
                            i, text, is.name, pci, domain, bus, slot);
        }
        for (int i = 0; i < cards; i++) {
                CUdevice back = -1;
                char pci[32], text[33];
                CUuuid uuid;

                TRY(cu.DeviceGetUuid(&uuid, i));
                TRY(cu.DeviceGetPCIBusId(pci, sizeof(pci), i));
                TRY(cu.DeviceGetByPCIBusId(&back, pci));
                wrong("a card by its address", back, i);
                write_uuid(text, &uuid);
                program_say("card", "\"ordinal\":%d,\"uuid\":\"%s\",\"pci\":\"%s\"", i, text, pci);
        }
        refuse(n);
        refuse(INT32_MAX);
        refuse(-1);
}

static void expect_pointer(CUdeviceptr at, int device)
{
        struct runtime_pointer is;

        RT(rt.pointer(&is, (void *)(uintptr_t)at));
        wrong("the pointer's kind", is.type, CU_MEMORYTYPE_DEVICE);
        wrong("the pointer's device", is.device, device);
}

/* A place of memory is the program's device. Every device of the program may read and write the
 * memory, or the device alone where the cards are no peers of each other. */
static void map(int device, int card)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, card};
        unsigned long long flags = 0;
        CUmemAccessDesc access[MOST];
        CUmemGenericAllocationHandle h;
        CUmemAllocationProp real = {.type = CU_MEM_ALLOCATION_TYPE_INVALID};
        CUdeviceptr base, at;
        uint32_t word = 0;

        for (int i = 0; i < n; i++)
                access[i] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, i},
                                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        TRY(cu.MemAddressReserve(&base, 2 * options.block, 0, 0, 0));
        at = base + options.block;
        TRY(cu.MemCreate(&h, options.block, &prop, 0));
        wrong("the program's structure", prop.location.id, device);
        TRY(cu.MemGetAllocationPropertiesFromHandle(&real, h));
        wrong("the handle's card", real.location.id, card);
        TRY(cu.MemMap(at, options.block, 0, h, 0));
        TRY(cu.MemSetAccess(at, options.block, access, (size_t)n));
        TRY(cu.MemGetAccess(&flags, &location, at));
        wrong("access", (long long)flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        expect_pointer(at, device);
        TRY(cu.MemsetD32(at, 7 + (unsigned)device, options.block / 4));
        TRY(cu.MemcpyDtoH(&word, at + options.block - 4, 4));
        wrong("mapped memory", word, 7 + device);
        TRY(cu.MemUnmap(at, options.block));
        TRY(cu.MemRelease(h));
        TRY(cu.MemAddressFree(base, 2 * options.block));
}

static void pool(int device)
{
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        CUmemoryPool own, of_card;
        CUdeviceptr at;

        RT(rt.get_default_pool((void **)&of_card, device));
        TRY(cu.MemPoolCreate(&own, &props));
        TRY(cu.MemAllocFromPoolAsync(&at, options.block, own, NULL));
        expect_pointer(at, device);
        TRY(cu.MemFreeAsync(at, NULL));
        TRY(cu.StreamSynchronize(NULL));
        TRY(cu.MemPoolDestroy(own));
}

static void use(int device)
{
        int got = -1;

        RT(rt.set_device(device));
        RT(rt.get_device(&got));
        wrong("the thread's device", got, device);
        TRY(cu.CtxGetCurrent(&contexts[device]));
        kernels = loaded[device];
}

static void begin(int device)
{
        CUcontext primary;
        CUdevice card = -1, got = -1;
        void *at;

        use(device);
        kernels_load(&loaded[device]);
        kernels = loaded[device];
        TRY(cu.DeviceGet(&card, device));
        wrong("a card", card >= 0 && card < cards, 1);
        TRY(cu.CtxGetDevice(&got));
        wrong("the context's card", got, card);
        TRY(cu.DevicePrimaryCtxRetain(&primary, card));
        wrong("the card's context", primary == contexts[device], 1);
        TRY(cu.DevicePrimaryCtxRelease(card));
        RT(rt.malloc(&at, options.block));
        RT(rt.memset(at, 1, options.block));
        expect_pointer((CUdeviceptr)(uintptr_t)at + 8, device);
        RT(rt.free(at));
        blocks_allocate(&work[device], options.bytes, options.block, (size_t)device * 16);
        blocks_fill(&work[device], 0);
        expect_pointer(work[device].block[0].at + 8, device);
        map(device, card);
        pool(device);
}

static void end(int device)
{
        use(device);
        (void)blocks_verify(&work[device], 0);
        expect_pointer(work[device].block[0].at, device);
        blocks_free(&work[device]);
        TRY(cu.ModuleUnload(loaded[device].module));
}

/* Each thread has its own device while all others have theirs. */
static void *choose(void *data)
{
        const int device = (int)(intptr_t)data;
        struct runtime_pointer is;
        int got = -1;
        void *at;

        RT(rt.get_device(&got));
        wrong("the device of a thread that has chosen none", got, 0);
        RT(rt.set_device(device));
        (void)pthread_barrier_wait(&chosen);
        RT(rt.get_device(&got));
        wrong("the thread's device", got, device);
        RT(rt.malloc(&at, options.block));
        RT(rt.pointer(&is, at));
        wrong("the device of the thread's pointer", is.device, device);
        RT(rt.free(at));
        (void)pthread_barrier_wait(&chosen);
        return NULL;
}

static void work_in_threads(void)
{
        pthread_t thread[MOST];

        if (pthread_barrier_init(&chosen, NULL, (unsigned)n))
                program_fail(PROGRAM_EXIT_SETUP, "no barrier");
        for (int i = 0; i < n; i++)
                if (pthread_create(&thread[i], NULL, choose, (void *)(intptr_t)i))
                        program_fail(PROGRAM_EXIT_SETUP, "no thread");
        for (int i = 0; i < n; i++)
                (void)pthread_join(thread[i], NULL);
}

static void compare(int a, int b)
{
        int can = -1, access = -1;
        void *from, *to;
        uint32_t word = 0;

        RT(rt.can_access_peer(&can, a, b));
        RT(rt.get_p2p(&access, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b));
        wrong("access between the two", access, can);
        program_say("peers", "\"a\":%d,\"b\":%d,\"can\":%d,\"shared\":%d", a, b, can,
                    contexts[a] == contexts[b]);
        use(a);
        RT(rt.malloc(&from, 4));
        RT(rt.memset(from, a + 1, 4));
        TRY(cu.CtxSynchronize());
        use(b);
        RT(rt.malloc(&to, 4));
        RT(rt.memcpy_peer(to, b, from, a, 4));
        TRY(cu.MemcpyDtoH(&word, (CUdeviceptr)(uintptr_t)to, 4));
        wrong("what was copied", word, (a + 1) * 0x01010101LL);
        RT(rt.free(to));
        RT(rt.free(from));
}

static void work_on_all(void)
{
        int all[MOST];

        for (int i = 0; i < n; i++)
                all[i] = i;
        RT(rt.set_valid_devices(all, n));
        for (int i = 0; i < n; i++)
                begin((options.gpu + i) % n);
        for (int i = 0; i < n; i++)
                for (int k = 0; k < n; k++)
                        if (i != k)
                                compare(i, k);
        work_in_threads();
        for (int i = 0; i < n; i++)
                end(i);
}

int main(int argc, char **argv)
{
        static const char *const names[] = {"list", "one", "all"};
        size_t how;

        program_options(argc, argv,
                        &(struct options){.bytes = 4 * MIB, .block = 2 * MIB, .how = names[0]});
        how = program_how(names, ARRAY_SIZE(names));
        if (how == 0)
                list_nvml(); /* many programs ask NVML before they use CUDA */
        runtime_open();
        driver_open(false);
        RT(rt.get_device_count(&n));
        TRY(cu.DeviceGetCount(&cards));
        program_say("devices", "\"n\":%d,\"cards\":%d,\"visible\":\"%s\"", n, cards,
                    getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "unset");
        if (how == 0) {
                list();
        } else if (how == 1) {
                begin(options.gpu);
                end(options.gpu);
        } else {
                work_on_all();
        }
        program_say("end", "\"ok\":true");
        return PROGRAM_EXIT_OK;
}
