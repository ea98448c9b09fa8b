/* agent_freeze.c: owns the decision when to freeze the program: to give way, or because its owner
 * has paused it. Must never thaw the program: only agent_go_on() does.
 * Why: docs/decisions.md, "A program at rest is drained, not frozen". */
#include "preload/agent/agent_state.h"

#include <errno.h>

#include "base/macros.h"
#include "preload/stream/throttle.h"
#include "preload/freeze/freeze.h"
#include "preload/stream/gate.h"
#include "preload/process/hidden.h"
#include "preload/freeze/mover.h"
#include "preload/pool/pool.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/rm/rm.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"
#include "preload/process/lock.h"
#include "preload/process/nap.h"

#define MOMENT_NS      NSEC_PER_MSEC
#define STAND_AGAIN_NS NSEC_PER_SEC          /* pause between two tries to freeze in one drain */
#define LASTS_NS       (100 * NSEC_PER_MSEC) /* a drain that takes longer may need freezing */
#define IDLE_MOMENT_NS (20 * NSEC_PER_MSEC)  /* used if the daemon takes the program for idle */

/* ---- giving way ---- */

/* True if the program may have work in flight. First the known streams are queried. Then an event
 * of each whole context shows work on streams that no intercepted call has shown us. The event
 * comes second, because with drivers before CUDA 12.5 recording it waits for room in a full queue.
 * If an idle program is wrongly taken for busy, it is restored for nothing. So it gets more time,
 * and a last look, because this thread may have waited for a processor. */
static bool has_work_in_flight(void) UNLOCKS(core_lock)
{
        const uint64_t until = clock_now_ns() + (agent.idle ? IDLE_MOMENT_NS : MOMENT_NS);
        struct quiesce_wait w = {0};
        bool busy = true, late = false;

        if (gate_anybody_inside() || quiesce_capturing() || hidden_library())
                return true;
        quiesce_begin(&w, true);
        if (quiesce_poll(&w) != QUIESCE_DONE)
                return true;
        quiesce_begin(&w, false);
        while (busy && !late) {
                late = clock_now_ns() >= until;
                busy = quiesce_poll(&w) != QUIESCE_DONE;
                lock_release(&core_lock);
                if (busy)
                        (void)nap(MOMENT_NS / 16);
                lock_acquire(&core_lock);
        }
        return busy || gate_anybody_inside();
}

/* True if each GPU with a context has a mover, and only movers move memory. */
static bool movers_are_there(void)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].context &&
                    !(core.gpus[i].mover && swap_moves_apart(&core.gpus[i])))
                        return false;
        return true;
}

bool agent_stand_still(void)
{
        bool ok;

        if (!movers_are_there() || !freeze_is_ready())
                return false;
        agent.freezes = false;
        /* Do not freeze a program at rest: its next calls that need the GPU would wait, and we
         * would not notice that it wants to go on. Torture may do so, because it lets the program
         * go on in any case. */
        if (!freeze_stands())
                agent.unfinished = has_work_in_flight();
        if (!freeze_stands() && !agent.unfinished && agent_own_drain() < OWN_DRAINS)
                return false;
        ok = agent.revoking && freeze_begin();
        if (ok) {
                gate_shut(GATE_FROZEN);
                pool_hold();
                ok = freeze_confirm();
        }
        if (!ok) {
                agent_memory_stays();
                agent.freezes = true; /* the drain may last, and the failure may pass */
                agent.freeze_ns = clock_now_ns() + STAND_AGAIN_NS;
        }
        return ok;
}

void agent_memory_stays(void)
{
        pool_let();
        gate_open(GATE_FROZEN);
        bell_ring(&core.changed);
}

/* ---- pausing ---- */

void agent_pause(bool paused)
{
        if (agent.paused == paused)
                return;
        agent.paused = paused;
        agent.stood_ns = 0;
        if (paused)
                agent_cancel_own();
        for (unsigned i = 0; i < core.gpu_count; i++)
                core.gpus[i].request_dirty = core.gpus[i].attached;
        bell_ring(&core.changed);
}

bool agent_pause_step(void)
{
        bool again = false;

        if (!agent.paused || agent.revoking)
                return false;
        if (core.running) {
                core.running = false;
                gate_shut(GATE_NO_LEASE);
                agent.unfinished = has_work_in_flight();
        }
        if (agent.in_use && !freeze_stands()) {
                again = freeze_prepare(true);
                /* Moves in progress end first: the moving thread may wait for the program's own
                 * context. */
                if (agent.paused && freeze_is_ready() && agent_all_is_back())
                        (void)freeze_begin();
                again = again || (freeze_is_ready() && !freeze_stands());
        }
        if (!agent.paused || (agent.in_use && !freeze_stands()))
                return again;
        if (!agent.stood_ns)
                agent.stood_ns = clock_now_ns();
        if (core.lease && daemon_line.link == LINK_UP && !agent.idle_said && agent_all_is_back()) {
                agent_self_frozen();
                agent.idle = agent.idle_said = true;
                agent_send_lease(WIRE_IDLE);
        }
        return again;
}

/* ---- movers, which freezing needs ---- */

/* Returns the bytes to request for a mover. Its limits are set after its context is made; until
 * then it may take as much as any other context. */
static uint64_t mover_request(const struct gpu *g) REQUIRES(core_lock)
{
        return g->context_bytes + g->mover_more + MOVER_SPARE_BYTES;
}

/* A rank cannot give way without a mover, so a rank's mover is not spare. */
bool agent_holds_spare(const struct gpu *g)
{
        return g->mover_room > 0 && !agent.takes_turns;
}

bool agent_wants_spare(const struct gpu *g)
{
        return request_is_movers(g) && !agent.takes_turns;
}

/* Requests room for the mover's context, but only while the program runs and can be frozen: other
 * programs must not make room for a context that is not made. False: there is no room now. */
static bool mover_has_room(struct gpu *g) REQUIRES(core_lock)
{
        const uint64_t bytes = mover_request(g);
        uint32_t seen = g->refused_unevictable.count;
        int r;

        if (g->mover_room)
                return true;
        if (g->unevictable_requested > g->unevictable_allowed && !request_is_movers(g)) {
                g->mover_asks = false; /* a thread's request comes first */
                return false;
        }
        g->mover_request = bytes;
        r = request_try_unevictable(g, bytes, &seen);
        g->mover_asks = r == -EAGAIN;
        if (r == 0)
                g->mover_room = bytes;
        return r == 0;
}

void agent_mover_unwanted(struct gpu *g)
{
        g->mover_unwanted = true;
        if (!g->mover_room)
                g->request_dirty = true; /* tell the daemon that the mover has no room */
}

static void mover_give_up(struct gpu *g) REQUIRES(core_lock)
{
        if (!g->mover && (g->mover_room || g->mover_asks)) {
                request_return_unevictable(g, g->mover_room);
                g->mover_room = 0;
                g->mover_asks = false;
        }
}

static bool mover_is_wanted(const struct gpu *g) REQUIRES(core_lock)
{
        return g->context && freeze_mode() == WIRE_FREEZE_MOVE && !g->mover_unwanted;
}

/* True if the agent, or a thread in extent_replace(), uses the mover. */
static bool mover_is_used(struct gpu *g)
{
        struct heap_cursor c = {0};
        const struct extent *e;

        if (!swap_is_still(g))
                return true;
        while (g->mover && (e = heap_walk(&g->heap, &c)))
                if (e->busy)
                        return true;
        return false;
}

/* Ends the mover if nothing uses it. False: there is no mover. */
static bool mover_end(struct gpu *g) UNLOCKS(core_lock)
{
        struct mover *m = g->mover;

        if (mover_is_used(g))
                return m != NULL;
        if (g->mover_unwanted)
                g->mover_ns = clock_now_ns() + MOVER_AGAIN_NS;
        g->mover_unwanted = false;
        if (m) {
                g->mover = NULL; /* from here on no thread begins to use the mover */
                lock_release(&core_lock);
                swap_leave_mover(g, m);
                mover_free(m);
                lock_acquire(&core_lock);
        }
        mover_give_up(g);
        return m != NULL;
}

/* A mover could not be made. Its context may take more on this card than expected, so the next
 * request is larger, up to twice as large. */
static void mover_failed(struct gpu *g) REQUIRES(core_lock)
{
        uint64_t more = MIN(MAX(2 * g->mover_more, g->context_bytes / 4), g->context_bytes);

        if (more == g->mover_more)
                g->mover_ns = clock_now_ns() + MOVER_AGAIN_NS;
        g->mover_more = more;
        mover_give_up(g);
}

/* Makes or ends a mover. False: there was nothing to do. */
static bool mover_step(struct gpu *g) UNLOCKS(core_lock)
{
        struct mover *m = g->mover;
        uint64_t kept;

        if (!mover_is_wanted(g))
                return mover_end(g);
        if (m)
                return false;
        if (clock_now_ns() < g->mover_ns || !freeze_is_ready() || !mover_has_room(g) ||
            !core_keep_context(g))
                return false;
        lock_release(&core_lock);
        m = mover_new(g);
        lock_acquire(&core_lock);
        core_let_context(g);
        g->mover = m;
        if (!m) {
                mover_failed(g);
                return true;
        }
        /* With its small limits (mover.h) the mover's context takes about half of the requested
         * bytes, so return the other half. The daemon learns the true figure from NVML. */
        kept = g->mover_room - (g->mover_room - MOVER_SPARE_BYTES) / 2;
        request_return_unevictable(g, g->mover_room - kept);
        g->mover_room = kept;
        return true;
}

bool agent_freezes(void)
{
        return freeze_mode() == WIRE_FREEZE_MOVE && freeze_is_ready() && movers_are_there();
}

/* The throttle keeps drains short. A program that can be frozen needs no drain, so it is not
 * throttled: a launch that the throttle held back for longer than a turn would never be
 * submitted. */
void agent_throttle(void)
{
        uint64_t ns = agent_freezes() ? 0 : agent.contested_ns;

        if (ns == agent.throttle_ns)
                return;
        agent.throttle_ns = ns;
        throttle_set(ns);
}

/* True while the agent prepares freezing: the program runs, or its drain takes long, perhaps
 * because freezing has just failed. */
static bool makes_ready(void) REQUIRES(core_lock)
{
        if (freeze_stands())
                return false;
        if (agent.revoking)
                return agent.freezes && agent.in_use &&
                       clock_now_ns() - agent.revoked_ns > LASTS_NS;
        return core.running;
}

/* Outstanding page faults delay a freeze, and with it all processes' calls to the kernel driver. So
 * the hand leaves programs with managed memory alone. */
static bool hand_may_act(void) REQUIRES(core_lock)
{
        bool managed = false;

        for (unsigned i = 0; i < core.gpu_count; i++)
                managed = managed || core.gpus[i].heap.managed_bytes > 0;
        return !managed && freeze_is_shared();
}

bool agent_freeze_step(void)
{
        bool again = false;

        agent_throttle();
        rm_hand_ready(hand_may_act());
        if (!makes_ready()) {
                for (unsigned i = 0; i < core.gpu_count; i++) {
                        struct gpu *g = &core.gpus[i];

                        mover_give_up(g);
                        if (g->mover_unwanted && !freeze_stands())
                                again = mover_end(g) || again;
                }
                return again;
        }
        again = freeze_prepare(false);
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (makes_ready())
                        again = mover_step(&core.gpus[i]) || again;
        return again;
}
