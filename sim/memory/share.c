/* share.c: memory handles as file descriptors, for other processes. One process at a time is
 * charged for the memory: the creator while it holds the memory, later a process that has imported
 * it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/call/objects.h"
#include "sim/space/space.h"

static struct physical *find_exportable(uint64_t handle)
{
        struct physical *p = handle_find(handle);

        return p && p->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? p
                                                                                            : NULL;
}

static int export_file(CUmemGenericAllocationHandle handle)
{
        struct physical *p = NULL;
        int r = space_share(find_exportable, handle, &p);

        if (r == 0)
                r = physical_export(p);
        space_unlock();
        return r;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareable_handle,
                                             CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType handle_type,
                                             unsigned long long flags)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        int fd;

        if (r != CUDA_SUCCESS)
                return r;
        if (!shareable_handle || flags || handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                return CUDA_ERROR_INVALID_VALUE;
        fd = export_file(handle);
        if (fd < 0)
                return CUDA_ERROR_INVALID_VALUE;
        *(int *)shareable_handle = fd;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                               void *os_handle,
                                               CUmemAllocationHandleType sh_handle_type)
{
        int fd = (int)(intptr_t)os_handle;
        CUresult r = api_enter(__func__, API_ANY, NULL);
        struct physical *p;
        struct stat st;

        if (r != CUDA_SUCCESS)
                return r;
        if (!handle || sh_handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
            fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size % (off_t)SPACE_GRANULARITY)
                return CUDA_ERROR_INVALID_VALUE;
        r = physical_import(fd, (uint64_t)st.st_size, &p);
        if (r != CUDA_SUCCESS)
                return r;
        *handle = handle_add(p);
        return CUDA_SUCCESS;
}
