/* nccl.c: finds NCCL's functions as a program does that loads the library while it runs. */
#include "nccl.h"

#include <dlfcn.h>

#include "base/macros.h"
#include "program.h"

struct nccl nccl;

static const struct {
        const char *name;
        bool needed;
} functions[] = {
#define N(result, member, needed, params) {"nccl" #member, needed},
#include "nccl.def"
};

void nccl_open(void)
{
        void **table = (void **)&nccl;
        void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

        for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
                /* RTLD_DEFAULT finds the functions of a library that is preloaded. */
                table[i] = dlsym(library ? library : RTLD_DEFAULT, functions[i].name);
                if (!table[i] && functions[i].needed)
                        program_fail(PROGRAM_EXIT_SETUP, "no %s in %s", functions[i].name,
                                     library ? "libnccl.so.2" : "the libraries that are loaded");
        }
}
