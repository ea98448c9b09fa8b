/* agent_slice.c: owns what the daemon says of the GPU's time: the time slice, its hand, and whether
 * others stand still meanwhile. The driver sets its own slice a
 * moment after it has made a group of channels, so the daemon's is set again a second later.
 * Why: docs/decisions.md, "The daemon sets time slices". */
#include "preload/agent/agent_state.h"

#include "base/log.h"
#include "preload/rm/rm.h"

#define LOOK_NS NSEC_PER_SEC

static struct {
        uint64_t ns; /* 0: the driver's own */
        uint64_t look_ns;
        unsigned seen, set; /* rm_groups_made() at the last look, and when the slice was set */
} slice;

void agent_set_slice(uint64_t ns)
{
        if (ns == slice.ns)
                return;
        slice.ns = ns;
        slice.set = UINT32_MAX;
        log_debug("time slice: %llu us", (unsigned long long)(ns / NSEC_PER_USEC));
        rm_slice(ns / NSEC_PER_USEC);
}

void agent_on_slice(const struct wire_message *m, struct gpu *g, struct passed *came)
{
        agent_set_slice(m->SLICE.slice_ns);
}

void agent_look_at_slice(uint64_t now)
{
        unsigned made;

        if (!slice.ns || now < slice.look_ns)
                return;
        made = rm_groups_made();
        slice.look_ns = now + LOOK_NS;
        if (made != slice.set && made == slice.seen) {
                rm_slice(slice.ns / NSEC_PER_USEC);
                slice.set = made;
        }
        slice.seen = made;
}

void agent_on_hand(const struct wire_message *m, struct gpu *g, struct passed *came)
{
        const int line = passed_take(came), page = passed_take(came);

        rm_offer_hand(page, line);
}

void agent_on_prompt(const struct wire_message *m, struct gpu *g, struct passed *came)
{
        agent.prompt = m->PROMPT.prompt != 0;
        agent.tick_ns = MIN(agent.tick_ns, clock_now_ns() + agent_tick());
        bell_ring(&core.changed);
}
