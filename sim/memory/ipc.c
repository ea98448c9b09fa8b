/* ipc.c: memory of other processes. A handle names a file of a living process, which is opened
 * through /proc; the real driver asks its kernel module. Must never give a handle a second meaning:
 * it contains the file's inode, because descriptor numbers are reused. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/memory/ipc.h"
#include "sim/memory/memory.h"
#include "sim/queue/stream.h"

uint64_t ipc_inode(int fd)
{
        struct stat st;

        return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

int ipc_open(const struct ipc_handle *h)
{
        char path[64];
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", h->pid, h->fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && ipc_inode(fd) != h->inode) {
                (void)close(fd);
                return -1;
        }
        return fd;
}

/* ---- memory ---- */

static struct physical *find_of_block(uint64_t ptr)
{
        struct block *b = memory_block(ptr);

        return b && b->kind == BLOCK_DEVICE ? b->range->physical : NULL;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr ptr)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct ipc_handle h = {.kind = IPC_MEMORY, .pid = (int32_t)getpid()};
        struct physical *p;
        int shared;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_handle)
                return CUDA_ERROR_INVALID_VALUE;
        shared = space_share(find_of_block, ptr, &p);
        if (shared < 0) {
                r = p ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
        } else {
                const struct block *b = memory_block(ptr);

                h.fd = p->fd;
                h.inode = ipc_inode(h.fd);
                h.offset = b->span.start - b->range->span.start;
                h.bytes = b->span.bytes;
                h.all = p->bytes;
                memcpy(ret_handle, &h, sizeof(h));
        }
        space_unlock();
        return r;
}

/* Needs the space lock. */
static CUresult map_import(CUcontext c, const struct ipc_handle *h, struct physical *p,
                           CUdeviceptr *ret)
{
        uint64_t at = space_reserve(h->all, SPACE_GRANULARITY, 0);
        struct range *range = at ? space_map(RANGE_DEVICE, at, h->all, p, 0, p->at) : NULL;
        struct block *b = range ? calloc(1, sizeof(*b)) : NULL;

        if (b) {
                range->access[p->device] = range->access[c->device] =
                        CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
                *b = (struct block){.kind = BLOCK_IMPORTED,
                                    .context = c,
                                    .range = range,
                                    .span = {at + h->offset, h->bytes},
                                    .inode = h->inode,
                                    .opened = 1};
                if (block_add(b) == 0) {
                        *ret = b->span.start;
                        return CUDA_SUCCESS;
                }
        }
        free(b);
        if (range)
                space_unmap(range);
        if (at)
                space_release(at);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_new(CUcontext c, const struct ipc_handle *h, CUdeviceptr *ret)
{
        int fd = ipc_open(h);
        struct physical *p;
        CUresult r;

        if (fd < 0)
                return CUDA_ERROR_INVALID_HANDLE;
        r = physical_import(fd, h->all, &p);
        (void)close(fd);
        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        r = map_import(c, h, p, ret);
        physical_drop(p); /* the range has a reference; without a range the memory is freed */
        space_unlock();
        return r;
}

static CUresult open_handle(const char *function, CUdeviceptr *ret_ptr, CUipcMemHandle handle,
                            unsigned flags, bool again)
{
        struct ipc_handle h;
        struct block *b;
        CUcontext c;
        CUresult r = api_enter(function, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        memcpy(&h, &handle, sizeof(h));
        if (!ret_ptr || !(flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || h.kind != IPC_MEMORY ||
            h.zero || h.all == 0 || h.all % SPACE_GRANULARITY || h.offset > h.all ||
            h.bytes > h.all - h.offset)
                return CUDA_ERROR_INVALID_VALUE;
        if (h.pid == getpid())
                return CUDA_ERROR_INVALID_CONTEXT;
        space_lock();
        b = memory_imported(h.inode, h.offset);
        if (b && b->context != c) {
                r = CUDA_ERROR_INVALID_HANDLE;
        } else if (b && !again) {
                r = CUDA_ERROR_ALREADY_MAPPED;
        } else if (b) {
                b->opened++;
                *ret_ptr = b->span.start;
        }
        space_unlock();
        return b ? r : open_new(c, &h, ret_ptr);
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret_ptr, CUipcMemHandle handle,
                                      unsigned int flags)
{
        return open_handle(__func__, ret_ptr, handle, flags, true);
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *ret_ptr, CUipcMemHandle handle, unsigned int flags)
{
        return open_handle(__func__, ret_ptr, handle, flags, false);
}

static struct block *imported_at(CUdeviceptr ptr)
{
        struct block *b = memory_block(ptr);

        return b && b->kind == BLOCK_IMPORTED && b->span.start == ptr ? b : NULL;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);
        struct block *b;
        bool last = false;

        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        b = imported_at(ptr);
        if (!b)
                r = CUDA_ERROR_INVALID_VALUE;
        else if (b->opened > 1)
                b->opened--;
        else
                last = true;
        space_unlock();
        if (!last)
                return r;
        r = context_wait(c); /* as with cuMemFree, submitted work may use the memory */
        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        b = imported_at(ptr);
        if (b)
                block_free(b);
        space_unlock();
        return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- memory for other devices ---- */

#define HOST_PAGE 4096u

static struct physical *find_of_range(uint64_t ptr)
{
        struct range *range = space_range(ptr);

        return range ? range->physical : NULL;
}

/* True if the range in which ptr lies has so many bytes from there on. */
static bool reaches(CUdeviceptr ptr, uint64_t bytes)
{
        struct range *range = space_range(ptr);

        return bytes <= range->span.bytes - (ptr - range->span.start);
}

/* Returns a file that keeps the memory alive, like a dma-buf. No simulated device can use it. */
EXPORT CUresult cuMemGetHandleForAddressRange(void *ret_handle, CUdeviceptr ptr, size_t bytes,
                                              CUmemRangeHandleType type, unsigned long long flags)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct physical *p;
        int fd = -1;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || bytes == 0 ||
            ptr % HOST_PAGE || bytes % HOST_PAGE)
                return CUDA_ERROR_INVALID_VALUE;
        if (flags)
                return CUDA_ERROR_NOT_SUPPORTED;
        if (space_share(find_of_range, ptr, &p) == 0 && reaches(ptr, bytes))
                fd = physical_export(p);
        space_unlock();
        if (fd < 0)
                return CUDA_ERROR_INVALID_VALUE;
        *(int *)ret_handle = fd;
        return CUDA_SUCCESS;
}
