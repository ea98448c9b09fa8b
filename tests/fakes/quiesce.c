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

CUstream fake_captured = (CUstream)UINTPTR_MAX;
WEAK bool quiesce_is_capturing(CUstream stream)
{
        return stream == fake_captured;
}

WEAK CUcontext quiesce_owner(CUcontext current)
{
        return current;
}

unsigned quiesce_begins;
WEAK void quiesce_begin(struct quiesce_wait *w, bool still)
{
        if (still)
                is_wrong("it waits as if the program stood still");
        quiesce_begins++;
}

enum quiescence quiesce_now = QUIESCE_DONE;
WEAK enum quiescence quiesce_poll(struct quiesce_wait *w)
{
        if (anybody_inside)
                is_wrong("it looks at the work while a thread may submit more");
        if (quiesce_begins == 0)
                is_wrong("it looks at the work before it begins to wait");
        return fake_capturing ? QUIESCE_CAPTURE : quiesce_now;
}

const struct gate_thread *ended_thread;
WEAK void quiesce_thread_ended(const struct gate_thread *t)
{
        want_lock();
        ended_thread = t;
}

void (*while_it_drains)(void);
WEAK void quiesce_wait_all(void)
{
        give_up_lock();
        if (while_it_drains)
                while_it_drains();
}
