/* torture.c: nobody is tortured, for unit tests. */
#include "unit.h"

#include "preload/extra/torture.h"

#define WEAK __attribute__((weak))

WEAK void torture_call(void)
{
}

WEAK void torture_step(uint64_t now)
{
}

WEAK bool torture_drained(void)
{
        return false;
}

WEAK bool torture_drain_failed(void)
{
        return false;
}

WEAK void torture_cancel(void)
{
}

WEAK bool torture_holds(void)
{
        return false;
}

WEAK bool torture_evicts(void)
{
        return false;
}

WEAK void torture_evicted(void)
{
}

WEAK void torture_restored(void)
{
}

WEAK uint64_t torture_next_ns(void)
{
        return UINT64_MAX;
}
