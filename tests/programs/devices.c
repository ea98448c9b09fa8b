/* devices: what a process sees of its devices, and what it can do with them. --how:
 *
 *   list   says how each is called, by the driver and by NVML
 *   one    works on the device --gpu
 *   all    works on every device, beginning with --gpu, and then checks the memory of all again
 *
 * Working on a device checks that contexts, streams and memory say that they are the device's, with
 * memory of cuMemAlloc() and with memory that is mapped. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

#define MOST 64

static int n;
static CUcontext contexts[MOST];
static struct kernels loaded[MOST];
static struct blocks work[MOST];

static void wrong(const char *what, long long got, long long wanted)
{
        if (got != wanted)
                program_fail(PROGRAM_EXIT_WRONG, "%s: %lld, not %lld", what, got, wanted);
}

static void *symbol(void *library, const char *name)
{
        void *f = dlsym(library, name);

        if (!f)
                program_fail(PROGRAM_EXIT_SETUP, "no %s", name);
        return f;
}

/* The handles are asked for first, all of them, and then what they are. */
static void list_nvml(void)
{
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *handle[MOST], *same;
        int (*by_index)(unsigned, void **), (*by_uuid)(const char *, void **);
        int (*by_bus_id)(const char *, void **), (*uuid)(void *, char *, unsigned);
        int (*index)(void *, unsigned *), (*name)(void *, char *, unsigned);
        int (*info)(void *, char *);
        unsigned count = 0, at;

        if (!library)
                program_fail(PROGRAM_EXIT_SETUP, "no NVML");
        wrong("nvmlInit", ((int (*)(void))symbol(library, "nvmlInit_v2"))(), 0);
        ((int (*)(unsigned *))symbol(library, "nvmlDeviceGetCount_v2"))(&count);
        *(void **)&by_index = symbol(library, "nvmlDeviceGetHandleByIndex_v2");
        *(void **)&by_uuid = symbol(library, "nvmlDeviceGetHandleByUUID");
        *(void **)&by_bus_id = symbol(library, "nvmlDeviceGetHandleByPciBusId_v2");
        *(void **)&uuid = symbol(library, "nvmlDeviceGetUUID");
        *(void **)&index = symbol(library, "nvmlDeviceGetIndex");
        *(void **)&name = symbol(library, "nvmlDeviceGetName");
        *(void **)&info = symbol(library, "nvmlDeviceGetPciInfo_v3");
        for (unsigned i = 0; i < count; i++)
                wrong("handle", by_index(i, &handle[i]), 0);
        wrong("a handle too many", by_index(count, &same) == 0, 0);
        for (unsigned i = 0; i < count; i++) {
                char text[96], called[96], pci[128];

                wrong("uuid", uuid(handle[i], text, sizeof(text)), 0);
                wrong("name", name(handle[i], called, sizeof(called)), 0);
                wrong("index", index(handle[i], &at), 0);
                wrong("index", at, i);
                wrong("pci", info(handle[i], pci), 0);
                wrong("by UUID", by_uuid(text, &same), 0);
                wrong("by UUID", same == handle[i], 1);
                wrong("by address", by_bus_id(pci + 36, &same), 0);
                wrong("by address", same == handle[i], 1);
                program_say("nvml", "\"index\":%u,\"uuid\":\"%s\",\"name\":\"%s\",\"pci\":\"%s\"",
                            i, text, called, pci + 36);
        }
}

static void list(void)
{
        for (int i = 0; i < n; i++) {
                char pci[32], text[33];
                int domain, bus, slot, back = -1;
                CUdevice d;
                CUuuid u;

                TRY(cu.DeviceGet(&d, i));
                TRY(cu.DeviceGetUuid(&u, d));
                TRY(cu.DeviceGetPCIBusId(pci, sizeof(pci), d));
                TRY(cu.DeviceGetByPCIBusId(&back, pci));
                wrong("by address", back, d);
                TRY(cu.DeviceGetAttribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, d));
                TRY(cu.DeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d));
                TRY(cu.DeviceGetAttribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, d));
                for (unsigned k = 0; k < 16; k++)
                        (void)sprintf(text + 2 * k, "%02x", (unsigned char)u.bytes[k]);
                program_say("device",
                            "\"ordinal\":%d,\"uuid\":\"%s\",\"pci\":\"%s\","
                            "\"numbers\":[%d,%d,%d]",
                            i, text, pci, domain, bus, slot);
        }
        wrong("a device too many", cu.DeviceGet(&(CUdevice){0}, n), CUDA_ERROR_INVALID_DEVICE);
}

static void expect_pointer(CUdeviceptr at, int device)
{
        CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        int got = -1;
        void *data = &got;

        TRY(cu.PointerGetAttribute(&got, attribute, at));
        wrong("the pointer's device", got, device);
        got = -1;
        TRY(cu.PointerGetAttributes(1, &attribute, &data, at));
        wrong("the pointer's device", got, device);
}

/* The memory is mapped at the end of a reservation, and its device may read and write it. */
static void map(int device)
{
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
        unsigned long long flags = 0;
        CUmemGenericAllocationHandle h;
        CUdeviceptr base, at;
        uint32_t word = 0;

        TRY(cu.MemAddressReserve(&base, 2 * options.block, 0, 0, 0));
        at = base + options.block;
        TRY(cu.MemCreate(&h, options.block, &prop, 0));
        prop.location.id = -1;
        TRY(cu.MemGetAllocationPropertiesFromHandle(&prop, h));
        wrong("the handle's device", prop.location.id, device);
        TRY(cu.MemMap(at, options.block, 0, h, 0));
        TRY(cu.MemSetAccess(at, options.block, &access, 1));
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

static void use(int device)
{
        TRY(cu.CtxSetCurrent(contexts[device]));
        kernels = loaded[device];
}

static void begin(int device)
{
        unsigned flags;
        int got = -1, active = -1;

        TRY(cu.DevicePrimaryCtxGetState(device, &flags, &active));
        wrong("active before", active, 0);
        TRY(cu.DevicePrimaryCtxRetain(&contexts[device], device));
        TRY(cu.DevicePrimaryCtxGetState(device, &flags, &active));
        wrong("active", active, 1);
        TRY(cu.CtxSetCurrent(contexts[device]));
        kernels_load(&loaded[device]);
        use(device);
        TRY(cu.CtxGetDevice(&got));
        wrong("the context's device", got, device);
        blocks_allocate(&work[device], options.bytes, options.block, (size_t)device * 16);
        blocks_fill(&work[device], 0);
        expect_pointer(work[device].block[0].at + 8, device);
        map(device);
}

static void end(int device)
{
        use(device);
        (void)blocks_verify(&work[device], 0);
        expect_pointer(work[device].block[0].at, device);
        blocks_free(&work[device]);
        TRY(cu.ModuleUnload(loaded[device].module));
        TRY(cu.CtxSetCurrent(NULL));
        TRY(cu.DevicePrimaryCtxRelease(device));
}

static void work_on_all(void)
{
        CUcontext second;
        int can = -1;

        for (int i = 0; i < n; i++)
                begin((options.gpu + i) % n);
        for (int i = 0; i < n; i++)
                for (int k = 0; k < n; k++) {
                        if (i == k)
                                continue;
                        wrong("one context for two devices", contexts[i] == contexts[k], 0);
                        TRY(cu.DeviceCanAccessPeer(&can, i, k));
                        program_say("peers", "\"a\":%d,\"b\":%d,\"can\":%d", i, k, can);
                }
        TRY(cu.CtxCreate(&second, 0, n - 1));
        TRY(cu.CtxGetDevice(&can));
        wrong("the device of a context that was created", can, n - 1);
        TRY(cu.CtxDestroy(second));
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
        driver_open(false);
        TRY(cu.Init(0));
        TRY(cu.DeviceGetCount(&n));
        program_say("devices", "\"n\":%d,\"visible\":\"%s\"", n,
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
