/* test_sim_nvml.c: NVML reports what the session's cards hold, even to a process that uses none of
 * them; and cuGetProcAddress finds what the driver exports. */
#include "sim_unit.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY  (256 * UNIT_MIB)
#define CONTEXT (MEMORY / 256)

/* These types are those of NVML's header. */
typedef struct device *nvml_device;
struct memory {
        unsigned long long total, free, used;
};
struct memory_v2 {
        unsigned version;
        unsigned long long total, reserved, free, used;
};
struct process {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
};
int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *ret);
int nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *ret);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvml_device *ret);
int nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned length);
int nvmlDeviceGetName(nvml_device device, char *name, unsigned length);
int nvmlDeviceGetMemoryInfo(nvml_device device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct memory_v2 *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count,
                                            struct process *processes);
int nvmlDeviceGetIndex(nvml_device device, unsigned *index);

static void hold_64(void)
{
        CUmemGenericAllocationHandle h;

        (void)unit_begin();
        (void)unit_map(64 * UNIT_MIB, &h);
        unit_tell();
        unit_wait_told();
}

SIM_TEST_WITH(nvml_reports_memory_and_processes_of_the_session, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer a = unit_peer_start(hold_64), b = unit_peer_start(hold_64);
        struct process p[4];
        struct memory_v2 v2 = {.version = sizeof(v2) | (2u << 24)};
        struct memory m;
        unsigned count = 0;
        nvml_device d;

        unit_peer_wait(&a);
        unit_peer_wait(&b);
        CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), 1); /* NVML is not initialised yet */
        CHECK_EQUAL(nvmlInit_v2(), 0);
        CHECK_EQUAL(nvmlDeviceGetCount_v2(&count), 0);
        CHECK_EQUAL(count, 1);
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &d), 0);
        CHECK_EQUAL(nvmlDeviceGetMemoryInfo(d, &m), 0);
        CHECK_EQUAL(m.total, MEMORY);
        CHECK_EQUAL(m.used, 2 * (CONTEXT + 64 * UNIT_MIB));
        CHECK_EQUAL(m.free, m.total - m.used);
        CHECK_EQUAL(nvmlDeviceGetMemoryInfo_v2(d, &v2), 0);
        CHECK_EQUAL(v2.used, m.used);
        count = 0;
        CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(d, &count, NULL), 7);
        CHECK_EQUAL(count, 2);
        count = 4;
        CHECK_EQUAL(nvmlDeviceGetComputeRunningProcesses_v3(d, &count, p), 0);
        CHECK_EQUAL(count, 2);
        CHECK_EQUAL(p[0].used, CONTEXT + 64 * UNIT_MIB);
        CHECK((p[0].pid == (unsigned)a.pid && p[1].pid == (unsigned)b.pid) ||
              (p[0].pid == (unsigned)b.pid && p[1].pid == (unsigned)a.pid));
        unit_peer_kill(&a);
        unit_peer_tell(&b);
        unit_peer_end(&b);
        CHECK_EQUAL(nvmlDeviceGetMemoryInfo(d, &m), 0);
        CHECK_EQUAL(m.used, 0);
        CHECK_EQUAL(nvmlShutdown(), 0);
        CHECK_EQUAL(nvmlShutdown(), 1);
}

SIM_TEST_WITH(a_forked_child_ends_nothing_of_its_parent, "SIMCUDA_MEMORY=256MiB")
{
        struct memory m;
        nvml_device d;
        int status;
        pid_t child;

        CHECK_EQUAL(nvmlInit_v2(), 0);
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(0, &d), 0);
        (void)unit_begin();
        child = fork();
        if (child == 0)
                exit(0);
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
        CHECK_EQUAL(nvmlDeviceGetMemoryInfo(d, &m), 0);
        CHECK_EQUAL(m.used, CONTEXT);
}

SIM_TEST_WITH(cuda_and_nvml_name_cards_alike, "SIMCUDA_GPUS=2")
{
        char uuid[96], name[96], cuda_name[96], text[64];
        nvml_device d, same;
        unsigned index = 99;
        unsigned char *u;
        CUuuid id;

        OK(cuInit(0));
        CHECK_EQUAL(nvmlInit_v2(), 0);
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(1, &d), 0);
        CHECK_EQUAL(nvmlDeviceGetUUID(d, uuid, sizeof(uuid)), 0);
        OK(cuDeviceGetUuid_v2(&id, 1));
        u = (unsigned char *)id.bytes;
        (void)snprintf(text, sizeof(text),
                       "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                       u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
                       u[12], u[13], u[14], u[15]);
        CHECK_EQUAL(strcmp(uuid, text), 0);
        CHECK_EQUAL(nvmlDeviceGetHandleByUUID(uuid, &same), 0);
        CHECK(same == d);
        OK(cuDeviceGetPCIBusId(text, sizeof(text), 1));
        CHECK_EQUAL(nvmlDeviceGetHandleByPciBusId_v2(text, &same), 0);
        CHECK(same == d);
        CHECK_EQUAL(nvmlDeviceGetIndex(d, &index), 0);
        CHECK_EQUAL(index, 1);
        CHECK_EQUAL(nvmlDeviceGetName(d, name, sizeof(name)), 0);
        OK(cuDeviceGetName(cuda_name, sizeof(cuda_name), 1));
        CHECK_EQUAL(strcmp(name, cuda_name), 0);
        CHECK_EQUAL(nvmlDeviceGetName(d, name, 3), 7);
        CHECK_EQUAL(nvmlDeviceGetHandleByIndex_v2(2, &d), 2);
}

/* Every row of the table is found at its version and flags if and only if the library exports
 * it. The driver is a newer one, because some of the functions are newer than CUDA 13.0. */
SIM_TEST_WITH(every_exported_entry_point_is_found_by_name_and_version,
              "SIMCUDA_NEWER=cuNoSuchThing")
{
        static const struct {
                const char *base, *symbol;
                int since;
                unsigned flags;
        } rows[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        {#base, #symbol, since, flags},
#include "cuda/cuda_api.def"
        };
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        unsigned found = 0;

        CHECK(library);
        OK(cuInit(0));
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                void *exported = dlsym(library, rows[i].symbol), *p = NULL;
                CUdriverProcAddressQueryResult status;
                cuuint64_t flags = rows[i].flags & CU_API_PTSZ ? 2 : 1;
                bool newer = false;

                if (!exported)
                        continue;
                /* Of two rows with the same name and version, the later one counts. */
                for (size_t k = i + 1; k < sizeof(rows) / sizeof(rows[0]); k++)
                        newer |= rows[k].since == rows[i].since && rows[k].flags == rows[i].flags &&
                                 strcmp(rows[k].base, rows[i].base) == 0 &&
                                 dlsym(library, rows[k].symbol);
                OK(cuGetProcAddress_v2(rows[i].base, &p, rows[i].since, flags, &status));
                if (!newer && p != exported)
                        unit_failed(__FILE__, __LINE__, rows[i].symbol, rows[i].since, status);
                found++;
        }
        CHECK(found > 250);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nvml_reports_memory_and_processes_of_the_session),
                cmocka_unit_test(a_forked_child_ends_nothing_of_its_parent),
                cmocka_unit_test(cuda_and_nvml_name_cards_alike),
                cmocka_unit_test(every_exported_entry_point_is_found_by_name_and_version),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
