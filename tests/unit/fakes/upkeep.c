/* upkeep.c: what the agent sees to from time to time, of which there is nothing, for unit tests. */
#include "unit.h"

#include "preload/extra/caches.h"
#include "preload/state/core.h"
#include "preload/move/fixed.h"
#include "preload/pool/pool.h"
#include "preload/extra/sums.h"

#define WEAK __attribute__((weak))

WEAK bool caches_hold(bool may_evict, uint64_t now)
{
        return false;
}

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

WEAK uint64_t pool_tend(void)
{
        return UINT64_MAX;
}

WEAK uint64_t fixed_tend(uint64_t now_ns)
{
        return UINT64_MAX;
}

WEAK void sums_tell(bool last)
{
}

WEAK bool core_reap_late(void)
{
        return false;
}
