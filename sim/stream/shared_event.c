/* shared_event.c: events of other processes. */
#include "sim/stream/shared_event.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/memory/ipc.h"

#define POLL_NS 100000

struct shared_event {
        _Atomic uint64_t recorded; /* number of the last submitted record */
        _Atomic uint64_t done;     /* number of the last reached record */
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

        while (!shared_event_is_done(e, number) && !context_stopped(c))
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
        h.inode = ipc_inode(h.fd);
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
        fd = ipc_open(&h);
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
        e->shared = p; /* the page stays mapped for ever, like the event object */
        *ret_event = e;
        return CUDA_SUCCESS;
}
