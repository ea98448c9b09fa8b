/* agent_self.c: owns figures that the daemon only displays: bytes that took no copy, bytes on the
 * host, how memory is shared, how long the process has run. No decision may depend on them. */
#include "preload/agent/agent_state.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/macros.h"
#include "preload/freeze/freeze.h"
#include "preload/state/daemon.h"
#include "preload/process/lock.h"

static enum wire_memory mode_of(const struct gpu *g)
{
        return g->overflow       ? WIRE_MEMORY_OVERFLOW
               : g->heap.managed ? WIRE_MEMORY_MANAGED
                                 : WIRE_MEMORY_SWAP;
}

/* True during a turn, as the daemon counts it: until the program is drained. */
static bool is_busy(void) REQUIRES(core_lock)
{
        return (core.running || core.lease) && !agent.idle_said;
}

/* The agent calls it several times a second while the program runs. If more than 2 s have passed,
 * the process was stopped, so only 2 s count. */
void agent_self_count(uint64_t now)
{
        if (agent.busy_since_ns)
                agent.ran_ns += MIN(now - agent.busy_since_ns, 2 * NSEC_PER_SEC);
        agent.busy_since_ns = is_busy() ? now : 0;
}

void agent_self_connected(void)
{
        agent.ran_before_ns = agent.ran_ns;
}

/* Sends a message about a GPU if it differs from *said, the last one of its type. Updates *said. */
static void tell_changed(struct wire_message *m, unsigned type, const struct gpu *g, void *said)
{
        const size_t size = wire_size(type) - sizeof(m->header);

        if (memcmp(said, &m->HELLO, size) == 0)
                return;
        memcpy(said, &m->HELLO, size);
        daemon_send(m, type, g->index);
}

void agent_self_spared(struct gpu *g)
{
        struct wire_message m = {.SPARED = {.out = g->spared_out, .in = g->spared_in}};

        tell_changed(&m, WIRE_SPARED, g, &g->told.spared);
}

void agent_self_tell(struct gpu *g)
{
        /* NVML names no process for managed bytes, so the daemon must know whose they are. */
        struct wire_message managed = {.MANAGED.bytes = g->heap.managed_bytes,
                                       .MANAGED.left = g->heap.managed_left};
        struct wire_message self = {
                .SELF = {.overflow = g->heap.mapped,
                         .keep = g->keep == UINT64_MAX ? 0 : g->keep,
                         .ran_ns = agent.ran_before_ns,
                         .mode = mode_of(g),
                         .way = g->mps ? WIRE_WAY_SHARED : WIRE_WAY_OWN},
        };

        tell_changed(&managed, WIRE_MANAGED, g, &g->told.managed);
        tell_changed(&self, WIRE_SELF, g, &g->told.self);
}

/* Returns why the program is frozen. Torture and overflow are no reasons here: they do not concern
 * the daemon. */
static uint32_t frozen_why(void) REQUIRES(core_lock)
{
        uint32_t why = agent.paused ? WIRE_FROZEN_PAUSED : 0;

        if (freeze_stands() && (!core.lease || !agent_all_is_back()))
                why |= WIRE_FROZEN_AWAY;
        return why;
}

void agent_self_frozen(void)
{
        struct freeze_figures f = freeze_figures();
        uint64_t stood_ns = agent.stood_ns ? clock_now_ns() - agent.stood_ns : 0;
        struct wire_message m = {.FROZEN = {.for_ns = MAX(f.for_ns, stood_ns),
                                            .times = f.times,
                                            .lost_ns = f.lost_ns,
                                            .took_ns = f.took_ns,
                                            .why = frozen_why(),
                                            .mode = freeze_mode()}};
        const char *off = freeze_off();
        uint64_t said;

        if (daemon_line.link != LINK_UP)
                return;
        said = 1 + m.FROZEN.why + ((uint64_t)m.FROZEN.mode << 8) +
               ((uint64_t)(m.FROZEN.for_ns > 0) << 16) + (f.times << 17);
        said = hash_add(said, off, strlen(off));
        if (agent.frozen_said == said)
                return;
        agent.frozen_said = said;
        (void)snprintf(m.FROZEN.off, sizeof(m.FROZEN.off), "%s", off);
        daemon_send(&m, WIRE_FROZEN, WIRE_NO_GPU);
}
