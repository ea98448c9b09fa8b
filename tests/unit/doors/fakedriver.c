/* fakedriver.c: a libcuda.so.1 that only counts calls, for the tests of the doors. It has every
 * function of cuda_api.def, and none does anything (the simulator in sim/ does the work). */
#include "fakedriver.h"

#include <stdint.h>
#include <string.h>

#include "cuda/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

enum row {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) ROW_##symbol,
#include "cuda/cuda_api.def"
        ROW_COUNT,
};

static const char *const names[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) #symbol,
#include "cuda/cuda_api.def"
};

static unsigned calls[ROW_COUNT];
static unsigned refusals[ROW_COUNT];
static unsigned second_entry_calls, newer_calls;

static int row_of(const char *symbol)
{
        for (int i = 0; i < ROW_COUNT; i++)
                if (strcmp(names[i], symbol) == 0)
                        return i;
        return -1;
}

static CUresult called(int row)
{
        calls[row]++;
        if (refusals[row] == 0)
                return CUDA_SUCCESS;
        refusals[row]--;
        return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The resolvers are defined below. The resolver finds cuFuncLoad and cuCheckpointProcessUnlock,
 * dlsym() does not. These macros rename definitions only: CU() pastes and quotes the plain
 * names. */
#define cuGetProcAddress          unused_cuGetProcAddress
#define cuGetProcAddress_v2       unused_cuGetProcAddress_v2
#define cuFuncLoad                unexported_cuFuncLoad
#define cuCheckpointProcessUnlock unexported_cuCheckpointProcessUnlock
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        EXPORT CUresult symbol params;                                  \
        EXPORT CUresult symbol params                                   \
        {                                                               \
                return called(ROW_##symbol);                            \
        }
#include "cuda/cuda_api.def"
#undef cuGetProcAddress
#undef cuGetProcAddress_v2

EXPORT CUresult cuGetProcAddress(const char *name, void **ret_fn, int version, cuuint64_t flags);
EXPORT CUresult cuGetProcAddress_v2(const char *name, void **ret_fn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *ret_status);

/* A second entry point, which cuGetProcAddress returns for a function that is also exported. */
static CUresult second_cuEventRecord(CUevent event, CUstream stream)
{
        second_entry_calls++;
        return CUDA_SUCCESS;
}

static CUresult second_cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
        second_entry_calls++;
        return CUDA_SUCCESS;
}

/* cuMemFree of CUDA before 3.2, which cuGetProcAddress returns for old versions. */
static CUresult narrow_cuMemFree(unsigned ptr)
{
        return CUDA_SUCCESS;
}

/* In an ABI newer than the table, version 14000, cuGetProcAddress("cuMemFree") returns this. */
EXPORT CUresult cuMemFree_v3(CUdeviceptr ptr, int how);
EXPORT CUresult cuMemFree_v3(CUdeviceptr ptr, int how)
{
        newer_calls++;
        return CUDA_SUCCESS;
}

/* In version 14000 cuGetProcAddress returns this for a function that is not intercepted. */
EXPORT CUresult cuDeviceGetName_v2(void);
EXPORT CUresult cuDeviceGetName_v2(void)
{
        newer_calls++;
        return CUDA_SUCCESS;
}

/* A function that the table does not know. */
EXPORT CUresult cuUnheardOf(void);
EXPORT CUresult cuUnheardOf(void)
{
        return CUDA_SUCCESS;
}

static void *find(const char *name, int version, cuuint64_t flags)
{
        struct {
                const char *base;
                int since, ptsz;
                void *address;
        } const rows[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        {#base, since, (flags)&CU_API_PTSZ, (void *)symbol},
#include "cuda/cuda_api.def"
        };
        void *plain = NULL, *variant = NULL;

        if (strcmp(name, "cuUnheardOf") == 0)
                return (void *)cuUnheardOf;
        if (strcmp(name, "cuEventRecord") == 0 && !(flags & 2))
                return (void *)second_cuEventRecord;
        if (strcmp(name, "cuLaunchHostFunc") == 0 && !(flags & 2) && version < 13020)
                return (void *)second_cuLaunchHostFunc;
        if ((strcmp(name, "cuMemFree") == 0 || strcmp(name, "cuMemFree_v3") == 0) &&
            version >= 14000)
                return (void *)cuMemFree_v3;
        if (strcmp(name, "cuDeviceGetName") == 0 && version >= 14000)
                return (void *)cuDeviceGetName_v2;
        if (strcmp(name, "cuMemFree") == 0 && version < 3020)
                return (void *)narrow_cuMemFree;
        for (int i = 0; i < ROW_COUNT; i++) {
                if (strcmp(rows[i].base, name) != 0 || rows[i].since > version)
                        continue;
                if (rows[i].ptsz)
                        variant = rows[i].address;
                else
                        plain = rows[i].address;
        }
        return (flags & 2) && variant ? variant : plain;
}

CUresult cuGetProcAddress(const char *name, void **ret_fn, int version, cuuint64_t flags)
{
        *ret_fn = find(name, version, flags);
        return *ret_fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret_fn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *ret_status)
{
        *ret_fn = find(name, version, flags);
        if (ret_status)
                *ret_status = *ret_fn ? CU_GET_PROC_ADDRESS_SUCCESS
                                      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return *ret_fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT unsigned fakedriver_calls(const char *symbol)
{
        int row = row_of(symbol);

        return row < 0 ? 0 : calls[row];
}

EXPORT void fakedriver_refuse(const char *symbol, unsigned times)
{
        int row = row_of(symbol);

        if (row >= 0)
                refusals[row] = times;
}

EXPORT unsigned fakedriver_second_entry_calls(void)
{
        return second_entry_calls;
}

EXPORT unsigned fakedriver_newer_calls(void)
{
        return newer_calls;
}
