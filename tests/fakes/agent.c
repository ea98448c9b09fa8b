/* agent.c: a fake for unit tests: a drain begins and ends at once. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/agent/agent.h"
#include "preload/agent/agent_state.h"

#define WEAK __attribute__((weak))

struct agent_state agent WEAK;
struct drains own_drains;

WEAK void agent_begin_drain(uint64_t patience_ns, bool freezes)
{
        assert_int_equal(freezes, own_drains.freeze);
        own_drains.begun++;
        own_drains.patience_ns = patience_ns;
        agent.revoking = true;
        core.running = false;
}

bool may_start = true;
WEAK bool agent_may_start(void)
{
        return may_start;
}

WEAK void agent_end_drain(void)
{
        own_drains.ended++;
        agent.revoking = false;
        core.running = true;
}
