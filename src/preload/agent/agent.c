/* agent.c: owns the agent's thread, the lease and the course of a drain. Must never block longer
 * than one bounded system call while the daemon may have something to say, and never lets memory go
 * that is in use. */
#include "preload/agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/agent/agent_state.h"
#include "preload/extra/caches.h"
#include "preload/state/core.h"
#include "preload/process/cpus.h"
#include "preload/move/fixed.h"
#include "preload/freeze/freeze.h"
#include "preload/freeze/freeze_watch.h"
#include "preload/stream/gate.h"
#include "preload/process/hidden.h"
#include "preload/share/ipc.h"
#include "preload/process/libc_compat.h"
#include "preload/extra/overflow.h"
#include "preload/state/poison.h"
#include "preload/pool/pool.h"
#include "preload/stream/quiet.h"
#include "preload/freeze/rm.h"
#include "preload/extra/sums.h"
#include "preload/move/swap.h"
#include "preload/extra/torture.h"
#include "preload/process/trace.h"

#define COPY_NAP_NS                                                                               \
        (100 * NSEC_PER_USEC) /* while copies are in flight: 1 % of an extent's time at bus speed \
                               */
#define LATER_NS                                                                         \
        (10 * NSEC_PER_MSEC) /* after a create that failed, while memory is still in use \
                              */
#define STOP_MOST_NS     (2 * NSEC_PER_SEC) /* a card that has failed must not keep a process */
#define SHORT_SPACING_NS (10 * NSEC_PER_MSEC)
#define CACHES_NS        (30 * NSEC_PER_MSEC) /* most programs in Python drain in less */
#define HANG_NS          (10 * NSEC_PER_SEC) /* a driver call that moves memory takes milliseconds */

struct agent_state agent = {.fd = -1, .wake = -1};

/* ---- the course of a drain; core.lock held ---- */

void agent_go_on(void)
{
        if (freeze_stands())
                freeze_end();
        agent_memory_stays();
        agent.unfinished = false;
        agent.in_use = true;
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
}

bool agent_wants_to_run(void)
{
        return !agent.paused && (core.waiters > 0 || agent.unfinished || freeze_stands());
}

void agent_begin_drain(uint64_t patience_ns, bool freezes)
{
        agent.revoking = true;
        agent.freezes = freezes && freeze_mode() == WIRE_FREEZE_MOVE;
        agent.revoked_ns = agent.progress_ns = clock_now_ns();
        agent.patience_ns = patience_ns;
        agent.drain_begun = false;
        core.running = false;
        gate_shut(GATE_NO_LEASE);
        trace_event("drain_begin", 0, 0);
}

void agent_end_drain(void)
{
        agent.revoking = false;
        if (agent.paused)
                agent.unfinished = agent.in_use; /* for all that is known */
        else if (agent.in_use)
                agent_go_on();
}

static void drain_failed(enum wire_drain_failure reason)
{
        struct wire_message m = {0};

        agent_end_drain();
        trace_event("drain_failed", 0, 0);
        if (torture_drain_failed() || overflow_drain_failed())
                return;
        m.DRAIN_FAILED.lease = core.lease;
        m.DRAIN_FAILED.after_ns = clock_now_ns() - agent.revoked_ns;
        m.DRAIN_FAILED.reason = reason;
        agent_send(&m, WIRE_DRAIN_FAILED, WIRE_NO_GPU);
}

static void drained(uint64_t now)
{
        agent.last_drain_ns = now - agent.revoked_ns;
        agent.revoking = agent.in_use = false;
        agent.unfinished = agent.unfinished && freeze_stands();
        trace_event("drain_end", 0, 0);
        if (torture_drained() || overflow_drained())
                return;
        agent_send_lease(WIRE_DRAINED);
        core.lease = 0;
        for (unsigned i = 0; i < core.gpu_count; i++) {
                agent.run_said[i] = false;
                /* A WANT for room that is still to be sent stays to be sent. */
                if (core.gpus[i].attached && agent_wants_to_run())
                        core.gpus[i].want_dirty = true;
        }
}

static void drain_step(void)
{
        uint64_t now = clock_now_ns(), progress;
        enum quiet q = QUIET_BUSY;

        /* A turn that had not begun: its memory may be away, and if it stands it must not be let
         * go, not even for a moment. */
        if (!agent.in_use) {
                drained(now);
                return;
        }
        if (agent.freezes &&
            now - agent.revoked_ns >= (caches_may_answer() && !agent.paused ? CACHES_NS : 0)) {
                bool stands = agent_stand_still();

                if (!agent.revoking) { /* called off meanwhile */
                        if (!agent.paused && agent.in_use)
                                agent_go_on();
                        return;
                }
                if (stands) {
                        drained(clock_now_ns());
                        return;
                }
        }
        if (agent.paused) {
                drain_failed(WIRE_DRAIN_PAUSED);
                return;
        }
        /* It was paused, and its work is to end behind the gate. All of its memory is there. */
        if (freeze_stands()) {
                freeze_end();
                agent_memory_stays();
        }
        if (hidden_library()) {
                hidden_tell();
                drain_failed(WIRE_DRAIN_HIDDEN);
                return;
        }
        if (!gate_anybody_inside()) {
                if (!agent.drain_begun) {
                        quiet_begin(&agent.drain, true);
                        agent.drain_begun = !quiet_capturing();
                        if (!agent.revoking) /* cancelled: the lock may have been given up */
                                return;
                }
                if (!gate_anybody_inside())
                        q = quiet_poll(&agent.drain);
        }
        if (q == QUIET_DONE) {
                drained(now);
                return;
        }
        /* Threads that leave the driver are progress, too, but not those that go on capturing. */
        progress = agent.drain.progress + (quiet_capturing() ? 0 : gate_submissions());
        if (progress != agent.drain_progress)
                agent.progress_ns = now;
        agent.drain_progress = progress;
        /* Work that waits for work held at the gate never ends, nor does a capture that somebody
         * has forgotten. A long kernel with nobody waiting is simply awaited. */
        if (now - agent.progress_ns > agent.patience_ns && (core.waiters > 0 || quiet_capturing()))
                drain_failed(q == QUIET_CAPTURE ? WIRE_DRAIN_CAPTURE : WIRE_DRAIN_NO_PROGRESS);
}

/* ---- idleness; core.lock held ---- */

static void idle_step(uint64_t now)
{
        uint64_t submissions;

        /* Said once: whoever submits then says that first. */
        if (!core.running || !core.lease || agent.revoking || agent.idle_said ||
            agent.link != LINK_UP || now < agent.tick_ns)
                return;
        agent.tick_ns = now + TICK_NS;
        submissions = gate_submissions();
        if (submissions != agent.seen_submissions || gate_anybody_inside() || quiet_capturing()) {
                agent.seen_submissions = submissions;
                agent.idle_probe_on = false;
                return;
        }
        if (!agent.idle_probe_on) {
                quiet_begin(&agent.probe, true);
                agent.idle_probe_on = true;
        }
        if (quiet_poll(&agent.probe) == QUIET_BUSY)
                return;
        agent.idle_probe_on = false;
        agent.idle = agent.idle_said = true;
        /* First the bit, then a last look: who submits after it will tell. */
        gate_shut(GATE_TELL);
        if (gate_anybody_inside() || gate_submissions() != submissions) {
                agent.idle = agent.idle_said = false;
                gate_open(GATE_TELL);
                return;
        }
        agent_send_lease(WIRE_IDLE);
}

/* ---- the loop ---- */

/* The lease counts once everything that was evicted is back. Without one nobody has seen to it that
 * there is room for what is new, either. */
bool agent_all_is_back(void)
{
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct heap_cursor c = {0};
                struct extent *e;

                if (agent.link == LINK_REFUSED && heap_missing(&core.gpus[i].heap) > 0)
                        return false;
                while ((e = heap_walk(&core.gpus[i].heap, &c)))
                        if (e->state == EXTENT_EVICTED || e->busy)
                                return false;
        }
        return true;
}

static void agent_begin_to_run(void)
{
        bool missing = false;

        if ((!core.lease && agent.link != LINK_REFUSED && !torture_holds()) || core.running ||
            agent.revoking || torture_evicts() || overflow_holds() || agent.giveway.out ||
            agent.paused || !agent_all_is_back())
                return;
        torture_restored();
        for (unsigned i = 0; i < core.gpu_count; i++) {
                missing = missing || heap_missing(&core.gpus[i].heap) > 0;
                agent.run_said[i] = false;
        }
        if (!missing)
                gate_open(GATE_UNBACKED);
        agent.giveway = (struct giveway){0};
        if (agent.idle_said) { /* it was paused */
                agent.idle = agent.idle_said = false;
                agent_send_lease(WIRE_ACTIVE);
        }
        agent_go_on();
        agent.seen_submissions = gate_submissions();
}

/* Refused, and something of ours is not there. Lock held. */
static void give_way(void)
{
        uint64_t bytes = 0;

        if (agent.link != LINK_REFUSED || core.running || agent.revoking || torture_holds() ||
            overflow_holds())
                return;
        /* What is on its way in may take long; that more stays than was tried is no progress. */
        for (unsigned i = 0; i < core.gpu_count; i++)
                bytes += agent.giveway.out ? core.gpus[i].heap.backed : core.gpus[i].heap.resident;
        if (agent_all_is_back())
                agent.giveway = (struct giveway){0};
        else
                (void)giveway_step(&agent.giveway, agent_wants_to_run(), bytes, clock_now_ns(),
                                   agent_random());
        /* What others have opened, or devices write to, stays. */
        for (unsigned i = 0; i < core.gpu_count; i++)
                core.gpus[i].own_limit = agent.giveway.out ? core.gpus[i].pin_granted : UINT64_MAX;
}

void agent_come_in(void)
{
        struct core_wait w = {.what = "its turn to take memory"};

        core.waiters++;
        while (agent.giveway.out && !core_passive()) {
                agent_kick();
                core_wait(&w, NSEC_PER_SEC);
        }
        core.waiters--;
}

static enum swap_progress agent_swap(void)
{
        enum swap_progress progress = SWAP_NOTHING;
        bool restore, may_evict, hold, stands;
        unsigned n;

        lock_acquire(&core.lock);
        give_way();
        if (torture_holds()) {
                may_evict = !agent.revoking && torture_evicts();
                restore = !agent.revoking && !may_evict;
        } else {
                restore =
                        !core.running && !agent.revoking && (agent_wants_to_run() || core.lease) &&
                        (agent.link == LINK_UP || agent.link == LINK_REFUSED) && !agent.giveway.out;
                may_evict = !core.running && !agent.revoking && !core.lease && !agent.in_use &&
                            (agent.link == LINK_UP || agent.giveway.out);
        }
        n = core.gpu_count;
        stands = freeze_stands();
        hold = !stands && caches_hold(may_evict, clock_now_ns());
        lock_release(&core.lock);
        if (hold)
                progress = SWAP_COPYING; /* look again soon */
        if (stands)
                freeze_watch_begin(HANG_NS, false);
        for (unsigned i = 0; i < n; i++)
                if (core.gpus[i].managed) {
                        enum swap_progress p;

                        rm_make_for(core.gpus[i].mover ? CHANNELS_MOVER : CHANNELS_PROGRAM);
                        if (!stands) /* unregistering waits for the program's work */
                                swap_trim_arena(&core.gpus[i]);
                        p = swap_step(&core.gpus[i], may_evict && !hold, restore);
                        progress = p > progress ? p : progress;
                }
        rm_make_for(CHANNELS_PROGRAM);
        if (stands)
                (void)freeze_watch_end();
        return progress;
}

/* How long to sleep when nothing happens. */
static uint64_t agent_timeout(enum swap_progress progress, uint64_t now)
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
        if (agent.link == LINK_DOWN)
                t = sub_sat(agent.retry_ns, now);
        if (agent.giveway.until_ns && !core.running)
                t = MIN(t, sub_sat(agent.giveway.until_ns, now));
        if (core.running && core.lease && !agent.idle_said && agent.link == LINK_UP)
                t = MIN(t, sub_sat(agent.tick_ns, now));
        t = MIN(t, sub_sat(agent.tell_ns, now));
        return MIN(t, sub_sat(MIN(torture_next_ns(), overflow_next_ns()), now));
}

/* On the sockets of the daemon and of other processes, as they were under the lock: what changes
 * since kicks. */
static void agent_sleep(uint64_t timeout_ns, int daemon, int others)
{
        const struct timespec ts = {.tv_sec = (time_t)(timeout_ns / NSEC_PER_SEC),
                                    .tv_nsec = (long)(timeout_ns % NSEC_PER_SEC)};
        struct pollfd fds[3] = {{.fd = agent.wake, .events = POLLIN},
                                {.fd = daemon, .events = POLLIN},
                                {.fd = others, .events = POLLIN}};
        uint64_t count;

        (void)ppoll(fds, 3, timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
        /* In this order: a kick between the two finds that it need not write, and what it is about
         * is looked at next. The other way round its count would be taken, and kicked left set:
         * nobody would write again, and the next sleep could be for ever. */
        (void)!read(agent.wake, &count, sizeof(count));
        atomic_store(&agent.kicked, false);
}

static void *agent_main(void *unused)
{
        enum swap_progress progress;

        (void)prctl(PR_SET_NAME, "sublet-agent");
        cpus_settle(); /* and for what this thread creates: touchers, the daemon */
        (void)core_relax();
        while (!core_passive() && !atomic_load(&core.exiter)) {
                uint64_t timeout, tend;
                int daemon, others;
                bool late, again;

                lock_acquire(&core.lock);
                if (agent.link == LINK_DOWN && clock_now_ns() >= agent.retry_ns)
                        agent_connect();
                agent_listen();
                torture_step(clock_now_ns());
                overflow_step(clock_now_ns());
                if (agent.revoking)
                        drain_step();
                late = agent_pause_step();
                late = agent_freeze_step() || late;
                late = poison_step() || late;
                tend = UINT64_MAX;
                if (!freeze_stands()) { /* they ask streams that would not answer */
                        late = core_reap_late() || late;
                        tend = MIN(pool_tend(), fixed_tend(clock_now_ns()));
                }
                again = ipc_step();
                agent_tell(); /* a lowered limit is acknowledged before the first byte moves */
                lock_release(&core.lock);

                progress = agent_swap();
                if (overflow_move())
                        progress = SWAP_MORE;

                lock_acquire(&core.lock);
                if (torture_evicts() && progress <= SWAP_LATER) {
                        torture_evicted();
                        progress = SWAP_MORE;
                }
                agent_begin_to_run();
                idle_step(clock_now_ns());
                agent_tell();
                ipc_told();
                timeout = MIN(agent_timeout(progress, clock_now_ns()), tend);
                if (late)
                        timeout = MIN(timeout, LATER_NS);
                if (again)
                        timeout = 0;
                sums_tell(false);
                daemon = agent.fd;
                others = ipc_poll_fd();
                lock_release(&core.lock);
                agent_sleep(timeout, daemon, others);
        }
        /* The GPU has failed, or the process exits. The daemon keeps what it has on us until the
         * process has ended. */
        lock_acquire(&core.lock);
        if (core_passive())
                freeze_end(); /* to hear of it: nothing comes back to a GPU that has failed */
        else
                sums_tell(true);
        (void)close(agent.fd);
        agent.fd = -1;
        agent.link = LINK_REFUSED;
        agent.started = false;
        bell_ring(&core.changed);
        lock_release(&core.lock);
        return NULL;
}

/* ---- for the program's threads ---- */

int agent_start(void)
{
        int r;

        if (agent.started)
                return 0;
        agent.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (agent.wake < 0)
                return -errno;
        r = compat_thread_start(agent_main, NULL);
        if (r != 0) {
                (void)close(agent.wake);
                agent.wake = -1;
                return -r;
        }
        agent.started = true;
        return 0;
}

void agent_stop(void)
{
        uint64_t now = clock_now_ns(), until = now + STOP_MOST_NS;

        agent_kick();
        while (atomic_load(&agent.started) && now < until) {
                uint32_t heard = bell_listen(&core.changed);

                if (atomic_load(&agent.started))
                        bell_wait(&core.changed, heard, until - now);
                now = clock_now_ns();
        }
}

void agent_kick(void)
{
        const uint64_t one = 1;

        /* No write(): a cancelled thread would end there, with the lock in its hand. */
        if (!atomic_exchange(&agent.kicked, true) && agent.wake >= 0)
                (void)syscall(SYS_write, agent.wake, &one, sizeof(one));
}

void agent_figures(struct gpu *g)
{
        /* Once, until they have been told: a program may allocate a million times a second. */
        if (g->usage_dirty)
                return;
        g->usage_dirty = true;
        agent_kick();
}

void agent_released(void)
{
        bool waited_for = !core.running;

        for (unsigned i = 0; i < core.gpu_count; i++)
                waited_for = waited_for || core.gpus[i].pin_wanted > 0;
        bell_ring(&core.changed);
        if (waited_for)
                agent_kick();
}

void agent_active(void)
{
        lock_acquire(&core.lock);
        gate_open(GATE_TELL);
        if (agent.idle_said) {
                agent.idle = agent.idle_said = false;
                agent.tick_ns = clock_now_ns() + TICK_NS;
                agent_send_lease(WIRE_ACTIVE);
                agent_kick();
        }
        lock_release(&core.lock);
}

void agent_short(struct gpu *g, uint64_t bytes)
{
        struct wire_message m = {0};
        uint64_t now = clock_now_ns();

        if (!g->attached || now - agent.short_ns < SHORT_SPACING_NS)
                return;
        agent.short_ns = now;
        m.SHORT.bytes = bytes;
        agent_send(&m, WIRE_SHORT, g->index);
}

void agent_ask_holder(void)
{
        struct wire_message m = {0};

        agent.holder[0] = '\0';
        agent.who_asked = agent.link == LINK_UP && agent.minor >= WIRE_MINOR_WHO;
        if (agent.who_asked)
                agent_send(&m, WIRE_WHO, WIRE_NO_GPU);
}

const char *agent_holder(void)
{
        if (agent.link != LINK_UP)
                return "no daemon answers";
        return agent.who_asked ? NULL : agent.holder;
}

bool agent_is_up(void)
{
        return agent.link == LINK_UP && agent.minor >= WIRE_MINOR_PIN;
}

bool agent_has_daemon(void)
{
        return agent_is_up() || (agent.link != LINK_REFUSED && agent.instance && !agent.warned &&
                                 agent.minor >= WIRE_MINOR_PIN);
}

uint32_t agent_say(struct wire_message *m, unsigned type)
{
        if (!agent_is_up())
                return 0;
        agent_send(m, type, WIRE_NO_GPU);
        return agent.link == LINK_UP ? agent.sequence : 0;
}

void agent_attach(struct gpu *g)
{
        struct core_wait w = {.what = "the daemon"};

        if (agent_start() < 0) {
                atomic_store(&core.bystander, true);
                return;
        }
        if (agent.link == LINK_UP && !g->asked)
                agent_send_attach(g);
        else if (agent.link == LINK_REFUSED || agent.warned)
                agent_gpu_alone(g);
        agent_kick();
        while (!g->managed && !core_passive())
                core_wait(&w, UINT64_MAX);
}

void agent_return_fixed(struct gpu *g, uint64_t bytes)
{
        g->fixed = sub_sat(g->fixed, bytes);
        g->fixed_wanted = g->fixed;
        g->want_dirty = g->usage_dirty = true;
        bell_ring(&core.changed); /* for those who wait for more */
        agent_kick();
}

int agent_ask_commit(struct gpu *g, uint64_t bytes)
{
        struct core_wait w = {.what = "the daemon"};
        uint32_t refused;

        /* What is answered may be long past when this thread runs again: meanwhile nothing of it is
         * given back. */
        g->commit_askers++;
        do {
                refused = g->refused_commit.count;
                g->commit_wanted = MAX(g->commit_wanted, bytes);
                g->commit_used_ns = clock_now_ns();
                g->want_dirty = true;
                agent_kick();
                while (g->commit < bytes && g->refused_commit.count == refused && !core_passive())
                        core_wait(&w, UINT64_MAX);
                /* What was refused was another thread's, and more: this has not been asked yet. */
        } while (g->commit < bytes && bytes < g->refused_commit.bytes && !core_passive());
        g->commit_askers--;
        return g->commit < bytes ? -ENOMEM : 0;
}

/* Was it refused since *seen? What another thread asked for may have been more than this one needs.
 */
static bool was_refused(const struct refusals *r, uint32_t *seen, uint64_t bytes)
{
        bool again = r->count != *seen;

        *seen = r->count;
        return again && bytes >= r->bytes;
}

int agent_ask_host(uint64_t more)
{
        struct core_wait w = {.what = "the daemon"};
        uint32_t seen = core.host.refused.count;

        while (core_host_mapped() + more > core.host.allowed) {
                if (was_refused(&core.host.refused, &seen, core_host_mapped() + more) ||
                    core_passive())
                        return -ENOMEM;
                core.host.wanted = MAX(core.host.wanted, core_host_mapped() + more);
                agent_kick();
                core_wait(&w, UINT64_MAX);
        }
        core.host.taking += more;
        return 0;
}

bool agent_may_map(uint64_t more)
{
        if (core_host_mapped() + more <= core.host.allowed)
                return true;
        core.host.wanted = MAX(core.host.wanted, core_host_mapped() + more);
        return false;
}

int agent_try_fixed(struct gpu *g, uint64_t more, uint32_t *seen)
{
        if (g->fixed_allowed < g->fixed + more) {
                if (was_refused(&g->refused_fixed, seen, g->fixed + more) || core_passive())
                        return -ENOMEM;
                if (g->fixed_wanted < g->fixed + more) {
                        g->fixed_wanted = g->fixed + more;
                        g->want_dirty = true;
                        agent_kick();
                }
                return -EAGAIN;
        }
        g->fixed += more;
        g->fixed_wanted = MAX(g->fixed_wanted, g->fixed); /* what is taken is not given back */
        g->usage_dirty = true;
        agent_kick();
        return 0;
}

int agent_take_fixed(struct gpu *g, uint64_t more)
{
        struct core_wait w = {.what = "room for what cannot be moved"};
        uint32_t seen = g->refused_fixed.count;
        int r;

        /* Another thread may take what was allowed, or give up a wish that covered ours, while we
         * wait. */
        do {
                if (g->fixed_allowed < g->fixed + more && agent_asks_for_mover(g))
                        agent_mover_refused(g); /* more, and it may be long in coming */
                r = agent_try_fixed(g, more, &seen);
                if (r == -EAGAIN)
                        core_wait(&w, UINT64_MAX);
        } while (r == -EAGAIN);
        return r;
}

void agent_forget(void)
{
        if (agent.fd >= 0)
                (void)close(agent.fd);
        if (agent.wake >= 0)
                (void)close(agent.wake);
        agent.fd = agent.wake = -1;
        ipc_forget();
        for (unsigned i = 0; i < core.gpu_count; i++) {
                passed_close(&core.gpus[i].leaving);
                passed_close(&core.gpus[i].passed);
        }
}
