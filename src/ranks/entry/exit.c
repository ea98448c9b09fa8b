/* exit.c: owns _exit(), by which a program ends without its atexit() functions: Python's os._exit()
 * calls it. The other ranks must learn whether this rank's work was done. */
#include <sys/syscall.h>
#include <unistd.h>

#include "ranks/comm/comm.h"

#define EXPORT __attribute__((visibility("default"), noreturn))

EXPORT void _exit(int status)
{
        comm_leave_all(false);
        for (;;)
                (void)syscall(SYS_exit_group, status);
}

EXPORT void _Exit(int status) __attribute__((alias("_exit")));
