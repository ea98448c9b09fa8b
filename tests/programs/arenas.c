/* arenas.c: several processes evict at the same moment, each to an arena of the library's own. Must
 * need neither the library nor a driver. Each of all makers has asked for its first segment before
 * any of them touches memory: so each has seen room for itself. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "preload/driver/real.h"
#include "preload/heap/arena.h"
#include "preload/process/libc_compat.h"
#include "preload/rm/freeze_watch.h"

#define PROGRAMS 4u
#define MAKERS   4u /* of each program; each makes one segment */
#define SEGMENT  (64 * MIB)

struct real_driver real;

struct shared {
        pthread_barrier_t asked, ended;
        _Atomic unsigned segments;
};
static struct shared *shared;

/* ---- in place of the driver and of the library's other modules ---- */

static CUresult pin(void *memory, size_t bytes, unsigned flags)
{
        return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
        *ret = NULL;
        return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext c)
{
        return CUDA_SUCCESS;
}

static CUresult relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

int compat_thread_start(void *(*start)(void *), void *argument)
{
        pthread_t t;
        int r = pthread_create(&t, NULL, start, argument);

        return r ? r : pthread_detach(t);
}

void freeze_watch_call(const char *call)
{
}

/* ---- in place of the C library's functions ---- */

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *ret)
{
        CPU_ZERO(ret);
        for (unsigned i = 0; i < MAKERS; i++)
                CPU_SET(i, ret);
        return 0;
}

/* A maker says this of new memory, before it touches any of it. */
int madvise(void *memory, size_t bytes, int advice)
{
        if (advice == MADV_HUGEPAGE && atomic_fetch_add(&shared->segments, 1) < PROGRAMS * MAKERS)
                (void)pthread_barrier_wait(&shared->asked);
        return (int)syscall(SYS_madvise, memory, bytes, advice);
}

/* ---- the programs ---- */

static void evict(void)
{
        struct arena *a = arena_new(SEGMENT);
        struct arena_room room;
        const int r = a ? arena_take(a, MAKERS * SEGMENT, &room) : -ENODATA;

        printf("{\"event\":\"evicted\",\"error\":%d,\"bytes\":%llu}\n", -r,
               (unsigned long long)(a ? arena_bytes(a) : 0));
        (void)fflush(stdout);
        (void)pthread_barrier_wait(&shared->ended); /* until then nobody gives anything back */
        _exit(EXIT_SUCCESS);
}

static void barrier(pthread_barrier_t *b, unsigned count)
{
        pthread_barrierattr_t attr;

        (void)pthread_barrierattr_init(&attr);
        (void)pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        (void)pthread_barrier_init(b, &attr, count);
}

int main(void)
{
        pid_t pids[PROGRAMS];
        int status, r = EXIT_SUCCESS;

        real.cuMemHostRegister_v2 = pin;
        real.cuCtxGetCurrent = get_current;
        real.cuCtxSetCurrent = set_current;
        real.cuThreadExchangeStreamCaptureMode = relax;
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        if (shared == MAP_FAILED)
                return EXIT_FAILURE;
        barrier(&shared->asked, PROGRAMS * MAKERS);
        barrier(&shared->ended, PROGRAMS);
        for (unsigned i = 0; i < PROGRAMS; i++) {
                pids[i] = fork();
                if (pids[i] == 0)
                        evict();
        }
        while (wait(&status) > 0) {
                if (status == 0)
                        continue;
                r = EXIT_FAILURE;
                for (unsigned i = 0; i < PROGRAMS; i++) /* the others wait for this one */
                        (void)kill(pids[i], SIGKILL);
        }
        return r;
}
