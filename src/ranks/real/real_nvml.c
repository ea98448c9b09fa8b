/* real_nvml.c: owns the table of NVML's functions. */
#include "ranks/real/real_functions.h"

#define TABLE   real_nvml
#define LIST    "ranks/real/nvml_api.def"
#define LIBRARY soname = REAL_NVML
#include "ranks/real/real_table.h"
