/* nvml.c: owns libnvidia-ml.so.1 and the few of its functions that we call.
 * Must never trust a count it was not given room for. ABI: docs.nvidia.com/deploy/nvml-api. */
#include "daemon/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/macros.h"

#define RESULT_SUCCESS           0
#define RESULT_NOT_SUPPORTED     3
#define RESULT_INSUFFICIENT_SIZE 7
#define PROCESSES_MAX            4096u

struct memory_info {
        unsigned long long total, free, used;
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
        FUNCTION(shutdown, nvmlShutdown, (void))                                     \
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
        int (*processes)(device_handle, unsigned *, struct process_info *); /* may be NULL */
        unsigned count_now;
        device_handle *devices;
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
        return 0;
}

static int nvml_start(struct nvml *n)
{
        int r = n->init();

        if (r != RESULT_SUCCESS) {
                log_info("NVML does not start (error %d): no driver is loaded", r);
                return -EIO;
        }
        if (n->count(&n->count_now) != RESULT_SUCCESS)
                n->count_now = 0;
        n->devices = calloc(n->count_now + 1u, sizeof(*n->devices));
        n->scratch = calloc(PROCESSES_MAX, sizeof(*n->scratch));
        if (!n->devices || !n->scratch) {
                (void)n->shutdown();
                return -ENOMEM;
        }
        for (unsigned i = 0; i < n->count_now; i++)
                if (n->handle(i, &n->devices[i]) != RESULT_SUCCESS)
                        n->devices[i] = NULL; /* a card that has fallen off the bus */
        return 0;
}

static void nvml_free(struct nvml *n)
{
        if (n->library)
                (void)dlclose(n->library);
        free(n->devices);
        free(n->scratch);
        free(n);
}

int nvml_open(struct nvml **ret)
{
        struct nvml *n = calloc(1, sizeof(*n));
        int r;

        if (!n)
                return -ENOMEM;
        n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        r = n->library ? nvml_resolve(n) : -ENOENT;
        if (r == 0)
                r = nvml_start(n);
        if (r < 0) {
                nvml_free(n);
                return r;
        }
        *ret = n;
        return 0;
}

void nvml_close(struct nvml *n)
{
        if (!n)
                return;
        (void)n->shutdown();
        nvml_free(n);
}

unsigned nvml_count(const struct nvml *n)
{
        return n->count_now;
}

int nvml_describe(const struct nvml *n, unsigned gpu, char ret_uuid[static NVML_UUID_TEXT_MAX],
                  char ret_name[static NVML_NAME_MAX])
{
        if (gpu >= n->count_now || !n->devices[gpu])
                return -ENODEV;
        if (n->uuid(n->devices[gpu], ret_uuid, NVML_UUID_TEXT_MAX) != RESULT_SUCCESS)
                return -EIO;
        if (n->name(n->devices[gpu], ret_name, NVML_NAME_MAX) != RESULT_SUCCESS)
                (void)snprintf(ret_name, NVML_NAME_MAX, "GPU %u", gpu);
        return 0;
}

int nvml_memory(const struct nvml *n, unsigned gpu, uint64_t *ret_total, uint64_t *ret_used)
{
        struct memory_info info = {0};

        if (gpu >= n->count_now || !n->devices[gpu])
                return -ENODEV;
        if (n->memory(n->devices[gpu], &info) != RESULT_SUCCESS)
                return -EIO;
        *ret_total = info.total;
        /* What the driver keeps for itself is neither free nor, in newer releases, used. */
        *ret_used = sub_sat(info.total, info.free);
        return 0;
}

int nvml_processes(const struct nvml *n, unsigned gpu, unsigned max, struct nvml_process *ret_list,
                   unsigned *ret_n)
{
        unsigned count = PROCESSES_MAX;
        int r;

        if (gpu >= n->count_now || !n->devices[gpu])
                return -ENODEV;
        if (!n->processes)
                return -ENODATA;
        r = n->processes(n->devices[gpu], &count, n->scratch);
        if (r == RESULT_NOT_SUPPORTED)
                return -ENODATA;
        if (r != RESULT_SUCCESS)
                return -EIO;
        count = MIN(count, MIN(max, PROCESSES_MAX));
        for (unsigned i = 0; i < count; i++)
                ret_list[i] = (struct nvml_process){n->scratch[i].pid, n->scratch[i].used};
        *ret_n = count;
        return 0;
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
