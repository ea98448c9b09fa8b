/* ipc.c: a fake for unit tests: no process shares memory with this one. */
#include "unit.h"

#include <errno.h>

#include "preload/state/core.h"
#include "preload/share/ipc.h"

#define WEAK __attribute__((weak))

WEAK bool ipc_step(void)
{
        return false;
}

WEAK void ipc_told(void)
{
}

WEAK int ipc_poll_fd(void)
{
        return -EBADF;
}

WEAK void ipc_connected(void)
{
}

WEAK void ipc_disconnected(void)
{
}

WEAK void ipc_on_named(const struct wire_message *m)
{
}

WEAK void ipc_on_peered(const struct wire_message *m, struct passed *came)
{
}

WEAK void ipc_on_refused(const struct wire_message *m)
{
}

WEAK void ipc_forget(void)
{
}
