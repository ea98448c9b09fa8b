/* guard.h: makes this process an owner of objects of the resource manager (RM), so that other
 * processes of the session see when it ends or is stopped (shared_rm.h). */
#pragma once

#include "sim/session/shared_rm.h"

/* Starts the thread that stands for the process. Returns 0, -errno. */
int guard_start(void);
/* Makes the calling thread stand for the process, which then has no work on channels. A child of
 * fork() may call this again. Returns 0, -errno. */
int guard_by_caller(void);
/* Removes the process's objects. Does nothing in a child after fork. */
void guard_leave(void);
/* NULL: the process has none yet. */
struct rm_owner *guard_owner(void);
