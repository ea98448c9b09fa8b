/* agent.c: owns the agent's thread, the lease and the steps of a drain. Must never block longer
 * than one bounded system call while the daemon may send a message, and must never evict memory
 * that is in use.
 * Why: docs/decisions.md, "A drain waits, or it fails" and "A rank that waits for another rank
 * gives way, and comes back when the wait is over". */
#include "preload/agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/heap/lent.h"
#include "preload/agent/agent_state.h"
#include "preload/move/caches.h"
#include "preload/state/core.h"
#include "preload/state/part.h"
#include "preload/process/cpus.h"
#include "preload/process/front_calls.h"
#include "preload/freeze/freeze.h"
#include "preload/rm/freeze_watch.h"
#include "preload/stream/gate.h"
#include "preload/process/hidden.h"
#include "preload/share/ipc.h"
#include "preload/stream/quiesce.h"
#include "preload/rm/rm.h"
#include "preload/agent/audit.h"
#include "preload/move/swap.h"
#include "preload/process/trace.h"
#include "preload/state/request.h"
#include "preload/state/daemon.h"

#define COPY_NAP_NS  (100 * NSEC_PER_USEC) /* 1 % of the time that copying an extent takes */
#define LATER_NS     (10 * NSEC_PER_MSEC)  /* pause after a failed cuMemCreate */
#define STOP_MOST_NS (2 * NSEC_PER_SEC)    /* a failed card must not keep a process from ending */
#define CACHES_NS    (30 * NSEC_PER_MSEC) /* most Python programs drain faster: freeze the others */
#define HANG_NS      (10 * NSEC_PER_SEC)  /* a driver call that moves memory takes milliseconds */
#define GROWS_NS     (200 * NSEC_PER_MSEC) /* a program that grew so recently is likely to go on */
#define LET_GO_LOOKS 100u /* polls, COPY_NAP_NS apart, for the last work and for the daemon */

/* ---- the course of a drain; core_lock held ---- */

void agent_go_on(void)
{
        if (freeze_stands())
                freeze_end();
        agent_memory_stays();
        agent.unfinished = agent.waits = false;
        agent.still_ns = clock_now_ns();
        agent.in_use = true;
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
}

void agent_begin_drain(uint64_t patience_ns, bool freezes)
{
        agent.revoking = true;
        agent.freezes = freezes;
        agent.freeze_ns = 0;
        agent.revoked_ns = agent.progress_ns = clock_now_ns();
        agent.patience_ns = patience_ns;
        agent.drain_begun = agent.idle_probe_on = false;
        core.running = false;
        gate_shut(GATE_NO_LEASE);
        trace_event("drain_begin", 0, 0);
}

void agent_end_drain(void)
{
        agent.revoking = false;
        if (agent.paused)
                agent.unfinished = agent.in_use; /* the program may have work in flight */
        else if (agent.in_use)
                agent_go_on();
}

static void drain_failed(enum wire_drain_failure reason) REQUIRES(core_lock)
{
        struct wire_message m = {0};

        agent_end_drain();
        trace_event("drain_failed", 0, 0);
        FOR_EACH_PART (p, drain_failed) {
                if (p->drain_failed())
                        return;
        }
        m.DRAIN_FAILED.lease = core.lease;
        m.DRAIN_FAILED.after_ns = clock_now_ns() - agent.revoked_ns;
        m.DRAIN_FAILED.reason = reason;
        daemon_send(&m, WIRE_DRAIN_FAILED, WIRE_NO_GPU);
        if (agent.idle && !agent.paused) { /* the daemon still takes the program for idle */
                agent.idle = false;
                agent_send_lease(WIRE_ACTIVE);
        }
}

static void drained(uint64_t now) REQUIRES(core_lock)
{
        agent.last_drain_ns = now - agent.revoked_ns;
        agent.revoking = agent.in_use = false;
        agent.unfinished = agent.unfinished && freeze_stands();
        agent.return_ns = now + WAITS_AWAY * agent.waits_ns;
        trace_event("drain_end", 0, 0);
        FOR_EACH_PART (p, drained) {
                if (p->drained())
                        return;
        }
        agent_send_lease(WIRE_DRAINED);
        core.lease = 0;
        for (unsigned i = 0; i < core.gpu_count; i++) {
                core.gpus[i].told.run = false;
                /* Never clear request_dirty here: a REQUEST for room may still have to be sent. */
                if (core.gpus[i].attached && agent_wants_to_run())
                        core.gpus[i].request_dirty = true;
        }
}

/* True if the program is frozen, or the drain was called off meanwhile. */
static bool drain_by_freezing(uint64_t now) UNLOCKS(core_lock)
{
        bool frozen;

        if (!agent.freezes || freeze_mode() != WIRE_FREEZE_MOVE || now < agent.freeze_ns ||
            now - agent.revoked_ns < (caches_may_answer() && !agent.paused ? CACHES_NS : 0))
                return false;
        frozen = agent_stand_still();
        if (!agent.revoking) {
                if (!agent.paused && agent.in_use)
                        agent_go_on();
                return true;
        }
        if (frozen)
                drained(clock_now_ns());
        return frozen;
}

static enum quiescence drain_look(void) UNLOCKS(core_lock)
{
        if (gate_anybody_inside())
                return QUIESCE_BUSY;
        if (!agent.drain_begun) {
                quiesce_begin(&agent.drain, true);
                agent.drain_begun = !quiesce_capturing();
                if (!agent.revoking || gate_anybody_inside())
                        return QUIESCE_BUSY;
        }
        return quiesce_poll(&agent.drain);
}

/* The drain fails if the work in flight may never end: it may wait for work that is held at the
 * gate or for another rank, or the program may have forgotten a capture. If no thread waits at the
 * gate, a long kernel is simply awaited. */
static void drain_check_progress(enum quiescence q, uint64_t now) REQUIRES(core_lock)
{
        /* Calls that return from the driver are progress, but not the calls of a capture. */
        uint64_t progress = agent.drain.progress + (quiesce_capturing() ? 0 : gate_submissions());

        if (progress != agent.drain_progress)
                agent.progress_ns = now;
        agent.drain_progress = progress;
        if (now - agent.progress_ns > agent.patience_ns &&
            (core.waiters > 0 || quiesce_capturing() || front_waits()))
                drain_failed(q == QUIESCE_CAPTURE ? WIRE_DRAIN_CAPTURE : WIRE_DRAIN_NO_PROGRESS);
}

static void drain_step(void) UNLOCKS(core_lock)
{
        uint64_t now = clock_now_ns();
        enum quiescence q;

        /* The program has not run in this turn. Some of its memory may still be evicted, so a
         * frozen program must not be thawed even for a moment. */
        if (!agent.in_use) {
                drained(now);
                return;
        }
        if (drain_by_freezing(now))
                return;
        if (agent.paused) {
                drain_failed(WIRE_DRAIN_PAUSED);
                return;
        }
        /* A pause has ended, and all memory of the frozen program is on the card. Thaw it: its work
         * in flight ends while the gate stays shut. */
        if (freeze_stands()) {
                freeze_end();
                agent_memory_stays();
        }
        if (hidden_library()) {
                hidden_tell();
                drain_failed(WIRE_DRAIN_HIDDEN);
                return;
        }
        q = drain_look();
        if (!agent.revoking)
                return; /* called off while the lock was given up */
        if (q == QUIESCE_DONE)
                drained(now);
        else
                drain_check_progress(q, now);
}

/* ---- idleness; core_lock held ---- */

/* True if nothing has happened for a while, as far as can be seen: no thread has submitted, no
 * stream has run empty, and the rank is still in the same wait. A long kernel that runs meanwhile
 * is not seen. */
static bool stands_still(uint64_t now, uint64_t submissions) REQUIRES(core_lock)
{
        const unsigned wait = front_waits();

        if (submissions != agent.seen_submissions || quiesce_capturing() ||
            agent.probe.progress != agent.seen_progress || wait != agent.seen_wait)
                agent.still_ns = now;
        agent.seen_wait = wait;
        agent.seen_submissions = submissions;
        agent.seen_progress = agent.probe.progress;
        return now - agent.still_ns >= agent.waits_ns;
}

/* Checks whether the work in flight still waits for other ranks: no message tells when that wait
 * ends. */
static void wait_step(uint64_t now) UNLOCKS(core_lock)
{
        const bool waits = front_waits();

        if (!waits)
                agent.waits_ns = WAITS_NS;
        if (!agent.waits || agent.revoking || now < agent.tick_ns)
                return;
        agent.tick_ns = now + agent_tick();
        if (core.running && agent.idle_probe_on && !gate_anybody_inside())
                (void)quiesce_poll(&agent.probe);
        if (waits && (core.running ? stands_still(now, gate_submissions()) : now < agent.return_ns))
                return;
        /* The freeze may also have stopped work that was not seen. The next turn gives such work
         * more time. */
        if (waits && !core.running)
                agent.waits_ns = MIN(2 * agent.waits_ns, WAITS_MOST_NS);
        agent.waits = false;
        if (core.running && agent.idle_said) {
                gate_open(GATE_TELL);
                core.submits = true;
        }
}

/* True if work is in flight. inside: a thread is in the driver, and may submit. */
static bool is_busy(bool inside) UNLOCKS(core_lock)
{
        if (inside) {
                agent.idle_probe_on = false;
                return true;
        }
        if (!agent.idle_probe_on) {
                quiesce_begin(&agent.probe, true);
                agent.idle_probe_on = true;
        }
        return quiesce_poll(&agent.probe) == QUIESCE_BUSY;
}

static void idle_step(uint64_t now) UNLOCKS(core_lock)
{
        uint64_t submissions;
        bool waits, inside;

        /* IDLE is sent once; a thread that submits later sends ACTIVE first. */
        if (!core.running || !core.lease || agent.revoking || agent.idle_said ||
            daemon_line.link != LINK_UP || now < agent.tick_ns)
                return;
        /* A rank that cannot be frozen keeps its turn while it waits: a drain would wait, too. */
        waits = front_waits() && agent_freezes();
        agent.tick_ns = now + agent_tick();
        submissions = gate_submissions();
        inside = gate_anybody_inside();
        if (submissions != agent.seen_submissions || (inside && !waits) || quiesce_capturing()) {
                agent.seen_submissions = submissions;
                agent.seen_wait = front_waits();
                agent.still_ns = now;
                agent.idle_probe_on = false;
                return;
        }
        if (!waits)
                agent.still_ns = now;
        agent.waits = is_busy(inside);
        if (agent.waits && !stands_still(now, submissions)) {
                agent.waits = false;
                return;
        }
        agent.idle_probe_on = agent.idle_probe_on && agent.waits;
        agent.idle = agent.idle_said = true;
        /* Set GATE_TELL first, then look once more: a thread that submits after GATE_TELL is set
         * reports it. */
        gate_shut(GATE_TELL);
        if ((gate_anybody_inside() && !agent.waits) || gate_submissions() != submissions) {
                agent.idle = agent.idle_said = agent.waits = false;
                gate_open(GATE_TELL);
                return;
        }
        agent_send_lease(WIRE_IDLE);
}

/* ---- the loop ---- */

static void agent_begin_to_run(void) REQUIRES(core_lock)
{
        const enum own_drain own = agent_own_drain();
        bool missing = false;

        if ((!core.lease && daemon_line.link != LINK_REFUSED && own == OWN_NONE) || core.running ||
            agent.revoking || own == OWN_EVICTS || own == OWN_MOVES || core.giveway.out ||
            agent.paused || !agent_all_is_back())
                return;
        FOR_EACH_PART (p, restored) {
                p->restored();
        }
        for (unsigned i = 0; i < core.gpu_count; i++) {
                missing = missing || heap_missing(&core.gpus[i].heap) > 0;
                core.gpus[i].told.run = false;
        }
        if (!missing)
                gate_open(GATE_UNBACKED);
        core.giveway = (struct giveway){0};
        if (agent.idle_said) { /* a pause has ended: the daemon takes us for idle */
                agent.idle = agent.idle_said = false;
                agent_send_lease(WIRE_ACTIVE);
        }
        agent_go_on();
        agent.seen_submissions = gate_submissions();
}

/* While the daemon refuses this program and some of its memory is evicted, decides whether all of
 * it leaves the card (giveway.h). */
static void give_way(void) REQUIRES(core_lock)
{
        uint64_t bytes = 0;

        if (daemon_line.link != LINK_REFUSED || core.running || agent.revoking || agent_own_drain())
                return;
        /* giveway_step() sees progress when these bytes change. A restore makes the resident bytes
         * grow, an eviction makes the backed bytes shrink. */
        for (unsigned i = 0; i < core.gpu_count; i++)
                bytes += core.giveway.out ? core.gpus[i].heap.backed : core.gpus[i].heap.resident;
        if (agent_all_is_back())
                core.giveway = (struct giveway){0};
        else
                (void)giveway_step(&core.giveway, agent_wants_to_run(), bytes, clock_now_ns(),
                                   agent_random());
        /* Memory that other processes have open, or that devices write to, stays on the card. */
        for (unsigned i = 0; i < core.gpu_count; i++)
                core.gpus[i].own_limit =
                        core.giveway.out ? core.gpus[i].export_granted : UINT64_MAX;
}

/* True if the daemon gives an idle program room for its evicted memory: other clients of its group
 * want to run, and have to wait until the memory of the whole group is on the card. */
static bool is_given_room(void) REQUIRES(core_lock)
{
        for (unsigned i = 0; i < core.gpu_count && !agent.paused; i++) {
                const struct gpu *g = &core.gpus[i];

                if (heap_missing(&g->heap) > 0 && g->heap.backed < g->limit)
                        return true;
        }
        return false;
}

/* The direction in which memory moves now. */
static void choose_direction(bool *ret_may_evict, bool *ret_restore) REQUIRES(core_lock)
{
        const enum own_drain own = agent_own_drain();
        const bool up = daemon_line.link == LINK_UP, out = core.giveway.out;

        *ret_may_evict = *ret_restore = false;
        if (agent.revoking)
                return;
        if (own >= OWN_DRAINS) {
                *ret_may_evict = own == OWN_EVICTS;
                *ret_restore = own != OWN_EVICTS;
        } else if (!core.running) {
                *ret_may_evict = !core.lease && !agent.in_use && (up || out);
                *ret_restore = (agent_wants_to_run() || core.lease || is_given_room()) &&
                               (up || daemon_line.link == LINK_REFUSED) && !out;
        }
}

/* Pins host memory ahead, but not while the program grows: pinning delays the driver calls of every
 * process, and other programs' evictions make room for that growth. */
static enum swap_progress pin_ahead(struct gpu *g)
{
        bool grows;

        lock_acquire(&core_lock);
        grows = clock_now_ns() - g->grew_ns < GROWS_NS;
        lock_release(&core_lock);
        if (grows)
                return SWAP_LATER;
        return swap_pin_ahead(g) ? SWAP_LATER : SWAP_NOTHING;
}

static enum swap_progress agent_swap(void)
{
        enum swap_progress progress, p;
        bool restore, may_evict, hold, stands, pins, unpins;
        unsigned n;

        lock_acquire(&core_lock);
        give_way();
        choose_direction(&may_evict, &restore);
        n = core.gpu_count;
        stands = freeze_stands();
        /* Pin nothing while a thread waits for memory. */
        pins = agent.contested_ns > 0 && core.waiters == 0 && !agent.revoking && !stands &&
               agent_own_drain() == OWN_NONE;
        /* While it unpins, the driver waits for all work in flight: never unpin while the program
         * runs. */
        unpins = !stands && !agent.revoking && !core.running && !agent.in_use &&
                 agent_own_drain() == OWN_NONE;
        hold = !stands && caches_hold(may_evict, clock_now_ns());
        lock_release(&core_lock);
        progress = hold ? SWAP_COPYING : SWAP_NOTHING; /* look again soon */
        if (stands)
                freeze_watch_begin(HANG_NS, false);
        for (struct gpu *g = core.gpus; g < core.gpus + n; g++) {
                if (!g->managed)
                        continue;
                rm_make_for(g->mover ? CHANNELS_MOVER : CHANNELS_PROGRAM);
                p = swap_step(g, may_evict && !hold, restore);
                if (p == SWAP_NOTHING && pins)
                        p = pin_ahead(g);
                if (p == SWAP_NOTHING && unpins && swap_unpin_step(g))
                        p = SWAP_MORE;
                progress = MAX(progress, p);
        }
        rm_make_for(CHANNELS_PROGRAM);
        if (stands)
                (void)freeze_watch_end();
        return progress;
}

/* How long to sleep if nothing happens. */
static uint64_t agent_timeout(enum swap_progress progress, uint64_t now) REQUIRES(core_lock)
{
        uint64_t t = UINT64_MAX;

        if (progress == SWAP_MORE)
                return 0;
        if (progress == SWAP_COPYING)
                return COPY_NAP_NS;
        if (progress == SWAP_LATER)
                t = LATER_NS;
        if (agent.revoking)
                return MIN(MAX((now - agent.revoked_ns) / 8, 20 * NSEC_PER_USEC), NSEC_PER_MSEC);
        if (daemon_line.link == LINK_DOWN)
                t = sub_sat(agent.retry_ns, now);
        if (core.giveway.until_ns && !core.running)
                t = MIN(t, sub_sat(core.giveway.until_ns, now));
        if (agent.waits ||
            (core.running && core.lease && !agent.idle_said && daemon_line.link == LINK_UP))
                t = MIN(t, sub_sat(agent.tick_ns, now));
        t = MIN(t, sub_sat(agent.tell_ns, now));
        FOR_EACH_PART (p, next_ns) {
                t = MIN(t, sub_sat(p->next_ns(), now));
        }
        return t;
}

static void look_later(void) UNLOCKS(core_lock)
{
        const struct timespec ts = {.tv_nsec = COPY_NAP_NS};

        lock_release(&core_lock);
        (void)nanosleep(&ts, NULL);
        lock_acquire(&core_lock);
}

/* Sleeps until the daemon or another process sends a message, or request_kick() is called. The two
 * descriptors were read under the lock; a thread that changes one calls request_kick(). */
static void agent_sleep(uint64_t timeout_ns, int daemon, int others)
{
        const struct timespec ts = {.tv_sec = (time_t)(timeout_ns / NSEC_PER_SEC),
                                    .tv_nsec = (long)(timeout_ns % NSEC_PER_SEC)};
        struct pollfd fds[3] = {{.fd = request_fd(), .events = POLLIN},
                                {.fd = daemon, .events = POLLIN},
                                {.fd = others, .events = POLLIN}};

        (void)ppoll(fds, 3, timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
        request_woken();
}

/* Work that is left to do; core_lock held. */
struct leftover {
        bool more;        /* call agent_clean() again soon */
        uint64_t tend_ns; /* when the next work is due */
};

static struct leftover agent_clean(void)
{
        struct leftover left = {.tend_ns = UINT64_MAX};

        FOR_EACH_PART (p, clean) {
                left.more = p->clean() || left.more;
        }
        if (freeze_stands())
                return left; /* tend() queries streams, which do not answer while frozen */
        FOR_EACH_PART (p, tend) {
                left.tend_ns = MIN(left.tend_ns, p->tend(clock_now_ns()));
        }
        return left;
}

/* One round of the loop, and how long the agent may sleep after the round. */
struct round {
        enum swap_progress progress;
        struct leftover left;
        bool again; /* ipc_step() has more to do: the next round follows at once */
};

/* Handles what the daemon, other processes and the program's threads have asked for. */
static void take_orders(struct round *r) UNLOCKS(core_lock)
{
        bool soon;

        if (daemon_line.link == LINK_DOWN && clock_now_ns() >= agent.retry_ns)
                agent_connect();
        agent_listen();
        FOR_EACH_PART (p, step) {
                p->step(clock_now_ns());
        }
        if (agent.revoking)
                drain_step();
        soon = agent_pause_step();
        soon = agent_freeze_step() || soon;
        r->left = agent_clean();
        r->left.more = r->left.more || soon;
        r->again = ipc_step();
        agent_tell(); /* a lowered limit is acknowledged before the first byte moves */
}

static void move_memory(struct round *r)
{
        r->progress = agent_swap();
        FOR_EACH_PART (p, move) {
                if (p->move())
                        r->progress = SWAP_MORE;
        }
}

/* Lets the program run if it may, and says how long to sleep. */
static uint64_t finish_round(struct round *r) UNLOCKS(core_lock)
{
        uint64_t timeout, notice_ns;

        if (agent_own_drain() == OWN_EVICTS && r->progress <= SWAP_LATER) {
                FOR_EACH_PART (p, evicted) {
                        p->evicted();
                }
                r->progress = SWAP_MORE;
        }
        agent_begin_to_run();
        agent_look_at_slice(clock_now_ns());
        wait_step(clock_now_ns());
        idle_step(clock_now_ns());
        notice_ns = agent_notice(clock_now_ns());
        agent_tell();
        ipc_told();
        audit_tell(false);
        timeout = MIN(agent_timeout(r->progress, clock_now_ns()), r->left.tend_ns);
        timeout = MIN(timeout, sub_sat(notice_ns, clock_now_ns()));
        if (r->left.more)
                timeout = MIN(timeout, LATER_NS);
        return r->again ? 0 : timeout;
}

/* Shuts the gate and waits a moment for the program's last work. */
static bool work_has_ended(void) UNLOCKS(core_lock)
{
        enum quiescence q;

        core.running = agent.drain_begun = false;
        agent.revoking = true;
        gate_shut(GATE_NO_LEASE);
        q = drain_look();
        for (unsigned looks = 0; q != QUIESCE_DONE && looks < LET_GO_LOOKS; looks++) {
                look_later();
                q = drain_look();
        }
        agent.revoking = false;
        return q == QUIESCE_DONE;
}

/* The process exits while others wait for its memory. The kernel would give the card's memory back
 * last, seconds later if much host memory is pinned. So the agent gives that memory back first. */
static void agent_let_go(void) UNLOCKS(core_lock)
{
        const uint64_t until_ns = clock_now_ns() + STOP_MOST_NS / 2;

        if (core_passive() || !agent.contested_ns || agent.revoking || freeze_stands() ||
            daemon_line.link != LINK_UP || (agent.in_use && !work_has_ended()))
                return;
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].managed)
                        swap_let_go(&core.gpus[i], until_ns);
        if (core.lease)
                agent_send_lease(WIRE_DRAINED);
        core.lease = 0;
        agent.in_use = false;
        agent.paused = true; /* threads that still wait at the gate get no turn any more */
        /* The daemon lowers the limits, and gives the bytes to others once that is acknowledged. */
        for (unsigned looks = 0; daemon_line.link == LINK_UP && looks < LET_GO_LOOKS; looks++) {
                agent_tell();
                look_later();
                agent_listen();
        }
        agent_tell();
        /* Unpin in parts: the kernel would unpin all at once, and hold up the driver calls of every
         * process meanwhile. */
        lock_release(&core_lock);
        for (unsigned i = 0; i < core.gpu_count; i++)
                swap_unpin(&core.gpus[i], until_ns);
        lock_acquire(&core_lock);
}

/* The GPU has failed, or the process exits. The daemon keeps its figures of this process until the
 * process has ended. */
static void agent_end(void) REQUIRES(core_lock)
{
        if (core_passive())
                freeze_end(); /* wakes waiting threads; no memory returns to a failed GPU */
        else
                audit_tell(true);
        (void)close(daemon_line.fd);
        daemon_line.fd = -1;
        daemon_line.link = LINK_REFUSED;
        agent.started = false;
        bell_ring(&core.changed);
}

static void *agent_main(void *unused)
{
        (void)prctl(PR_SET_NAME, "sublet-agent");
        cpus_settle(); /* the helper threads and the daemon that this thread starts inherit this */
        (void)core_relax();
        while (!core_passive() && !atomic_load(&core.exiter)) {
                struct round r;
                uint64_t timeout;
                int daemon, others;

                lock_acquire(&core_lock);
                take_orders(&r);
                lock_release(&core_lock);
                move_memory(&r);
                lock_acquire(&core_lock);
                timeout = finish_round(&r);
                daemon = daemon_line.fd;
                others = ipc_poll_fd();
                lock_release(&core_lock);
                agent_sleep(timeout, daemon, others);
        }
        for (unsigned i = 0; i < core.gpu_count; i++)
                swap_rest(&core.gpus[i]);
        lock_acquire(&core_lock);
        agent_let_go();
        agent_end();
        lock_release(&core_lock);
        return NULL;
}

/* ---- for the program's threads ---- */

bool agent_start(void)
{
        return agent_begin(agent_main);
}

void agent_stop(void)
{
        uint64_t now = clock_now_ns(), until = now + STOP_MOST_NS;

        request_kick();
        while (atomic_load(&agent.started) && now < until) {
                uint32_t heard = bell_listen(&core.changed);

                if (atomic_load(&agent.started))
                        bell_wait(&core.changed, heard, until - now);
                now = clock_now_ns();
        }
}

void agent_attach(struct gpu *g)
{
        struct core_wait w = {.what = "the daemon"};

        if (!agent_start())
                return;
        if (agent.refused) { /* an earlier attempt was refused: make one more */
                agent.refused = false;
                agent.retry_ns = 0;
        }
        if (daemon_line.link == LINK_UP && !g->asked)
                agent_send_attach(g);
        else if (daemon_line.link == LINK_REFUSED || daemon_line.warned)
                agent_gpu_alone(g);
        request_kick();
        while (!g->managed && !agent.refused && !core_passive())
                core_wait(&w, UINT64_MAX);
}

void agent_forget(void)
{
        if (daemon_line.fd >= 0)
                (void)close(daemon_line.fd);
        daemon_line.fd = -1;
        lent_forget();
        ipc_forget();
        for (unsigned i = 0; i < core.gpu_count; i++) {
                passed_close(&core.gpus[i].leaving);
                passed_close(&core.gpus[i].passed);
        }
}
