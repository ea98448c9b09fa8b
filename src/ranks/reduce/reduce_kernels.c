/* reduce_kernels.c: owns the table of the kernels. The texts are in reduce_ptx.S. */
#include "ranks/reduce/reduce_kernels.h"

#define REDUCE_TYPE(name, bytes) \
        extern const char reduce_ptx_##name[] __attribute__((visibility("hidden")));
#include "ranks/reduce/reduce_types.def"

const char *const reduce_ptx[REDUCE_TYPES] = {
#define REDUCE_TYPE(name, bytes) reduce_ptx_##name,
#include "ranks/reduce/reduce_types.def"
};

const uint32_t reduce_size[REDUCE_TYPES] = {
#define REDUCE_TYPE(name, bytes) bytes,
#include "ranks/reduce/reduce_types.def"
};
