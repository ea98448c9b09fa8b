/* driver.c: fills the table of driver functions through one of the doors (driver.h). It must never
 * fall back to another door, because a test would then test the wrong one. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

struct driver cu;

struct symbol {
        const char *name, *per_thread;
};

static const struct symbol symbols[] = {
#define D(member, symbol)              {#symbol, #symbol},
#define DP(member, symbol, per_thread) {#symbol, #per_thread},
#include "driver.def"
};
#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

/* The base name and the version by which cuGetProcAddress finds each symbol of the driver. */
static const struct entry_point {
        const char *base, *symbol;
        int since;
} entry_points[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) {#base, #symbol, since},
#include "cuda/cuda_api.def"
};
#define ENTRY_POINTS (sizeof(entry_points) / sizeof(entry_points[0]))

static void *library(void)
{
        static void *handle;

        if (!handle)
                handle = dlopen("libcuda.so.1", RTLD_NOW);
        if (!handle)
                program_fail(PROGRAM_EXIT_SETUP, "dlopen: %s", dlerror());
        return handle;
}

static void *by_dlsym(const char *symbol)
{
        void *p = dlsym(library(), symbol);

        if (!p)
                program_fail(PROGRAM_EXIT_SETUP, "dlsym: no %s", symbol);
        return p;
}

#ifdef DRIVER_LINKED
static const struct driver linked = {
#define D(member, symbol)              .member = symbol,
#define DP(member, symbol, per_thread) D(member, symbol)
#include "driver.def"
};
static const struct driver linked_per_thread = {
#define D(member, symbol)              .member = symbol,
#define DP(member, symbol, per_thread) D(member, per_thread)
#include "driver.def"
};
#endif

static const struct entry_point *entry_point_find(const char *symbol)
{
        for (size_t i = 0; i < ENTRY_POINTS; i++)
                if (!strcmp(entry_points[i].symbol, symbol))
                        return &entry_points[i];
        program_fail(PROGRAM_EXIT_SETUP, "no row for %s in cuda_api.def", symbol);
}

/* per_thread: the symbol of the per-thread variant, or NULL to use the symbol itself. */
static void *by_get_proc_address(const char *symbol, const char *per_thread, bool version2)
{
        const struct entry_point *e = entry_point_find(per_thread ? per_thread : symbol);
        uint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
        CUdriverProcAddressQueryResult status;
        void *p = NULL;
        CUresult r;

        if (version2) {
                __typeof__(cuGetProcAddress_v2) *get = by_dlsym("cuGetProcAddress_v2");

                r = get(e->base, &p, e->since, flags, &status);
        } else {
                __typeof__(cuGetProcAddress) *get = by_dlsym("cuGetProcAddress");

                r = get(e->base, &p, e->since, flags);
        }
        if (r != CUDA_SUCCESS || !p)
                program_fail(PROGRAM_EXIT_SETUP, "cuGetProcAddress: no %s of %d (error %d)",
                             e->base, e->since, (int)r);
        return p;
}

void driver_open(bool per_thread)
{
        void **table = (void **)&cu;
        const char *door = getenv("PROGRAM_DOOR");

#ifdef DRIVER_LINKED
        if (!door || !strcmp(door, "linked")) {
                cu = per_thread ? linked_per_thread : linked;
                return;
        }
#endif
        if (!door)
                door = "dlsym";
        for (size_t i = 0; i < SYMBOLS; i++) {
                const char *name = symbols[i].name;
                const char *variant = per_thread ? symbols[i].per_thread : NULL;

                if (!strcmp(door, "dlsym"))
                        table[i] = by_dlsym(variant ? variant : name);
                else if (!strcmp(door, "getproc"))
                        table[i] = by_get_proc_address(name, variant, true);
                else if (!strcmp(door, "getproc1"))
                        table[i] = by_get_proc_address(name, variant, false);
                else
                        program_fail(PROGRAM_EXIT_SETUP, "PROGRAM_DOOR=%s: unknown door", door);
        }
}
