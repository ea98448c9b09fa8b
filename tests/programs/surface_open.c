/* surface_open.c: finds every entry point through one of the doors (driver.h). It must never fall
 * back to another door. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "surface.h"

struct surface all;

#ifdef DRIVER_LINKED
/* Weak, so that a driver that lacks a symbol can be loaded nevertheless. */
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        extern __typeof__(symbol) symbol __attribute__((weak));
#include "cuda/cuda_api.def"

static void open_linked(void)
{
        all = (struct surface){
#define CU(base, symbol, since, flags, behaviour, stream, params, args) .symbol = symbol,
#include "cuda/cuda_api.def"
        };
}
#endif

static const struct {
        const char *base, *symbol;
        int since;
        unsigned flags;
} rows[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        {#base, #symbol, since, flags},
#include "cuda/cuda_api.def"
};

static void open_by_dlsym(void *library)
{
        void **table = (void **)&all;

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
                table[i] = dlsym(library, rows[i].symbol);
}

/* Leaves out a row if cuGetProcAddress finds no entry point for it. */
static void open_by_name(void *library, bool version2)
{
        __typeof__(cuGetProcAddress) *get1 = dlsym(library, "cuGetProcAddress");
        __typeof__(cuGetProcAddress_v2) *get2 = dlsym(library, "cuGetProcAddress_v2");
        void **table = (void **)&all;

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                uint64_t flags = rows[i].flags & CU_API_PTSZ
                                         ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                         : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
                CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
                void *p = NULL;
                CUresult r = version2 ? get2(rows[i].base, &p, rows[i].since, flags, &status)
                                      : get1(rows[i].base, &p, rows[i].since, flags);

                table[i] = r == CUDA_SUCCESS ? p : NULL;
        }
        all.cuGetProcAddress = get1;
        all.cuGetProcAddress_v2 = get2;
}

void surface_open(void)
{
        const char *door = getenv("PROGRAM_DOOR");
        void *library;

#ifdef DRIVER_LINKED
        if (!door || !strcmp(door, "linked")) {
                open_linked();
                return;
        }
#endif
        library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library)
                program_fail(PROGRAM_EXIT_SETUP, "dlopen: %s", dlerror());
        if (!door || !strcmp(door, "dlsym"))
                open_by_dlsym(library);
        else
                open_by_name(library, !strcmp(door, "getproc"));
}
