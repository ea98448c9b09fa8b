/* resolve.c: answers cuGetProcAddress. Asks the real resolver first and substitutes by the address
 * it returned, so that version and flags mean what they mean to the driver. Must never invent an
 * entry point that the driver did not hand out. */
#include "base/log.h"
#include "preload/doors.h"

/* Does the driver answer this name with the same function to a program of the CUDA version that our
 * table knows? If not, it is an ABI newer than the table. */
static bool is_known_abi(const char *name, const void *address, cuuint64_t flags)
{
        CUdriverProcAddressQueryResult status;
        void *p = NULL;
        CUresult result = real.cuGetProcAddress_v2(name, &p, CUDA_VERSION, flags, &status);

        if (result ==
            CUDA_ERROR_NOT_SUPPORTED) /* a driver of before CUDA 12 has the first one only */
                result = real.cuGetProcAddress(name, &p, CUDA_VERSION, flags);
        return result == CUDA_SUCCESS && p == address;
}

static void *resolve(const char *name, void *address, int version, cuuint64_t flags)
{
        enum door_row asked = doors_find_base(name, version, flags);
        enum door_row row = asked;
        void *wrapper;

        /* Where one function has two names, the name asked for decides. */
        if (row == DOOR_NONE || *doors_slot(&real, row) != address)
                row = doors_find_address(address);
        if (row != DOOR_NONE) {
                wrapper = doors_wrapper(row);
                return wrapper ? wrapper : address;
        }

        /* A version from before the table's first: cuda_uncaught.def says why it passes. */
        if (asked == DOOR_NONE && doors_knows_base(name) && version <= CUDA_VERSION)
                return address;

        /* A function that dlsym() does not know. */
        if (asked == DOOR_NONE || (version > CUDA_VERSION && !is_known_abi(name, address, flags))) {
                doors_count_unknown(name);
                return address;
        }
        wrapper = doors_wrapper(asked);
        if (!wrapper)
                return address;
        if (real_adopt(asked, address))
                log_debug("%s: adopted the entry that cuGetProcAddress returned",
                          doors_symbol(asked));
        return wrapper;
}

CUresult hook_cuGetProcAddress(const char *name, void **ret_fn, int version, cuuint64_t flags)
{
        CUresult result;

        (void)real_open(); /* without a driver the stub answers */
        result = real.cuGetProcAddress(name, ret_fn, version, flags);
        if (result == CUDA_SUCCESS && *ret_fn)
                *ret_fn = resolve(name, *ret_fn, version, flags);
        return result;
}

CUresult hook_cuGetProcAddress_v2(const char *name, void **ret_fn, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *ret_status)
{
        CUresult result;

        (void)real_open();
        result = real.cuGetProcAddress_v2(name, ret_fn, version, flags, ret_status);
        if (result == CUDA_SUCCESS && *ret_fn)
                *ret_fn = resolve(name, *ret_fn, version, flags);
        return result;
}
