/* real_runtime.h: the CUDA runtime library that the program has loaded. It works like
 * real_functions.h. */
#pragma once

#include <stddef.h>

struct real_runtime {
#define RT(name, params, args, how) int(*name) params;
#include "ranks/real/runtime_api.def"
};

const struct real_runtime *real_runtime(void);
