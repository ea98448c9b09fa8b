/* revive: one thread releases the primary context for the last time while --ms of work are in
 * flight, and another thread retains the context during the release. This happens --count times.
 * Then --bytes are allocated and filled in the context, and stay until stdin ends. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

static CUdevice device;

static void *retain(void *context)
{
        (void)usleep((useconds_t)(options.ms * 250)); /* a quarter of the work's time */
        TRY(cu.DevicePrimaryCtxRetain(context, device));
        return NULL;
}

int main(int argc, char **argv)
{
        CUdeviceptr counter, at;
        CUcontext context;
        pthread_t other;

        program_begin(argc, argv, &(struct options){.bytes = 8 * MIB, .ms = 100, .count = 3},
                      false);
        TRY(cu.DeviceGet(&device, 0));
        for (uint64_t i = 0; i < options.count; i++) {
                TRY(cu.MemAlloc(&counter, 8));
                launch_spin((uint64_t)(options.ms * 1e6), counter, NULL);
                if (pthread_create(&other, NULL, retain, &context))
                        program_fail(PROGRAM_EXIT_SETUP, "cannot create a thread");
                TRY(cu.DevicePrimaryCtxRelease(device));
                (void)pthread_join(other, NULL);
                TRY(cu.CtxSetCurrent(context));
                kernels_load(&kernels);
        }
        TRY(cu.MemAlloc(&at, options.bytes));
        TRY(cu.MemsetD8(at, 1, options.bytes));
        program_say("filled", "\"count\":%llu", (unsigned long long)options.count);
        while (getchar() != EOF)
                ;
        program_end();
}
