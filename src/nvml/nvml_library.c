/* nvml_library.c: owns the loading of libnvidia-ml.so.1. Must never start it. */
#include "nvml/nvml_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/macros.h"

#define NVML(symbol, params)                          \
        static nvmlReturn_t missing_##symbol params   \
        {                                             \
                return NVML_ERROR_FUNCTION_NOT_FOUND; \
        }
#include "nvml/nvml_api.def"
#undef NVML

static const struct nvml_library missing = {
#define NVML(symbol, params) .symbol = missing_##symbol,
#include "nvml/nvml_api.def"
#undef NVML
};

int nvml_library_load(const char *folder, struct nvml_library *ret)
{
        char path[PATH_MAX];
        void *library, *found;

        (void)snprintf(path, sizeof(path), "%s%slibnvidia-ml.so.1", folder ? folder : "",
                       folder ? "/" : "");
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
                return -ENOENT;
        *ret = missing;
#define NVML(symbol, params)             \
        found = dlsym(library, #symbol); \
        if (found)                       \
                ret->symbol = (__typeof__(ret->symbol))found;
#include "nvml/nvml_api.def"
#undef NVML
        /* Older drivers have _v2 only, with the same layout. */
        if (ret->nvmlDeviceGetComputeRunningProcesses_v3 ==
            missing.nvmlDeviceGetComputeRunningProcesses_v3)
                ret->nvmlDeviceGetComputeRunningProcesses_v3 =
                        ret->nvmlDeviceGetComputeRunningProcesses_v2;
        return 0;
}

/* Reads the link's greatest generation and width, because an idle card lowers them. Copies reach
 * four fifths of what the link carries: 25 GB/s of 32 in generation 4, 50 of 63 in generation 5. */
uint64_t nvml_bus_bytes_s(const struct nvml_library *l, nvmlDevice_t device)
{
        static const uint64_t lane_mb_s[] = {0, 250, 500, 985, 1969, 3938, 7563};
        unsigned generation = 0, width = 0;

        if (l->nvmlDeviceGetMaxPcieLinkGeneration(device, &generation) != NVML_SUCCESS ||
            l->nvmlDeviceGetMaxPcieLinkWidth(device, &width) != NVML_SUCCESS ||
            generation >= ARRAY_SIZE(lane_mb_s) || width > 32)
                return 0;
        return lane_mb_s[generation] * width * 800000;
}
