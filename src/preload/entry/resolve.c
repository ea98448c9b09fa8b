/* resolve.c: answers cuGetProcAddress. Asks the real resolver first and replaces the address that
 * it returns, so that version and flags keep their meaning. Must never return an entry point for
 * which the driver returned none. */
#include "base/log.h"
#include "base/macros.h"
#include "preload/entry/doors.h"
#include "preload/process/front_calls.h"

/* Returns the driver's answer for a program of another CUDA version; NULL: there is no function. */
static void *answer(const char *name, int version, cuuint64_t flags)
{
        CUdriverProcAddressQueryResult status;
        void *p = NULL;
        CUresult result = real.cuGetProcAddress_v2(name, &p, version, flags, &status);

        /* Drivers before CUDA 12 have only the first version of the resolver. */
        if (result == CUDA_ERROR_NOT_SUPPORTED)
                result = real.cuGetProcAddress(name, &p, version, flags);
        return result == CUDA_SUCCESS ? p : NULL;
}

/* Returns the row of a function that dlsym() does not find. The program's CUDA version may be newer
 * than the ABI declared here. Then a row counts only if the driver returns the same address for the
 * row's own version. */
static enum door_row row_without_symbol(const char *name, const void *address, int version,
                                        cuuint64_t flags)
{
        enum door_row row = rows_find_base(name, MIN(version, CUDA_VERSION), flags);

        if (version <= CUDA_VERSION ||
            (row != DOOR_NONE && answer(name, CUDA_VERSION, flags) == address))
                return row;
        row = rows_find_base(name, version, flags);
        return row != DOOR_NONE && rows_since(row) > CUDA_VERSION &&
                               answer(name, rows_since(row), flags) == address
                       ? row
                       : DOOR_NONE;
}

/* Returns our entry point for the driver's address. NULL: the tables do not know this version of an
 * intercepted function. Its address would bypass us, and our door of an older version would read
 * its arguments by another ABI. */
static void *resolve(const char *name, void *address, int version, cuuint64_t flags)
{
        enum door_row row = rows_find_base(name, version, flags);
        void *wrapper;

        /* If the driver has one function under two names, the name that the program asked for
         * decides. */
        if (row == DOOR_NONE || !real_has(row, address))
                row = rows_find_address(address);
        if (row != DOOR_NONE) {
                wrapper = doors_wrapper(row);
                return front_replace(rows_symbol(row), wrapper ? wrapper : address);
        }

        row = row_without_symbol(name, address, version, flags);
        if (row == DOOR_NONE) {
                /* The version is older than the table's first version. cuda_uncaught.def says why
                 * that version is not intercepted. */
                if (version <= CUDA_VERSION && rows_knows_base(name))
                        return address;
                rows_count_unknown(name);
                return rows_catches_base(name) || rows_is_undecided(name) ? NULL : address;
        }
        wrapper = doors_wrapper(row);
        if (!wrapper)
                return front_replace(rows_symbol(row), address);
        if (real_adopt(row, address))
                log_debug("%s: adopted the entry that cuGetProcAddress returned", rows_symbol(row));
        return front_replace(rows_symbol(row), wrapper);
}

/* A name for which the driver has no function. */
#define NO_SUCH_FUNCTION "cuNoSuchFunction"

CUresult hook_cuGetProcAddress(const char *name, void **ret_fn, int version, cuuint64_t flags)
{
        CUresult result;

        (void)real_open(); /* without a driver the stub answers */
        result = real.cuGetProcAddress(name, ret_fn, version, flags);
        if (result != CUDA_SUCCESS || !*ret_fn)
                return result;
        *ret_fn = resolve(name, *ret_fn, version, flags);
        return *ret_fn ? result : real.cuGetProcAddress(NO_SUCH_FUNCTION, ret_fn, version, flags);
}

CUresult hook_cuGetProcAddress_v2(const char *name, void **ret_fn, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *ret_status)
{
        CUresult result;

        (void)real_open();
        result = real.cuGetProcAddress_v2(name, ret_fn, version, flags, ret_status);
        if (result != CUDA_SUCCESS || !*ret_fn)
                return result;
        *ret_fn = resolve(name, *ret_fn, version, flags);
        return *ret_fn ? result
                       : real.cuGetProcAddress_v2(NO_SUCH_FUNCTION, ret_fn, version, flags,
                                                  ret_status);
}
