/* demo_card.c: owns the figures that the demo gets from the driver: NVML's, and the counters of the
 * simulator. Must never use a figure that sublet reports. */
#include "lab/demo/demo.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "client/common/part_paths.h"
#include "nvml/nvml_library.h"

struct demo_nvml {
        struct nvml_library library;
        nvmlDevice_t device;
};

int demo_nvml_open(const char *folder, const char *pci_bus_id, struct demo_nvml **ret)
{
        _cleanup_free_ struct demo_nvml *nvml = calloc(1, sizeof(*nvml));

        if (!nvml)
                return -ENOMEM;
        if (nvml_library_load(folder, &nvml->library) < 0)
                return -ENOENT;
        if (nvml->library.nvmlInit_v2() != NVML_SUCCESS)
                return -ENOSYS;
        if (nvml->library.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, &nvml->device) !=
            NVML_SUCCESS) {
                (void)nvml->library.nvmlShutdown();
                return -ENODEV;
        }
        *ret = TAKE_PTR(nvml);
        return 0;
}

uint64_t demo_nvml_used(struct demo_nvml *nvml)
{
        nvmlMemory_t memory;

        return nvml && nvml->library.nvmlDeviceGetMemoryInfo(nvml->device, &memory) == NVML_SUCCESS
                       ? memory.used
                       : DEMO_UNKNOWN;
}

void demo_nvml_close(struct demo_nvml *nvml)
{
        if (nvml)
                (void)nvml->library.nvmlShutdown();
        free(nvml);
}

int demo_moved(const char *session, uint64_t *ret_to_card, uint64_t *ret_to_host)
{
        char path[PATH_MAX], command[PATH_MAX + 64];
        json_t *stat, *device, *in, *out;
        FILE *pipe;
        int r = -EBADMSG;

        if (!session[0] || parts_find(PART_SIMULATOR_STAT, path) < 0)
                return -ENOENT;
        (void)snprintf(command, sizeof(command), "exec '%s' --json --session %s", path, session);
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
