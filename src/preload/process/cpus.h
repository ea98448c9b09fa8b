/* cpus.h: where threads of our own run.
 *
 * A thread inherits the CPUs and the scheduling policy of its creator. That is whichever thread of
 * the program calls the driver first, and programs pin theirs (OMP_PROC_BIND, taskset, worker
 * pools). Units: none. Thread-safe; nothing is allocated. */
#pragma once

/* The calling thread is ours: let it run, and all that it creates, on the CPUs that the process
 * began with, by the ordinary policy. What the kernel refuses stays as it was inherited. */
void cpus_settle(void);
