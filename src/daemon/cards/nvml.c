/* nvml.c: owns libnvidia-ml.so.1 and its few functions that we call. Must never trust a count that
 * exceeds the array it passed. ABI: docs.nvidia.com/deploy/nvml-api. */
#include "daemon/cards/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"

#define RESULT_SUCCESS 0
#define SCRATCH_MAX    4096u /* room for processes: with too little room NVML returns none */

struct memory_info {
        unsigned long long total, free, used;
};

struct utilization {
        unsigned gpu, memory;
};

/* _v2 and _v3 of the call share this layout; the first version ends after `used`. */
struct process_info {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
};

typedef void *device_handle;

/* FUNCTION(member, symbol, parameters) */
#define FUNCTIONS                                                                    \
        FUNCTION(init, nvmlInit_v2, (void))                                          \
        FUNCTION(count, nvmlDeviceGetCount_v2, (unsigned *))                         \
        FUNCTION(handle, nvmlDeviceGetHandleByIndex_v2, (unsigned, device_handle *)) \
        FUNCTION(uuid, nvmlDeviceGetUUID, (device_handle, char *, unsigned))         \
        FUNCTION(name, nvmlDeviceGetName, (device_handle, char *, unsigned))         \
        FUNCTION(memory, nvmlDeviceGetMemoryInfo, (device_handle, struct memory_info *))

struct nvml {
        void *library;
#define FUNCTION(member, symbol, params) int(*member) params;
        FUNCTIONS
#undef FUNCTION
        /* NULL: missing */
        int (*processes)(device_handle, unsigned *, struct process_info *);
        int (*utilization)(device_handle, struct utilization *);
        int (*compute_mode)(device_handle, int *);
        int (*link_generation)(device_handle, unsigned *);
        int (*link_width)(device_handle, unsigned *);
        int (*mig_mode)(device_handle, unsigned *, unsigned *);
        int (*mig_most)(device_handle, unsigned *);
        int (*mig_handle)(device_handle, unsigned, device_handle *);
        unsigned n;
        struct device {
                device_handle handle;
                device_handle gpu; /* of a MIG instance, the GPU that it is a part of */
                uint8_t uuid[16];
                char uuid_text[NVML_UUID_TEXT_MAX], name[NVML_NAME_MAX];
        } devices[SCHED_GPUS_MAX];
        struct process_info *scratch;
};

static int nvml_resolve(struct nvml *n)
{
#define FUNCTION(member, symbol, params)                               \
        n->member = (__typeof__(n->member))dlsym(n->library, #symbol); \
        if (!n->member) {                                              \
                log_warning("libnvidia-ml.so.1 has no " #symbol);      \
                return -ENOSYS;                                        \
        }
        FUNCTIONS
#undef FUNCTION
        n->processes = (__typeof__(n->processes))dlsym(n->library,
                                                       "nvmlDeviceGetComputeRunningProcesses_v3");
        if (!n->processes)
                n->processes = (__typeof__(n->processes))dlsym(
                        n->library, "nvmlDeviceGetComputeRunningProcesses_v2");
        n->utilization =
                (__typeof__(n->utilization))dlsym(n->library, "nvmlDeviceGetUtilizationRates");
        n->compute_mode =
                (__typeof__(n->compute_mode))dlsym(n->library, "nvmlDeviceGetComputeMode");
        n->link_generation = (__typeof__(n->link_generation))dlsym(
                n->library, "nvmlDeviceGetMaxPcieLinkGeneration");
        n->mig_mode = (__typeof__(n->mig_mode))dlsym(n->library, "nvmlDeviceGetMigMode");
        n->mig_most = (__typeof__(n->mig_most))dlsym(n->library, "nvmlDeviceGetMaxMigDeviceCount");
        n->mig_handle =
                (__typeof__(n->mig_handle))dlsym(n->library, "nvmlDeviceGetMigDeviceHandleByIndex");
        n->link_width =
                (__typeof__(n->link_width))dlsym(n->library, "nvmlDeviceGetMaxPcieLinkWidth");
        return 0;
}

/* Describes the card of ret->handle. False: the card does not answer, for instance because it has
 * fallen off the bus. */
static bool nvml_describe(const struct nvml *n, unsigned index, struct device *ret)
{
        if (n->uuid(ret->handle, ret->uuid_text, sizeof(ret->uuid_text)) != RESULT_SUCCESS ||
            nvml_parse_uuid(ret->uuid_text, ret->uuid) < 0)
                return false;
        if (n->name(ret->handle, ret->name, sizeof(ret->name)) != RESULT_SUCCESS)
                (void)snprintf(ret->name, sizeof(ret->name), "GPU %u", index);
        return true;
}

static void add_device(struct nvml *n, unsigned index, device_handle handle, device_handle gpu)
{
        struct device *d = &n->devices[n->n];

        *d = (struct device){.handle = handle, .gpu = gpu};
        if (nvml_describe(n, index, d))
                n->n++;
        else
                log_warning("NVML does not describe GPU %u: left out", index);
}

/* True if MIG is on. Programs then see the GPU's instances only. */
static bool has_mig(const struct nvml *n, device_handle gpu)
{
        unsigned now = 0, pending;

        return n->mig_mode && n->mig_most && n->mig_handle &&
               n->mig_mode(gpu, &now, &pending) == RESULT_SUCCESS && now == 1;
}

static void add_instances(struct nvml *n, unsigned index, device_handle gpu)
{
        unsigned most = 0;

        if (n->mig_most(gpu, &most) != RESULT_SUCCESS)
                log_warning("NVML does not list the MIG instances of GPU %u: left out", index);
        for (unsigned i = 0; i < most && n->n < ARRAY_SIZE(n->devices); i++) {
                device_handle instance;

                if (n->mig_handle(gpu, i, &instance) == RESULT_SUCCESS)
                        add_device(n, index, instance, gpu);
        }
}

static int nvml_start(struct nvml *n)
{
        unsigned count;
        int r = n->init();

        if (r != RESULT_SUCCESS) {
                log_info("NVML does not start (error %d): no driver is loaded", r);
                return -EIO;
        }
        if (n->count(&count) != RESULT_SUCCESS)
                return -EIO;
        for (unsigned i = 0; i < count && n->n < ARRAY_SIZE(n->devices); i++) {
                device_handle gpu;

                if (n->handle(i, &gpu) != RESULT_SUCCESS)
                        log_warning("NVML does not describe GPU %u: left out", i);
                else if (has_mig(n, gpu))
                        add_instances(n, i, gpu);
                else
                        add_device(n, i, gpu, gpu);
        }
        if (count > ARRAY_SIZE(n->devices))
                log_warning("only the first %zu GPUs are shared", ARRAY_SIZE(n->devices));
        return 0;
}

/* Loads and starts the library. After a failed start it stays loaded until the process ends. */
int nvml_open(struct nvml **ret)
{
        _cleanup_free_ struct nvml *n = calloc(1, sizeof(*n));
        int r;

        if (!n)
                return -ENOMEM;
        n->scratch = calloc(SCRATCH_MAX, sizeof(*n->scratch));
        if (!n->scratch)
                return -ENOMEM;
        n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        r = n->library ? nvml_resolve(n) : -ENOENT;
        if (r == 0)
                r = nvml_start(n);
        if (r == 0)
                *ret = TAKE_PTR(n);
        return r;
}

static void read_memory(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        struct memory_info info = {0};

        ret->measured = n->memory(d->handle, &info) == RESULT_SUCCESS;
        ret->total_bytes = info.total;
        /* Memory that the driver keeps for itself is neither free nor, in newer releases, used. */
        ret->used_bytes = sub_sat(info.total, info.free);
}

/* Reads the link's greatest generation and width, because an idle card lowers them. Copies reach
 * four fifths of what the link carries: 25 GB/s of 32 in generation 4, 50 of 63 in generation 5. */
static void read_bus(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        static const uint64_t lane_mb_s[] = {0, 250, 500, 985, 1969, 3938, 7563};
        unsigned generation = 0, width = 0;

        ret->bus_bytes_s = 0;
        if (!n->link_generation || !n->link_width ||
            n->link_generation(d->gpu, &generation) != RESULT_SUCCESS ||
            n->link_width(d->gpu, &width) != RESULT_SUCCESS ||
            generation >= ARRAY_SIZE(lane_mb_s) || width > 32)
                return;
        ret->bus_bytes_s = lane_mb_s[generation] * width * 800000;
}

/* NVML knows no utilization of MIG instances. */
static void read_utilization(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        struct utilization rates;

        ret->utilization = -1;
        if (n->utilization && n->utilization(d->handle, &rates) == RESULT_SUCCESS &&
            rates.gpu <= 100)
                ret->utilization = (int)rates.gpu;
}

/* A MIG instance has the mode of its GPU. */
static void read_compute_mode(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        int mode = COMPUTE_MODE_UNKNOWN;

        ret->compute_mode = COMPUTE_MODE_UNKNOWN;
        if (n->compute_mode && n->compute_mode(d->gpu, &mode) == RESULT_SUCCESS &&
            mode >= COMPUTE_MODE_DEFAULT && mode <= COMPUTE_MODE_EXCLUSIVE_PROCESS)
                ret->compute_mode = (enum compute_mode)mode;
}

static void read_processes(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        unsigned count = SCRATCH_MAX;

        ret->listed = n->processes && n->processes(d->handle, &count, n->scratch) == RESULT_SUCCESS;
        ret->n_processes = ret->listed ? MIN(count, NVML_PROCESSES_MAX) : 0;
        for (unsigned i = 0; i < ret->n_processes; i++)
                ret->processes[i] = (struct nvml_process){n->scratch[i].pid, n->scratch[i].used};
}

void nvml_read(const struct nvml *n, struct nvml_look *ret)
{
        ret->n = n->n;
        for (unsigned i = 0; i < n->n; i++) {
                const struct device *d = &n->devices[i];
                struct nvml_card *card = &ret->cards[i];

                memcpy(card->uuid, d->uuid, sizeof(card->uuid));
                memcpy(card->uuid_text, d->uuid_text, sizeof(card->uuid_text));
                memcpy(card->name, d->name, sizeof(card->name));
                read_memory(n, d, card);
                read_bus(n, d, card);
                read_utilization(n, d, card);
                read_compute_mode(n, d, card);
                read_processes(n, d, card);
        }
}

const char *nvml_compute_mode_name(enum compute_mode mode)
{
        switch (mode) {
        case COMPUTE_MODE_DEFAULT:
                return "default";
        case COMPUTE_MODE_EXCLUSIVE_THREAD:
                return "exclusive_thread";
        case COMPUTE_MODE_PROHIBITED:
                return "prohibited";
        case COMPUTE_MODE_EXCLUSIVE_PROCESS:
                return "exclusive_process";
        case COMPUTE_MODE_UNKNOWN:
                break;
        }
        return NULL;
}

int nvml_parse_uuid(const char *text, uint8_t ret_uuid[static 16])
{
        uint8_t uuid[16] = {0};
        unsigned digits = 0;

        if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
                text += 4;
        for (; *text; text++) {
                unsigned digit;

                if (*text == '-')
                        continue;
                if (!isxdigit((unsigned char)*text) || digits == 32)
                        return -EINVAL;
                digit = (unsigned)(isdigit((unsigned char)*text)
                                           ? *text - '0'
                                           : tolower((unsigned char)*text) - 'a' + 10);
                uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | digit);
                digits++;
        }
        if (digits != 32)
                return -EINVAL;
        memcpy(ret_uuid, uuid, sizeof(uuid));
        return 0;
}

void nvml_format_uuid(const uint8_t uuid[static 16], char ret_text[static NVML_UUID_TEXT_MAX])
{
        char *p = ret_text;

        p += snprintf(p, 8, "GPU-");
        for (unsigned i = 0; i < 16; i++)
                p += snprintf(p, 8, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                              uuid[i]);
}
