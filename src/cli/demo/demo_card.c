/* demo_card.c: owns the figures that the demo gets from the driver: NVML's, and the counters of the
 * simulator. Must never use a figure that sublet reports. */
#include "cli/demo/demo.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/parts.h"

struct nvml_memory {
        unsigned long long total, free, used;
};

struct demo_nvml {
        void *library, *device;
        int (*memory)(void *device, struct nvml_memory *memory);
        int (*shutdown)(void);
};

int demo_nvml_open(const char *folder, const char *pci_bus_id, struct demo_nvml **ret)
{
        _cleanup_free_ struct demo_nvml *nvml = calloc(1, sizeof(*nvml));
        int (*init)(void), (*by_bus)(const char *id, void **device);
        char path[PATH_MAX];

        if (!nvml)
                return -ENOMEM;
        (void)snprintf(path, sizeof(path), "%s%slibnvidia-ml.so.1", folder ? folder : "",
                       folder ? "/" : "");
        nvml->library = dlopen(path, RTLD_NOW);
        if (!nvml->library)
                return -ENOENT;
        init = dlsym(nvml->library, "nvmlInit_v2");
        by_bus = dlsym(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2");
        nvml->memory = dlsym(nvml->library, "nvmlDeviceGetMemoryInfo");
        nvml->shutdown = dlsym(nvml->library, "nvmlShutdown");
        if (!init || !by_bus || !nvml->memory || !nvml->shutdown || init() != 0)
                return -ENOSYS;
        if (by_bus(pci_bus_id, &nvml->device) != 0) {
                (void)nvml->shutdown();
                return -ENODEV;
        }
        *ret = TAKE_PTR(nvml);
        return 0;
}

uint64_t demo_nvml_used(struct demo_nvml *nvml)
{
        struct nvml_memory memory;

        return nvml && nvml->memory(nvml->device, &memory) == 0 ? memory.used : DEMO_UNKNOWN;
}

void demo_nvml_close(struct demo_nvml *nvml)
{
        if (!nvml)
                return;
        (void)nvml->shutdown();
        (void)dlclose(nvml->library);
        free(nvml);
}

int demo_moved(const struct demo_stage *stage, uint64_t *ret_to_card, uint64_t *ret_to_host)
{
        char path[PATH_MAX], command[PATH_MAX + 64];
        json_t *stat, *device, *in, *out;
        FILE *pipe;
        int r = -EBADMSG;

        if (!stage->simulated || parts_find(PART_SIMULATOR_STAT, path) < 0)
                return -ENOENT;
        (void)snprintf(command, sizeof(command), "exec '%s' --json --session %s", path,
                       stage->session);
        pipe = popen(command, "re");
        if (!pipe)
                return -errno;
        stat = json_loadf(pipe, 0, NULL);
        if (pclose(pipe) != 0)
                r = -EIO;
        device = json_array_get(json_object_get(stat, "devices"), 0);
        in = json_object_get(device, "h2d_bytes");
        out = json_object_get(device, "d2h_bytes");
        if (r != -EIO && json_is_integer(in) && json_is_integer(out)) {
                *ret_to_card = (uint64_t)json_integer_value(in);
                *ret_to_host = (uint64_t)json_integer_value(out);
                r = 0;
        }
        json_decref(stat);
        return r;
}
