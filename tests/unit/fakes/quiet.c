/* quiet.c: a process that has nothing in flight, for unit tests. */
#include "unit.h"

#include "fakes/neighbours.h"
#include "preload/stream/quiet.h"

#define WEAK __attribute__((weak))

bool fake_capturing;

WEAK bool quiet_capturing(void)
{
        return fake_capturing;
}

WEAK void quiet_begin(struct quiet_wait *w, bool still)
{
}

WEAK enum quiet quiet_poll(struct quiet_wait *w)
{
        return fake_capturing ? QUIET_CAPTURE : QUIET_DONE;
}

WEAK void quiet_wait_all(void)
{
}

WEAK void quiet_thread_ended(const struct gate_thread *t)
{
}
