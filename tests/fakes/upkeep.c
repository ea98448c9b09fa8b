/* upkeep.c: a fake for unit tests: pools and frameworks keep no spare memory. */
#include "unit.h"

#include "preload/move/caches.h"
#include "preload/state/core.h"
#include "preload/pool/pool.h"

#define WEAK __attribute__((weak))

WEAK bool caches_may_answer(void)
{
        return false;
}

WEAK void pool_hold(void)
{
}

WEAK void pool_let(void)
{
}
