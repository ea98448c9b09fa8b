/* agent_unpin.c: owns the moments in which a program that runs is drained to give host memory back.
 * Must never hold the program up when the host has what others lack.
 * Why: docs/decisions.md, "A program that runs gives host memory back, too". */
#include "preload/agent/agent_unpin.h"

#include "base/macros.h"
#include "preload/agent/agent_state.h"
#include "preload/move/swap.h"

#define PATIENCE_NS (200 * NSEC_PER_MSEC) /* for work that needs what the gate holds back */
#define LATER_NS    (20 * NSEC_PER_MSEC)  /* if the program cannot be drained now */
#define SPACING_NS  NSEC_PER_SEC          /* after a drain that failed; doubled each time */
#define SPACING_MAX (32 * NSEC_PER_SEC)

static struct {
        enum { REST, DRAINS, UNPINS } phase;
        uint64_t next_ns, spacing_ns;
} unpin = {.spacing_ns = SPACING_NS};

static bool is_asked(void) REQUIRES(core_lock)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (swap_is_to_unpin(&core.gpus[i]))
                        return true;
        return false;
}

void agent_unpin_step(uint64_t now)
{
        if (unpin.phase != REST || now < unpin.next_ns || !is_asked())
                return;
        if (!core.running || agent.revoking || !core.lease || agent_own_drain() != OWN_NONE ||
            quiesce_capturing()) {
                unpin.next_ns = now + LATER_NS;
                return;
        }
        unpin.phase = DRAINS;
        agent_begin_drain(PATIENCE_NS, false); /* the driver unpins nothing of a frozen program */
}

uint64_t agent_unpin_next_ns(void)
{
        if (unpin.phase != REST)
                return unpin.phase == UNPINS ? 0 : UINT64_MAX;
        return core.running && is_asked() ? unpin.next_ns : UINT64_MAX;
}

bool agent_unpin_move(void)
{
        bool more = false;

        lock_acquire(&core_lock);
        if (unpin.phase != UNPINS) {
                lock_release(&core_lock);
                return false;
        }
        lock_release(&core_lock);
        for (unsigned i = 0; i < core.gpu_count; i++)
                more = swap_unpin_step(&core.gpus[i]) || more;
        if (more)
                return true;
        lock_acquire(&core_lock);
        if (unpin.phase == UNPINS) { /* not cancelled meanwhile */
                unpin.phase = REST;
                unpin.spacing_ns = SPACING_NS;
                agent_end_drain();
        }
        lock_release(&core_lock);
        return false;
}

enum own_drain agent_unpin_own(void)
{
        return unpin.phase == REST ? OWN_NONE : OWN_MOVES;
}

bool agent_unpin_drained(void)
{
        if (unpin.phase != DRAINS)
                return false;
        unpin.phase = UNPINS;
        return true;
}

bool agent_unpin_drain_failed(void)
{
        if (unpin.phase != DRAINS)
                return false;
        unpin.phase = REST;
        unpin.next_ns = clock_now_ns() + unpin.spacing_ns;
        unpin.spacing_ns = MIN(2 * unpin.spacing_ns, SPACING_MAX);
        return true;
}

void agent_unpin_cancel(void)
{
        if (unpin.phase == REST)
                return;
        unpin.phase = REST;
        agent_end_drain();
}
