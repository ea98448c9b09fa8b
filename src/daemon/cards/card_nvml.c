/* card_nvml.c: owns what NVML says about the cards. Must never trust a count that exceeds the array
 * it passed. */
#include "daemon/cards/card_nvml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/uuid.h"
#include "nvml/nvml_library.h"

#define SCRATCH_MAX 4096u /* room for processes: with too little room NVML returns none */

struct nvml {
        struct nvml_library library;
        unsigned n;
        struct device {
                nvmlDevice_t handle;
                nvmlDevice_t gpu; /* the GPU that a MIG instance is a part of */
                uint8_t uuid[16];
                char uuid_text[NVML_UUID_TEXT_MAX], name[NVML_NAME_MAX];
        } devices[SCHED_GPUS_MAX];
        nvmlProcessInfo_t *scratch;
};

/* Describes the card of ret->handle. False: the card does not answer, for instance because it has
 * fallen off the bus. */
static bool nvml_describe(const struct nvml *n, unsigned index, struct device *ret)
{
        if (n->library.nvmlDeviceGetUUID(ret->handle, ret->uuid_text, sizeof(ret->uuid_text)) !=
                    NVML_SUCCESS ||
            uuid_parse(ret->uuid_text, ret->uuid) < 0)
                return false;
        if (n->library.nvmlDeviceGetName(ret->handle, ret->name, sizeof(ret->name)) != NVML_SUCCESS)
                (void)snprintf(ret->name, sizeof(ret->name), "GPU %u", index);
        return true;
}

static void add_device(struct nvml *n, unsigned index, nvmlDevice_t handle, nvmlDevice_t gpu)
{
        struct device *d = &n->devices[n->n];

        *d = (struct device){.handle = handle, .gpu = gpu};
        if (nvml_describe(n, index, d))
                n->n++;
        else
                log_warning("NVML does not describe GPU %u: left out", index);
}

/* True if MIG is on. Programs then see the GPU's instances only. */
static bool has_mig(const struct nvml *n, nvmlDevice_t gpu)
{
        unsigned now = 0, pending;

        return n->library.nvmlDeviceGetMigMode(gpu, &now, &pending) == NVML_SUCCESS &&
               now == NVML_DEVICE_MIG_ENABLE;
}

static void add_instances(struct nvml *n, unsigned index, nvmlDevice_t gpu)
{
        unsigned most = 0;

        if (n->library.nvmlDeviceGetMaxMigDeviceCount(gpu, &most) != NVML_SUCCESS)
                log_warning("NVML does not list the MIG instances of GPU %u: left out", index);
        for (unsigned i = 0; i < most && n->n < ARRAY_SIZE(n->devices); i++) {
                nvmlDevice_t instance;

                if (n->library.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &instance) ==
                    NVML_SUCCESS)
                        add_device(n, index, instance, gpu);
        }
}

static int nvml_start(struct nvml *n)
{
        unsigned count;
        int r = n->library.nvmlInit_v2();

        if (r != NVML_SUCCESS) {
                log_info("NVML does not start (error %d): no driver is loaded", r);
                return -EIO;
        }
        if (n->library.nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
                return -EIO;
        for (unsigned i = 0; i < count && n->n < ARRAY_SIZE(n->devices); i++) {
                nvmlDevice_t gpu;

                if (n->library.nvmlDeviceGetHandleByIndex_v2(i, &gpu) != NVML_SUCCESS)
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
        r = nvml_library_load(NULL, &n->library);
        if (r == 0)
                r = nvml_start(n);
        if (r == 0)
                *ret = TAKE_PTR(n);
        return r;
}

static void read_memory(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        nvmlMemory_t info = {0};

        ret->measured = n->library.nvmlDeviceGetMemoryInfo(d->handle, &info) == NVML_SUCCESS;
        ret->total_bytes = info.total;
        /* Memory that the driver keeps for itself is neither free nor, in newer releases, used. */
        ret->used_bytes = sub_sat(info.total, info.free);
}

/* NVML knows no utilization of MIG instances. */
static void read_utilization(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        nvmlUtilization_t rates;

        ret->utilization = -1;
        if (n->library.nvmlDeviceGetUtilizationRates(d->handle, &rates) == NVML_SUCCESS &&
            rates.gpu <= 100)
                ret->utilization = (int)rates.gpu;
}

/* A MIG instance has the mode of its GPU. */
static void read_compute_mode(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        int mode = COMPUTE_MODE_UNKNOWN;

        ret->compute_mode = COMPUTE_MODE_UNKNOWN;
        if (n->library.nvmlDeviceGetComputeMode(d->gpu, &mode) == NVML_SUCCESS &&
            mode >= COMPUTE_MODE_DEFAULT && mode <= COMPUTE_MODE_EXCLUSIVE_PROCESS)
                ret->compute_mode = (enum compute_mode)mode;
}

static void read_processes(const struct nvml *n, const struct device *d, struct nvml_card *ret)
{
        unsigned count = SCRATCH_MAX;

        ret->listed = n->library.nvmlDeviceGetComputeRunningProcesses_v3(
                              d->handle, &count, n->scratch) == NVML_SUCCESS;
        ret->n_processes = ret->listed ? MIN(count, NVML_PROCESSES_MAX) : 0;
        for (unsigned i = 0; i < ret->n_processes; i++)
                ret->processes[i] =
                        (struct nvml_process){n->scratch[i].pid, n->scratch[i].usedGpuMemory};
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
                card->bus_bytes_s = nvml_bus_bytes_s(&n->library, d->gpu);
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
