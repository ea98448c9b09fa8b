/* ipc.c: memory and events of other processes. A handle names a file of a living process, which is
 * opened through /proc, as the driver asks its kernel part for what another process has. Must never
 * give a second meaning to a handle: the file's number tells what a descriptor's would not. */
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
#include "sim/stream/stream.h"

enum { IPC_MEMORY = 0x4d504953, IPC_EVENT = 0x45504953 };

struct ipc_handle {
        uint32_t kind;
        int32_t pid, fd;
        uint32_t zero;
        uint64_t inode;
        uint64_t offset, bytes; /* of the allocation */
        uint64_t all;           /* of the file */
        uint64_t reserved[2];
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "64 bytes");
_Static_assert(sizeof(CUipcEventHandle) == sizeof(CUipcMemHandle), "64 bytes");

static uint64_t inode_of(int fd)
{
        struct stat st;

        return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* -1: the process or its file is gone. */
static int open_file(const struct ipc_handle *h)
{
        char path[64];
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", h->pid, h->fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && inode_of(fd) != h->inode) {
                (void)close(fd);
                return -1;
        }
        return fd;
}

/* ---- memory ---- */

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr ptr)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct ipc_handle h = {.kind = IPC_MEMORY, .pid = (int32_t)getpid()};
        struct block *b;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_handle)
                return CUDA_ERROR_INVALID_VALUE;
        space_lock();
        b = memory_block(ptr);
        if (!b || b->kind != BLOCK_DEVICE) {
                r = CUDA_ERROR_INVALID_VALUE;
        } else if (physical_share(b->range->physical) < 0) {
                r = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
                h.fd = b->range->physical->fd;
                h.inode = inode_of(h.fd);
                h.offset = b->span.start - b->range->span.start;
                h.bytes = b->span.bytes;
                h.all = b->range->physical->bytes;
                memcpy(ret_handle, &h, sizeof(h));
        }
        space_unlock();
        return r;
}

/* Locked. */
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
        int fd = open_file(h);
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
        physical_drop(p); /* the range holds it now; nobody, if there is none */
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
        r = context_wait(c); /* as with cuMemFree, what was submitted may use it */
        if (r != CUDA_SUCCESS)
                return r;
        space_lock();
        b = imported_at(ptr);
        if (b)
                block_free(b);
        space_unlock();
        return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- events ---- */

#define POLL_NS   100000
#define HOST_PAGE 4096u

struct shared_event {
        _Atomic uint64_t recorded,
                done; /* the number of the last record, and of the last reached */
};

int shared_event_new(struct shared_event **ret, int *ret_fd)
{
        int fd = memfd_create("simcuda-event", MFD_CLOEXEC);
        void *p;

        if (fd < 0)
                return -errno;
        p = ftruncate(fd, sizeof(struct shared_event)) < 0
                    ? MAP_FAILED
                    : mmap(NULL, sizeof(struct shared_event), PROT_READ | PROT_WRITE, MAP_SHARED,
                           fd, 0);
        if (p == MAP_FAILED) {
                (void)close(fd);
                return -ENOMEM;
        }
        *ret = p;
        *ret_fd = fd;
        return 0;
}

uint64_t shared_event_record(struct shared_event *e)
{
        return atomic_fetch_add(&e->recorded, 1) + 1;
}

void shared_event_reached(struct shared_event *e, uint64_t number)
{
        uint64_t seen = atomic_load(&e->done);

        while (seen < number && !atomic_compare_exchange_weak(&e->done, &seen, number))
                ;
}

uint64_t shared_event_last(const struct shared_event *e)
{
        return atomic_load(&e->recorded);
}

bool shared_event_is_done(const struct shared_event *e, uint64_t number)
{
        return atomic_load(&e->done) >= number;
}

CUresult shared_event_await(CUcontext c, const struct shared_event *e, uint64_t number)
{
        const struct timespec nap = {.tv_nsec = POLL_NS};

        while (!shared_event_is_done(e, number) && !work_stopped(c))
                (void)nanosleep(&nap, NULL);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *ret_handle, CUevent event)
{
        struct ipc_handle h = {.kind = IPC_EVENT, .pid = (int32_t)getpid()};
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_handle || !event)
                return CUDA_ERROR_INVALID_VALUE;
        if (event->magic != MAGIC_EVENT || !event->shared || event->shared_fd < 0)
                return CUDA_ERROR_INVALID_HANDLE;
        h.fd = event->shared_fd;
        h.inode = inode_of(h.fd);
        memcpy(ret_handle, &h, sizeof(h));
        return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenEventHandle(CUevent *ret_event, CUipcEventHandle handle)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct ipc_handle h;
        CUevent e;
        void *p;
        int fd;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_event)
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(&h, &handle, sizeof(h));
        if (h.kind != IPC_EVENT)
                return CUDA_ERROR_MAP_FAILED;
        if (h.pid == getpid())
                return CUDA_ERROR_INVALID_CONTEXT;
        fd = open_file(&h);
        p = fd < 0 ? MAP_FAILED
                   : mmap(NULL, sizeof(struct shared_event), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                          0);
        if (fd >= 0)
                (void)close(fd);
        if (p == MAP_FAILED)
                return CUDA_ERROR_MAP_FAILED;
        r = cuEventCreate(&e, CU_EVENT_DISABLE_TIMING);
        if (r != CUDA_SUCCESS) {
                (void)munmap(p, sizeof(struct shared_event));
                return r;
        }
        e->shared = p; /* kept, like the event, for ever */
        *ret_event = e;
        return CUDA_SUCCESS;
}

/* ---- memory for other devices ---- */

/* A file that keeps the memory, as a dma-buf does; there is no device here to give it to. */
EXPORT CUresult cuMemGetHandleForAddressRange(void *ret_handle, CUdeviceptr ptr, size_t bytes,
                                              CUmemRangeHandleType type, unsigned long long flags)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        struct range *range;
        int fd = -1;

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || bytes == 0 ||
            ptr % HOST_PAGE || bytes % HOST_PAGE)
                return CUDA_ERROR_INVALID_VALUE;
        if (flags)
                return CUDA_ERROR_NOT_SUPPORTED;
        space_lock();
        range = space_range(ptr);
        if (range && range->physical && bytes <= range->span.bytes - (ptr - range->span.start) &&
            physical_share(range->physical) == 0)
                fd = physical_export(range->physical);
        space_unlock();
        if (fd < 0)
                return CUDA_ERROR_INVALID_VALUE;
        *(int *)ret_handle = fd;
        return CUDA_SUCCESS;
}
