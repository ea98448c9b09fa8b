/* real_runtime.c: owns the table of the runtime library's functions. */
#include "ranks/real/real_runtime.h"

#include <dlfcn.h>

#include "base/macros.h"
#include "ranks/real/lookup.h"

#define NOT_SUPPORTED 801 /* cudaErrorNotSupported */

#define RT(name, params, args, how)      \
        static int missing_##name params \
        {                                \
                return NOT_SUPPORTED;    \
        }
#include "ranks/real/runtime_api.def"

static struct real_runtime runtime = {
#define RT(name, params, args, how) .name = missing_##name,
#include "ranks/real/runtime_api.def"
};

static const char *const names[] = {
#define RT(name, params, args, how) #name,
#include "ranks/real/runtime_api.def"
};
_Static_assert(sizeof(runtime) == sizeof(names), "one function for each name");

/* Returns the newest of these that the program has loaded. */
static const char *loaded(void)
{
        static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12",
                                              "libcudart.so.11.0"};

        for (unsigned i = 0; i < ARRAY_SIZE(sonames); i++)
                if (dlopen(sonames[i], RTLD_LAZY | RTLD_NOLOAD))
                        return sonames[i];
        return sonames[0];
}

const struct real_runtime *real_runtime(void)
{
        static struct real_table table = {
                .n = ARRAY_SIZE(names),
                .names = names,
                .functions = (void **)&runtime,
        };

        if (!table.soname)
                table.soname = loaded();
        real_table_open(&table);
        return &runtime;
}
