/* overflow.c: nothing lies in host memory, for unit tests. */
#include "unit.h"

#include "preload/state/core.h"
#include "preload/extra/overflow.h"

#define WEAK __attribute__((weak))

WEAK void overflow_changed(struct gpu *g)
{
}

WEAK void overflow_step(uint64_t now)
{
}

WEAK bool overflow_drained(void)
{
        return false;
}

WEAK bool overflow_drain_failed(void)
{
        return false;
}

WEAK void overflow_cancel(void)
{
}

WEAK bool overflow_holds(void)
{
        return false;
}

WEAK bool overflow_move(void)
{
        return false;
}

WEAK uint64_t overflow_next_ns(void)
{
        return UINT64_MAX;
}
