/* share.c: memory handles as file descriptors, for other processes. One process at a time is
 * charged for the memory: the creator while it holds the memory, later a process that has imported
 * it. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "sim/call/objects.h"
#include "sim/space/space.h"

/* After this time memory is shared even if work still uses it. */
#define SHARE_PATIENCE_NS (2 * NSEC_PER_SEC)

/* A program may export memory while kernels write to it. They pause until it is a file. */
static int export_file(CUmemGenericAllocationHandle handle)
{
        const uint64_t end_ns = clock_now_ns() + SHARE_PATIENCE_NS;
        int r;

        space_share_begin();
        for (;;) {
                struct physical *p;

                space_lock();
                p = handle_find(handle);
                if (!p ||
                    !(p->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
                        r = -EINVAL;
                else
                        r = clock_now_ns() < end_ns ? physical_share_unused(p) : physical_share(p);
                if (r == 0)
                        r = physical_export(p);
                space_unlock();
                if (r != -EBUSY)
                        break;
                space_share_nap();
        }
        space_share_end();
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
