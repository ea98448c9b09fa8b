/* crowd: --count threads (default 8) make their first use of GPU 1 at the same moment, then of GPU
 * 2, and so on. They keep their contexts until stdin ends. */
#include <pthread.h>
#include <stdio.h>

#include "base/macros.h"
#include "program.h"

enum { THREADS_MAX = 64 };

static pthread_barrier_t all_here;
static int gpus;

static void *work(void *unused)
{
        CUcontext context;
        CUdeviceptr at;

        for (CUdevice d = 1; d < gpus; d++) {
                (void)pthread_barrier_wait(&all_here);
                TRY(cu.DevicePrimaryCtxRetain(&context, d));
                TRY(cu.CtxSetCurrent(context));
                TRY(cu.MemAlloc(&at, options.block));
                TRY(cu.MemsetD8(at, 1, options.block));
                TRY(cu.MemFree(at));
        }
        return NULL;
}

int main(int argc, char **argv)
{
        pthread_t thread[THREADS_MAX];
        unsigned count;

        program_begin(argc, argv, &(struct options){.block = 64 * KIB, .count = 8}, false);
        TRY(cu.DeviceGetCount(&gpus));
        count = (unsigned)MIN(MAX(options.count, UINT64_C(1)), (uint64_t)THREADS_MAX);
        (void)pthread_barrier_init(&all_here, NULL, count);
        for (unsigned i = 0; i < count; i++)
                if (pthread_create(&thread[i], NULL, work, NULL))
                        program_fail(PROGRAM_EXIT_SETUP, "cannot create a thread");
        for (unsigned i = 0; i < count; i++)
                (void)pthread_join(thread[i], NULL);
        program_say("filled", "\"gpus\":%d", gpus);
        while (getchar() != EOF)
                ;
        for (unsigned i = 0; i < count; i++)
                for (CUdevice d = 1; d < gpus; d++)
                        TRY(cu.DevicePrimaryCtxRelease(d));
        program_end();
}
