/* real_nvml.c: owns the table of NVML's functions. */
#include "base/macros.h"
#include "ranks/real/real_functions.h"
#include "ranks/real/lookup.h"

#define NVML(symbol, params, args)                    \
        static nvmlReturn_t missing_##symbol params   \
        {                                             \
                return NVML_ERROR_FUNCTION_NOT_FOUND; \
        }
#include "ranks/real/nvml_api.def"
#undef NVML

static struct real_nvml nvml = {
#define NVML(symbol, params, args) .symbol = missing_##symbol,
#include "ranks/real/nvml_api.def"
#undef NVML
};

static const char *const names[] = {
#define NVML(symbol, params, args) #symbol,
#include "ranks/real/nvml_api.def"
#undef NVML
};
_Static_assert(sizeof(nvml) == sizeof(names), "one function for each name");

const struct real_nvml *real_nvml(void)
{
        static struct real_table table = {
                .soname = REAL_NVML,
                .n = ARRAY_SIZE(names),
                .names = names,
                .functions = (void **)&nvml,
        };

        real_table_open(&table);
        return &nvml;
}
