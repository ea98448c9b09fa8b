/* cpus.c: owns the record of the CPUs that the process began with. Must never change a thread of
 * the program.
 * Why: docs/decisions.md, "The agent runs where the process may run". */
#include "preload/process/cpus.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long cpus_began[1024]; /* the kernel's mask of up to 65,536 CPUs */
static long cpus_bytes;                /* valid bytes of cpus_began; not positive: unknown */

/* Runs before the constructors of other libraries (-z initfirst), because OpenMP's constructor pins
 * the main thread. The C library is not set up yet either, so only a bare system call is
 * allowed. */
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
