/* cpus.c: owns the CPUs that the process began with. Must never touch a thread of the program's. */
#include "preload/process/cpus.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long cpus_began[1024]; /* as the kernel writes them; 65536 CPUs */
static long cpus_bytes;                /* how much of it; not positive: unknown */

/* Before any other library is set up (-z initfirst): OpenMP's pins the main thread in its own
 * constructor. The C library is not set up either, so a bare system call is all that may be here.
 */
__attribute__((constructor)) static void cpus_begin(void)
{
        cpus_bytes = syscall(SYS_sched_getaffinity, 0, sizeof(cpus_began), cpus_began);
}

void cpus_settle(void)
{
        const struct sched_param none = {0};

        if (cpus_bytes > 0)
                (void)syscall(SYS_sched_setaffinity, 0, cpus_bytes, cpus_began);
        (void)sched_setscheduler(0, SCHED_OTHER, &none);
}
