/* agent.c: the agent as others see it, for unit tests: it grants what is asked for. */
#include "unit.h"

#include "fakes/neighbours.h"
#include "preload/agent/agent.h"

#define WEAK __attribute__((weak))

unsigned agent_kicks, agent_shorts, agent_comes;

static void check_held(void)
{
        assert_int_not_equal(atomic_load(&core.lock.word), 0);
}

WEAK void agent_kick(void)
{
        agent_kicks++;
}

WEAK void agent_come_in(void)
{
        check_held();
        agent_comes++;
}

WEAK void agent_figures(struct gpu *g)
{
        g->usage_dirty = true;
}

WEAK void agent_released(void)
{
        bell_ring(&core.changed);
}

WEAK void agent_short(struct gpu *g, uint64_t bytes)
{
        check_held();
        agent_shorts++;
}

WEAK int agent_ask_host(uint64_t more)
{
        if (core_host_mapped() + more > core.host.allowed)
                return -1;
        core.host.taking += more;
        return 0;
}

WEAK bool agent_may_map(uint64_t more)
{
        return core_host_mapped() + more <= core.host.allowed;
}

WEAK int agent_take_fixed(struct gpu *g, uint64_t more)
{
        g->fixed += more;
        return 0;
}

WEAK void agent_return_fixed(struct gpu *g, uint64_t bytes)
{
        g->fixed -= bytes;
}

WEAK bool agent_is_up(void)
{
        return true;
}
