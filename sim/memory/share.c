/* share.c: memory handles as file descriptors, for other processes. One process at a time is
 * charged for the memory: the creator while it holds the memory, later a process that has imported
 * it. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/call/objects.h"
#include "sim/space/space.h"

EXPORT CUresult cuMemExportToShareableHandle(void *shareable_handle,
                                             CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType handle_type,
                                             unsigned long long flags)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        struct physical *p;
        int fd = -1;

        if (r != CUDA_SUCCESS)
                return r;
        if (!shareable_handle || flags || handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock_shared();
        p = handle_find(handle);
        if (p && (p->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
                fd = physical_export(p);
        space_unlock();
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
