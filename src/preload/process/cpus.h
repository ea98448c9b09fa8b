/* cpus.h: the CPUs on which the library's own threads run.
 *
 * A thread inherits the CPUs and the scheduling policy of its creator. Our threads are created by
 * the thread of the program that calls the driver first, which may be pinned (OMP_PROC_BIND,
 * taskset, worker pools). Thread-safe; nothing is allocated. */
#pragma once

/* Give the calling thread, which must be ours, the CPUs that the process began with and the
 * ordinary policy; threads that it creates inherit both. If the kernel refuses either, the thread
 * keeps what it has. */
void cpus_settle(void);
