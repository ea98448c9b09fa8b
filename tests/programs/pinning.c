/* pinning.c: a library that pins the main thread before the program runs, and makes it a batch job,
 * as OpenMP's library does if OMP_PROC_BIND is set. */
#include <sched.h>
#include <stddef.h>

__attribute__((constructor)) static void load(void)
{
        const struct sched_param none = {0};
        cpu_set_t may, one;

        if (sched_getaffinity(0, sizeof(may), &may) < 0)
                return;
        CPU_ZERO(&one);
        for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
                if (CPU_ISSET(i, &may))
                        CPU_SET(i, &one);
        (void)sched_setaffinity(0, sizeof(one), &one);
        (void)sched_setscheduler(0, SCHED_BATCH, &none);
}
