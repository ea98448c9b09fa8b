/* cpus.h: where threads of our own run.
 *
 * A thread inherits the CPUs and the scheduling policy of its creator. That is whichever thread of
 * the program calls the driver first, and programs pin theirs (OMP_PROC_BIND, taskset, worker
 * pools). Units: none. Thread-safe; nothing is allocated. */
#pragma once

/* Let the calling thread, which must be ours, and all threads it creates run on the CPUs that the
 * process began with, with the ordinary policy. What the kernel refuses stays inherited. */
void cpus_settle(void);
