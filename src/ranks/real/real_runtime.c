/* real_runtime.c: owns the table of the runtime library's functions. */
#include "ranks/real/real_runtime.h"

#include <dlfcn.h>

#include "base/macros.h"

/* Returns the newest of these libraries that the program has loaded. */
static const char *loaded(void)
{
        static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12",
                                              "libcudart.so.11.0"};

        for (unsigned i = 0; i < ARRAY_SIZE(sonames); i++)
                if (dlopen(sonames[i], RTLD_LAZY | RTLD_NOLOAD))
                        return sonames[i];
        return sonames[0];
}

#define TABLE   real_runtime
#define LIST    "ranks/real/runtime_api.def"
#define LIBRARY choose = loaded
#include "ranks/real/real_table.h"
