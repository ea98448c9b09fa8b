/* quiesce.c: a fake for unit tests: the process has nothing in flight. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/stream/quiesce.h"

#define WEAK __attribute__((weak))

bool fake_capturing;

WEAK bool quiesce_capturing(void)
{
        return fake_capturing;
}

WEAK void quiesce_begin(struct quiesce_wait *w, bool still)
{
}

WEAK enum quiescence quiesce_poll(struct quiesce_wait *w)
{
        return fake_capturing ? QUIESCE_CAPTURE : QUIESCE_DONE;
}

WEAK void quiesce_wait_all(void)
{
}

WEAK void quiesce_thread_ended(const struct gate_thread *t)
{
}
