/* interrupt.c: a fake of interrupt.h for unit tests: no signal interrupts a wait. */
#include "unit.h"

#include "preload/stream/interrupt.h"

#define WEAK __attribute__((weak))

WEAK void interrupt_begin(struct interrupt_wait *w)
{
}

WEAK bool interrupt_ends(struct interrupt_wait *w, uint64_t *ret_timeout_ns)
{
        *ret_timeout_ns = UINT64_MAX;
        return false;
}
