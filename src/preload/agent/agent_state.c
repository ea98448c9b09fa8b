/* agent_state.c: owns the agent's state, and the functions that depend on that state alone. */
#include "preload/agent/agent_state.h"

#include "preload/freeze/freeze.h"
#include "preload/process/front_calls.h"

struct agent_state agent = {.waits_ns = WAITS_NS};

uint64_t agent_tick(void)
{
        if (agent.prompt)
                return PROMPT_TICK_NS;
        return front_is_there() ? RANK_TICK_NS : TICK_NS;
}

enum own_drain agent_own_drain(void)
{
        FOR_EACH_PART (p, own) {
                if (p->own() != OWN_NONE)
                        return p->own();
        }
        return OWN_NONE;
}

void agent_cancel_own(void)
{
        FOR_EACH_PART (p, cancel) {
                p->cancel();
        }
}

bool agent_wants_to_run(void)
{
        return !agent.paused && (core.running || !agent.waits) &&
               (core.waiters > 0 || agent.unfinished || freeze_stands());
}

/* A program with a lease may run only when all evicted memory is back. If the daemon has refused
 * the program, new memory must be backed, too. */
bool agent_all_is_back(void)
{
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct heap_cursor c = {0};
                struct extent *e;

                if (daemon_line.link == LINK_REFUSED && heap_missing(&core.gpus[i].heap) > 0)
                        return false;
                while ((e = heap_walk(&core.gpus[i].heap, &c)))
                        if (e->state == EXTENT_EVICTED || e->busy)
                                return false;
        }
        return true;
}

void agent_send_lease(unsigned type)
{
        struct wire_message m = {0};

        m.IDLE.lease =
                daemon_line.instance ? core.lease : 0; /* IDLE, ACTIVE and DRAINED have one shape */
        daemon_send(&m, type, WIRE_NO_GPU);
}
