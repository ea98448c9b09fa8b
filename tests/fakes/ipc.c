/* ipc.c: a fake for unit tests: no process shares memory with this one. */
#include "unit.h"

#include <errno.h>

#include "fakes/preload.h"
#include "preload/state/core.h"
#include "preload/share/ipc.h"

#define WEAK __attribute__((weak))

WEAK int ipc_poll_fd(void)
{
        return -EBADF;
}

WEAK void ipc_on_named(const struct wire_message *m)
{
}

WEAK void ipc_on_peered(const struct wire_message *m, struct passed *came)
{
}

bool no_ipc;
WEAK bool ipc_works(void)
{
        return !no_ipc;
}
