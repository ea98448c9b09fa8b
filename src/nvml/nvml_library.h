/* nvml_library.h: NVML's functions, from NVIDIA's library.
 *
 * It is loaded, not linked, because sublet also runs on machines without a driver. It stays loaded
 * until the process ends: its threads may still run. Any call may hang, or crash. */
#pragma once

#include <stdint.h>

#include "nvml/nvml_abi.h"

/* No member is ever NULL: a function that the library lacks is a stub that returns
 * NVML_ERROR_FUNCTION_NOT_FOUND. */
struct nvml_library {
#define NVML(symbol, params) nvmlReturn_t(*symbol) params;
#include "nvml/nvml_api.def"
#undef NVML
};

/* Loads libnvidia-ml.so.1 from this folder or, if it is NULL, by the usual search. Does not start
 * it: nvmlInit_v2() does. 0 or -ENOENT. */
int nvml_library_load(const char *folder, struct nvml_library *ret);

/* Returns how many bytes a second copies move in one direction of the card's PCIe link; 0: unknown.
 */
uint64_t nvml_bus_bytes_s(const struct nvml_library *l, nvmlDevice_t device);
