/* nvml.c: the part of NVML that monitors and daemons use, answered from the session's segment.
 * Needs no CUDA and takes no memory of a card. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "nvml/nvml_abi.h"
#include "sim/nvml/nvml_session.h"
#include "sim/rm/guard.h"
#include "sim/session/fault.h"
#include "sim/session/identity.h"
#include "sim/session/session.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct {
        unsigned int version;
        unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
        unsigned int pid;
        unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

struct nvmlGpmSample_st {
        bool taken;
        unsigned index;
        uint64_t ns, kernel_ns, h2d_bytes, d2h_bytes;
};

#define NVML_MEMORY_V2 (sizeof(nvmlMemory_v2_t) | (2u << 24))

/* The functions that sublet calls, and others that monitors call. */
#define NVML(symbol, params) EXPORT nvmlReturn_t symbol params;
#include "nvml/nvml_api.def"
NVML(nvmlInit, (void))
NVML(nvmlInitWithFlags, (unsigned flags))
NVML(nvmlDeviceGetCount, (unsigned *count))
NVML(nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *device))
NVML(nvmlDeviceGetHandleByPciBusId, (const char *id, nvmlDevice_t *device))
NVML(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t device, nvmlMemory_v2_t *memory))
NVML(nvmlDeviceGetComputeRunningProcesses,
     (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos))
NVML(nvmlDeviceGetMPSComputeRunningProcesses_v3,
     (nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos))
NVML(nvmlDeviceGetIndex, (nvmlDevice_t device, unsigned *index))
NVML(nvmlDeviceGetMinorNumber, (nvmlDevice_t device, unsigned *minor))
NVML(nvmlDeviceGetPciInfo_v3, (nvmlDevice_t device, nvmlPciInfo_t *pci))
NVML(nvmlSystemGetNVMLVersion, (char *version, unsigned length))
NVML(nvmlSystemGetCudaDriverVersion, (int *version))
NVML(nvmlSystemGetCudaDriverVersion_v2, (int *version))
#undef NVML
EXPORT const char *nvmlErrorString(nvmlReturn_t result);

static struct {
        pthread_mutex_t lock;
        struct session *session; /* joined at the first nvmlInit, left when the process ends */
        pid_t pid;               /* the process that joined, which may be the parent */
        unsigned users;
        uint64_t looked_ns[SESSION_DEVICES], kernel_ns[SESSION_DEVICES]; /* at the last look */
        unsigned utilization[SESSION_DEVICES];
} nvml = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns the session, or NULL without nvmlInit. */
static struct session *nvml_enter(void)
{
        struct session *s;

        pthread_mutex_lock(&nvml.lock);
        s = nvml.users ? nvml.session : NULL;
        pthread_mutex_unlock(&nvml.lock);
        return s;
}

/* Handles are numbers: 1, 2, ... for GPUs, and INSTANCE + 1, ... for the MIG instances of all. */
#define INSTANCE 0x100u

static unsigned gpu_count(const struct session *s)
{
        return session_device_count(s) / MAX(session_mig(s), 1u);
}

/* Returns the number of the session's devices that are behind the handle. */
static unsigned device_parts(const struct session *s, nvmlDevice_t device)
{
        return (uintptr_t)device > INSTANCE ? 1 : MAX(session_mig(s), 1u);
}

/* Checks a handle. *ret_index: the session's number of the device, or of its first instance. */
static nvmlReturn_t device_enter(nvmlDevice_t device, struct session **ret_session,
                                 unsigned *ret_index)
{
        struct session *s = nvml_enter();
        uintptr_t n = (uintptr_t)device;

        if (!s)
                return NVML_ERROR_UNINITIALIZED;
        if (n > INSTANCE && session_mig(s))
                n -= INSTANCE;
        else if (n > gpu_count(s))
                return NVML_ERROR_INVALID_ARGUMENT;
        else if (n)
                n = (n - 1) * MAX(session_mig(s), 1u) + 1;
        if (n == 0 || n > session_device_count(s))
                return NVML_ERROR_INVALID_ARGUMENT;
        if (session_device(s, (unsigned)(n - 1))->lost)
                return NVML_ERROR_GPU_IS_LOST;
        *ret_session = s;
        *ret_index = (unsigned)(n - 1);
        return NVML_SUCCESS;
}

static void lose_card(void)
{
        struct session *s = nvml_enter();

        if (s)
                session_device(s, 0)->lost = true;
}

static const struct fault_acts acts = {.lose_card = lose_card};

static nvmlReturn_t text_out(const char *text, char *to, unsigned length)
{
        if (!to)
                return NVML_ERROR_INVALID_ARGUMENT;
        if (strlen(text) >= length)
                return NVML_ERROR_INSUFFICIENT_SIZE;
        strcpy(to, text);
        return NVML_SUCCESS;
}

/* Needs the lock. */
static int join(void)
{
        int r = nvml.session ? 0 : fault_setup(&acts); /* a child of fork() has the faults */

        if (r == 0)
                r = session_join(false, &nvml.session);
        if (r == 0)
                nvml.pid = getpid();
        return r;
}

int nvml_join(struct session **ret_session)
{
        int r = 0;

        pthread_mutex_lock(&nvml.lock);
        if (!nvml.session || nvml.pid != getpid())
                r = join();
        if (r == 0)
                *ret_session = nvml.session;
        pthread_mutex_unlock(&nvml.lock);
        return r;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
        nvmlReturn_t r = NVML_SUCCESS;

        pthread_mutex_lock(&nvml.lock);
        if (!nvml.session && join() < 0)
                r = NVML_ERROR_DRIVER_NOT_LOADED;
        else
                r = (nvmlReturn_t)fault_check(__func__);
        nvml.users += r == NVML_SUCCESS;
        pthread_mutex_unlock(&nvml.lock);
        return r;
}

EXPORT nvmlReturn_t nvmlInit(void)
{
        return nvmlInit_v2();
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
        return nvmlInit_v2();
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
        nvmlReturn_t r = NVML_ERROR_UNINITIALIZED;

        pthread_mutex_lock(&nvml.lock);
        if (nvml.users) {
                nvml.users--;
                r = NVML_SUCCESS;
        }
        pthread_mutex_unlock(&nvml.lock);
        return r;
}

__attribute__((destructor)) static void nvml_leave(void)
{
        guard_leave();
        if (nvml.session)
                session_leave(nvml.session);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
        switch (result) {
        case NVML_SUCCESS:
                return "Success";
        case NVML_ERROR_UNINITIALIZED:
                return "Uninitialized";
        case NVML_ERROR_INVALID_ARGUMENT:
                return "Invalid Argument";
        case NVML_ERROR_NOT_SUPPORTED:
                return "Not Supported";
        case NVML_ERROR_NOT_FOUND:
                return "Not Found";
        case NVML_ERROR_INSUFFICIENT_SIZE:
                return "Insufficient Size";
        case NVML_ERROR_DRIVER_NOT_LOADED:
                return "Driver Not Loaded";
        case NVML_ERROR_FUNCTION_NOT_FOUND:
                return "Function Not Found";
        case NVML_ERROR_GPU_IS_LOST:
                return "GPU is lost";
        case NVML_ERROR_UNKNOWN:
                break;
        }
        return "Unknown Error";
}

/* ---- the system ---- */

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
        return nvml_enter() ? text_out(IDENTITY_DRIVER, version, length) : NVML_ERROR_UNINITIALIZED;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
        return text_out("13." IDENTITY_DRIVER, version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
        if (!version)
                return NVML_ERROR_INVALID_ARGUMENT;
        *version = IDENTITY_CUDA;
        return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
        return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
        struct session *s = nvml_enter();

        if (!s)
                return NVML_ERROR_UNINITIALIZED;
        if (!count)
                return NVML_ERROR_INVALID_ARGUMENT;
        *count = gpu_count(s);
        return (nvmlReturn_t)fault_check(__func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
        return nvmlDeviceGetCount_v2(count);
}

/* ---- devices ---- */

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
        struct session *s = nvml_enter();

        if (!s)
                return NVML_ERROR_UNINITIALIZED;
        if (!device || index >= gpu_count(s))
                return NVML_ERROR_INVALID_ARGUMENT;
        *device = (nvmlDevice_t)(uintptr_t)(index + 1);
        return (nvmlReturn_t)fault_check(__func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
        return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
        char text[48];
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);

        if (r != NVML_SUCCESS)
                return r;
        if ((uintptr_t)device > INSTANCE)
                session_uuid_text("MIG", session_device(s, index)->uuid, text);
        else
                session_uuid_text("GPU", session_gpu_uuid(s, index / MAX(session_mig(s), 1u)),
                                  text);
        return text_out(text, uuid, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
        struct session *s = nvml_enter();

        if (!s)
                return NVML_ERROR_UNINITIALIZED;
        if (!uuid || !device)
                return NVML_ERROR_INVALID_ARGUMENT;
        for (unsigned i = 0; i < gpu_count(s); i++) {
                char text[48];

                session_uuid_text("GPU", session_gpu_uuid(s, i), text);
                if (strcmp(text, uuid) == 0)
                        return nvmlDeviceGetHandleByIndex_v2(i, device);
        }
        for (unsigned i = 0; session_mig(s) && i < session_device_count(s); i++) {
                char text[48];

                session_uuid_text("MIG", session_device(s, i)->uuid, text);
                if (strcmp(text, uuid) == 0) {
                        *device = (nvmlDevice_t)(uintptr_t)(INSTANCE + i + 1);
                        return NVML_SUCCESS;
                }
        }
        return NVML_ERROR_NOT_FOUND;
}

/* ---- MIG ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *now, unsigned *pending)
{
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);

        if (r != NVML_SUCCESS)
                return r;
        if (!now || !pending || (uintptr_t)device > INSTANCE)
                return NVML_ERROR_INVALID_ARGUMENT;
        *now = *pending = session_mig(s) > 0;
        return NVML_SUCCESS;
}

/* As on a real card, the greatest possible number, not the number that exists. */
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count)
{
        unsigned index;
        nvmlReturn_t r = nvmlDeviceGetIndex(device, &index);

        if (r == NVML_SUCCESS && count)
                *count = 7;
        return r != NVML_SUCCESS || count ? r : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                        nvmlDevice_t *ret)
{
        struct session *s;
        unsigned first;
        nvmlReturn_t r = device_enter(device, &s, &first);

        if (r != NVML_SUCCESS)
                return r;
        if (!ret || index >= 7 || (uintptr_t)device > INSTANCE)
                return NVML_ERROR_INVALID_ARGUMENT;
        if (index >= session_mig(s))
                return NVML_ERROR_NOT_FOUND;
        *ret = (nvmlDevice_t)(uintptr_t)(INSTANCE + first + index + 1);
        return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
        struct session *s = nvml_enter();
        unsigned domain, bus, slot;

        if (!s)
                return NVML_ERROR_UNINITIALIZED;
        if (!id || !device || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
                return NVML_ERROR_INVALID_ARGUMENT;
        if (domain || slot || bus < IDENTITY_PCI_BUS || bus - IDENTITY_PCI_BUS >= gpu_count(s))
                return NVML_ERROR_NOT_FOUND;
        return nvmlDeviceGetHandleByIndex_v2(bus - IDENTITY_PCI_BUS, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device)
{
        return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);

        return r != NVML_SUCCESS ? r : text_out(IDENTITY_NAME, name, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
        struct session *s;
        unsigned i;
        nvmlReturn_t r = device_enter(device, &s, &i);

        if (r != NVML_SUCCESS)
                return r;
        if (!index)
                return NVML_ERROR_INVALID_ARGUMENT;
        *index = i / MAX(session_mig(s), 1u);
        return NVML_SUCCESS;
}

/* Reads the text of the setting from a file, so that a test can change it while others look. */
static const char *read_setting(const char *path, char *line, int size)
{
        FILE *f = fopen(path, "re");

        if (!f || !fgets(line, size, f))
                line[0] = '\0';
        if (f)
                (void)fclose(f);
        return line;
}

/* Returns the compute mode that SIMCUDA_COMPUTE_MODE names. The simulated driver ignores it. */
EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode)
{
        const char *setting = getenv("SIMCUDA_COMPUTE_MODE"), *comma;
        char line[64];
        unsigned index;
        nvmlReturn_t r = nvmlDeviceGetIndex(device, &index);

        if (r != NVML_SUCCESS || !mode)
                return r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT;
        if (setting && setting[0] == '/')
                setting = read_setting(setting, line, sizeof(line));
        for (; setting && index > 0 && (comma = strchr(setting, ',')); index--)
                setting = comma + 1;
        *mode = setting ? atoi(setting) : 0;
        return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
        return nvmlDeviceGetIndex(device, minor);
}

/* Every simulated link has 16 lanes. Its generation is the first that carries the rate of
 * SIMCUDA_BUS. */
EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation)
{
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);

        if (r != NVML_SUCCESS)
                return r;
        if (!generation)
                return NVML_ERROR_INVALID_ARGUMENT;
        *generation = 1;
        while (*generation < 6 && UINT64_C(4000000000) << (*generation - 1) <
                                          session_device(s, index)->bus_bytes_per_s)
                (*generation)++;
        return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *width)
{
        nvmlReturn_t r = nvmlDeviceGetIndex(device, width);

        if (r == NVML_SUCCESS)
                *width = 16;
        return r;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);

        if (r != NVML_SUCCESS)
                return r;
        if (!pci)
                return NVML_ERROR_INVALID_ARGUMENT;
        *pci = (nvmlPciInfo_t){.bus = IDENTITY_PCI_BUS + index / MAX(session_mig(s), 1u)};
        (void)snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus);
        (void)snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus);
        return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);

        if (r != NVML_SUCCESS)
                return r;
        if (!memory)
                return NVML_ERROR_INVALID_ARGUMENT;
        memory->total = memory->used = 0;
        for (unsigned i = index; i < index + device_parts(s, device); i++) {
                memory->total += session_device(s, i)->total;
                memory->used += session_used(s, i);
        }
        memory->free = sub_sat(memory->total, memory->used);
        return (nvmlReturn_t)fault_check(__func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
        nvmlMemory_t m;
        nvmlReturn_t r;

        if (!memory || memory->version != NVML_MEMORY_V2)
                return NVML_ERROR_INVALID_ARGUMENT;
        r = nvmlDeviceGetMemoryInfo(device, &m);
        if (r != NVML_SUCCESS)
                return r;
        memory->total = m.total;
        memory->used = m.used;
        memory->free = m.free;
        memory->reserved = 0;
        return NVML_SUCCESS;
}

static uint64_t kernel_ns(const struct session *s, unsigned index)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < SESSION_SLOTS; i++)
                sum += atomic_load(&session_slot(s, i)->device[index].kernel_ns);
        return sum;
}

/* The figure covers the time since this process's last look, at least 0.1 s. As on a real card, MIG
 * instances have no figure. */
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);
        uint64_t now = clock_now_ns(), sum, passed;

        if (r != NVML_SUCCESS)
                return r;
        if (session_mig(s))
                return NVML_ERROR_NOT_SUPPORTED;
        if (!rates)
                return NVML_ERROR_INVALID_ARGUMENT;
        pthread_mutex_lock(&nvml.lock);
        passed = now - nvml.looked_ns[index];
        if (passed >= 100 * NSEC_PER_MSEC) {
                sum = kernel_ns(s, index);
                if (nvml.looked_ns[index])
                        nvml.utilization[index] = (unsigned)MIN(
                                100 * sub_sat(sum, nvml.kernel_ns[index]) / passed, UINT64_C(100));
                nvml.looked_ns[index] = now;
                nvml.kernel_ns[index] = sum;
        }
        *rates = (nvmlUtilization_t){.gpu = nvml.utilization[index]};
        pthread_mutex_unlock(&nvml.lock);
        return NVML_SUCCESS;
}

/* ---- performance (GPM), power, clock ---- */

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
        nvmlUtilization_t rates;
        nvmlReturn_t r = milliwatts ? nvmlDeviceGetUtilizationRates(device, &rates)
                                    : NVML_ERROR_INVALID_ARGUMENT;

        if (r == NVML_SUCCESS)
                *milliwatts = 100000 + rates.gpu * 5000;
        return r;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *mhz)
{
        unsigned index;
        nvmlReturn_t r = nvmlDeviceGetIndex(device, &index);

        if (r != NVML_SUCCESS || !mhz)
                return r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT;
        *mhz = type == 2 ? 3201 : 1980;
        return NVML_SUCCESS;
}

/* SIMCUDA_GPM=0 simulates a card older than Hopper. */
EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
        const char *setting = getenv("SIMCUDA_GPM");
        unsigned index;
        nvmlReturn_t r = nvmlDeviceGetIndex(device, &index);

        if (r != NVML_SUCCESS)
                return r;
        if (!support || support->version != 1)
                return NVML_ERROR_INVALID_ARGUMENT;
        support->isSupportedDevice = !setting || strcmp(setting, "0") != 0;
        return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
        if (!sample)
                return NVML_ERROR_INVALID_ARGUMENT;
        *sample = calloc(1, sizeof(**sample));
        return *sample ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
        free(sample);
        return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
        struct session_totals totals;
        struct session *s;
        unsigned index;
        nvmlReturn_t r = device_enter(device, &s, &index);

        if (r == NVML_SUCCESS)
                r = (nvmlReturn_t)fault_check(__func__);
        if (r != NVML_SUCCESS || !sample)
                return r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT;
        session_totals(s, index, &totals);
        *sample = (struct nvmlGpmSample_st){.taken = true,
                                            .index = index,
                                            .ns = clock_now_ns(),
                                            .kernel_ns = kernel_ns(s, index),
                                            .h2d_bytes = totals.h2d_bytes,
                                            .d2h_bytes = totals.d2h_bytes};
        return NVML_SUCCESS;
}

/* The interpreter has no units of a processor: each metric is a fixed part of the time in which
 * kernels ran. */
EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
        static const struct {
                unsigned id;
                double part;
        } parts[] = {{1, 1},     {2, 0.75}, {3, 0.5},   {4, 0.125},  {5, 0},
                     {10, 0.25}, {11, 0},   {12, 0.25}, {13, 0.0625}};
        double ns, busy;

        if (!get || get->version != 1 || !get->sample1 || !get->sample2 || !get->sample1->taken ||
            !get->sample2->taken || get->sample2->ns <= get->sample1->ns)
                return NVML_ERROR_INVALID_ARGUMENT;
        ns = (double)(get->sample2->ns - get->sample1->ns);
        busy = MIN((double)sub_sat(get->sample2->kernel_ns, get->sample1->kernel_ns) / ns, 1.0);
        for (unsigned i = 0; i < get->numMetrics; i++) {
                nvmlGpmMetric_t *m = &get->metrics[i];

                m->nvmlReturn = NVML_SUCCESS;
                if (m->metricId == 20)
                        m->value =
                                (double)sub_sat(get->sample2->d2h_bytes, get->sample1->d2h_bytes) *
                                1e9 / ns / (double)MIB;
                else if (m->metricId == 21)
                        m->value =
                                (double)sub_sat(get->sample2->h2d_bytes, get->sample1->h2d_bytes) *
                                1e9 / ns / (double)MIB;
                else
                        m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
                for (unsigned k = 0; k < ARRAY_SIZE(parts); k++)
                        if (parts[k].id == m->metricId) {
                                m->value = 100 * busy * parts[k].part;
                                m->nvmlReturn = NVML_SUCCESS;
                        }
        }
        return NVML_SUCCESS;
}

static void list_processes(struct session *s, unsigned index, bool mps, unsigned room,
                           unsigned *found, nvmlProcessInfo_t *ret)
{
        unsigned mig = session_mig(s);

        for (unsigned i = 0; i < SESSION_SLOTS; i++) {
                const struct session_slot *slot = session_slot(s, i);
                const struct session_use *use = &slot->device[index];

                if (atomic_load(&slot->state) != SLOT_LIVE || !atomic_load(&slot->cuda) ||
                    !atomic_load(&use->contexts) || (mps && !atomic_load(&slot->mps)))
                        continue;
                if (*found < room)
                        ret[*found] = (nvmlProcessInfo_t){
                                .pid = (unsigned)slot->pid,
                                /* NVML counts managed memory for the card, not for a process. */
                                .usedGpuMemory = sub_sat(atomic_load(&use->used),
                                                         atomic_load(&use->managed)),
                                .gpuInstanceId = mig ? index % mig + 1 : UINT32_MAX,
                                .computeInstanceId = mig ? 0 : UINT32_MAX};
                (*found)++;
        }
}

static nvmlReturn_t running_processes(const char *function, nvmlDevice_t device, bool mps,
                                      unsigned *count, nvmlProcessInfo_t *infos)
{
        unsigned index, found = 0, room;
        struct session *s;
        nvmlReturn_t r = device_enter(device, &s, &index);

        if (r == NVML_SUCCESS)
                r = (nvmlReturn_t)fault_check(function);
        if (r != NVML_SUCCESS)
                return r;
        if (!count || (*count && !infos))
                return NVML_ERROR_INVALID_ARGUMENT;
        room = *count;
        session_reap(s);
        for (unsigned i = index; i < index + device_parts(s, device); i++)
                list_processes(s, i, mps, room, &found, infos);
        *count = found;
        return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* As on a real card, a client of MPS is in both lists. */
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *infos)
{
        return running_processes(__func__, device, false, count, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                               nvmlProcessInfo_t *infos)
{
        return running_processes(__func__, device, true, count, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_t *infos)
{
        return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                         nvmlProcessInfo_v1_t *infos)
{
        nvmlProcessInfo_t wide[SESSION_SLOTS];
        unsigned found = ARRAY_SIZE(wide), room;
        nvmlReturn_t r;

        if (!count || (*count && !infos))
                return NVML_ERROR_INVALID_ARGUMENT;
        room = *count;
        r = nvmlDeviceGetComputeRunningProcesses_v3(device, &found, wide);
        if (r != NVML_SUCCESS)
                return r;
        for (unsigned i = 0; i < MIN(found, room); i++)
                infos[i] = (nvmlProcessInfo_v1_t){wide[i].pid, wide[i].usedGpuMemory};
        *count = found;
        return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
