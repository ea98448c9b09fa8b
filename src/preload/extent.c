/* extent.c: owns the driver calls that put memory behind one extent and take it away. Must never
 * hold core.lock: they may take their time. */
#include "preload/extent.h"

#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "preload/real.h"

static CUresult extent_create(const struct gpu *g, struct extent *e)
{
        const CUmemAllocationProp prop = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = g->passes && extent_is_whole(g, e)
                                                ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                : CU_MEM_HANDLE_TYPE_NONE,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)g->index},
        };

        return real.cuMemCreate(&e->handle, e->bytes, &prop, 0);
}

/* The descriptor is used up either way. */
static CUresult extent_import(struct extent *e, int fd)
{
        CUresult r = real.cuMemImportFromShareableHandle(&e->handle, (void *)(intptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

        (void)close(fd);
        return r;
}

int extent_export(const struct extent *e)
{
        int fd = -EBADF;

        return real.cuMemExportToShareableHandle(
                       &fd, e->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS
                       ? fd
                       : -EBADF;
}

static void extent_release(const struct extent *e)
{
        CUresult r = real.cuMemRelease(e->handle);

        if (r != CUDA_SUCCESS)
                log_debug("cuMemRelease of %llu bytes: CUDA error %d", (unsigned long long)e->bytes,
                          (int)r);
}

CUresult extent_map(const struct gpu *g, struct extent *e, int passed_fd)
{
        const CUmemAccessDesc access = {
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)g->index},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUresult r;

        if (e->managed)
                return CUDA_SUCCESS;
        if (passed_fd < 0 || extent_import(e, passed_fd) != CUDA_SUCCESS) {
                r = extent_create(g, e);
                if (r != CUDA_SUCCESS)
                        return r;
        }
        r = real.cuMemMap(e->address, e->bytes, 0, e->handle, 0);
        if (r != CUDA_SUCCESS)
                goto release;
        r = real.cuMemSetAccess(e->address, e->bytes, &access, 1);
        if (r != CUDA_SUCCESS)
                goto unmap;
        return CUDA_SUCCESS;

unmap:
        (void)real.cuMemUnmap(e->address, e->bytes);
release:
        extent_release(e);
        return r;
}

void extent_unmap(const struct extent *e)
{
        CUresult r;

        if (e->managed)
                return;
        r = real.cuMemUnmap(e->address, e->bytes);
        if (r != CUDA_SUCCESS)
                log_debug("cuMemUnmap of %llu bytes: CUDA error %d", (unsigned long long)e->bytes,
                          (int)r);
        extent_release(e);
}
