/* real_functions.h: the functions behind this library: what a program would call without it. For
 * the driver these are the functions that libsublet.so exports, if it is loaded.
 *
 * One list gives the functions of each library: cuda/cuda_api.def, nvml_api.def. A table has one
 * member for each row. No member is ever NULL: if the library or the function is missing, it is a
 * stub that returns an error. The first call loads the library. Thread-safe. */
#pragma once

#include <stdbool.h>

#include "cuda/cuda_abi.h"
#include "nvml/nvml_abi.h"

struct real_cuda {
#define CU(base, symbol, since, flags, behaviour, detail, params, args) CUresult(*symbol) params;
#include "cuda/cuda_api.def"
#undef CU
};

struct real_nvml {
#define NVML(symbol, params, args) nvmlReturn_t(*symbol) params;
#include "ranks/real/nvml_api.def"
#undef NVML
};

const struct real_cuda *real_cuda(void);
const struct real_nvml *real_nvml(void);

/* True while this thread looks up functions for a table: it must get the functions themselves, not
 * the ones that replace them. */
bool real_is_looking(void);
