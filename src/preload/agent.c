/* agent.c: owns the connection, the lease and the course of a drain. Must never block longer than
 * one bounded system call while the daemon may have something to say, and never lets memory go that
 * is in use. */
#include "preload/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/bound.h"
#include "preload/core.h"
#include "preload/gate.h"
#include "preload/libc_compat.h"
#include "preload/link.h"
#include "preload/quiet.h"
#include "preload/swap.h"
#include "preload/trace.h"

#define TICK_NS (50 * NSEC_PER_MSEC) /* how often an active client is looked at for idleness */
#define COPY_NAP_NS                                                                               \
        (100 * NSEC_PER_USEC) /* while copies are in flight: 1 % of an extent's time at bus speed \
                               */
#define LATER_NS         (10 * NSEC_PER_MSEC) /* after a create that failed */
#define BACKOFF_MIN_NS   (50 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS   NSEC_PER_SEC
#define BACKOFF_ALONE_NS (30 * NSEC_PER_SEC) /* where there never was a daemon */
#define ALONE_AFTER_NS \
        (10 * NSEC_PER_SEC) /* without a daemon for so long, a running client grows on its own */
#define COMMIT_KEEP_NS   NSEC_PER_SEC /* room asked for is about to be used */
#define SHORT_SPACING_NS (10 * NSEC_PER_MSEC)

enum link_state {
        LINK_DOWN,  /* none, or lost: try again at retry_ns */
        LINK_HELLO, /* connected, WELCOME awaited */
        LINK_UP,
        LINK_REFUSED, /* the daemon does not speak our version: plain pass-through */
};

static struct {
        bool started;
        int wake; /* eventfd */
        _Atomic bool kicked;

        enum link_state link;
        int fd;
        char where[128];
        uint64_t instance;
        uint32_t sequence;
        uint64_t retry_ns, backoff_ns, down_since_ns;
        bool tried, warned;

        bool revoking; /* a drain is on */
        uint64_t revoked_ns, patience_ns, progress_ns;
        bool drain_recorded;
        struct quiet_wait drain;
        uint64_t drain_progress, last_drain_ns;

        bool idle, idle_said; /* nothing in flight; the daemon knows */
        bool idle_probe_on;   /* a wait for quiet is on */
        struct quiet_wait probe;
        uint64_t seen_submissions; /* at the last tick */
        uint64_t tick_ns;

        uint64_t need_said[CORE_GPUS_MAX];
        bool run_said[CORE_GPUS_MAX];
        uint64_t short_ns;
} agent = {.fd = -1, .wake = -1};

/* ---- messages out; core.lock held ---- */

static void agent_down(const char *why);

static void agent_send(struct wire_message *m, unsigned type, unsigned gpu)
{
        int r;

        if (agent.link != LINK_UP && type != WIRE_HELLO)
                return;
        m->header = (struct wire_header){
                .type = (uint16_t)type, .gpu = (uint16_t)gpu, .sequence = ++agent.sequence};
        r = link_send(agent.fd, m);
        if (r == -EAGAIN) {
                /* The daemon has not read for hundreds of messages: give it a moment, then count it
                 * as lost. */
                struct pollfd p = {.fd = agent.fd, .events = POLLOUT};

                (void)poll(&p, 1, 100);
                r = link_send(agent.fd, m);
        }
        if (r < 0)
                agent_down(strerror(-r));
}

static void send_lease(unsigned type)
{
        struct wire_message m = {0};

        m.IDLE.lease =
                agent.instance ? core.lease : 0; /* IDLE, ACTIVE and DRAINED have one shape */
        agent_send(&m, type, WIRE_NO_GPU);
}

static uint32_t gpu_flags(const struct gpu *g)
{
        return (core.waiters > 0 ? WIRE_FLAG_RUN : 0u) | (agent.idle ? WIRE_FLAG_IDLE : 0u) |
               (g->poisoned ? WIRE_FLAG_POISONED : 0u) | (core.running ? WIRE_FLAG_RUNNING : 0u);
}

static void send_hello(void)
{
        struct wire_message m = {0};
        const char *name = getenv("SUBLET_NAME");
        extern char *program_invocation_short_name;

        m.HELLO.magic = WIRE_MAGIC;
        m.HELLO.previous_instance = agent.instance;
        m.HELLO.major = WIRE_MAJOR;
        m.HELLO.minor = WIRE_MINOR;
        m.HELLO.pid = (uint32_t)getpid();
        (void)snprintf(m.HELLO.name, sizeof(m.HELLO.name), "%s",
                       name && *name ? name : program_invocation_short_name);
        for (char *c = m.HELLO.name; *c; c++)
                if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
                        *c = '?';
        (void)snprintf(m.HELLO.version, sizeof(m.HELLO.version), "%s", SUBLET_VERSION);
        agent_send(&m, WIRE_HELLO, WIRE_NO_GPU);
}

static void send_attach(struct gpu *g)
{
        struct wire_message m = {0};

        m.ATTACH.total_bytes = g->total;
        m.ATTACH.allocated = g->heap.allocated;
        m.ATTACH.backed = g->heap.backed;
        m.ATTACH.fixed = g->fixed;
        m.ATTACH.arena = swap_arena_bytes(g);
        m.ATTACH.fixed_wanted = g->fixed_wanted;
        m.ATTACH.flags = gpu_flags(g);
        memcpy(m.ATTACH.uuid, g->uuid, sizeof(m.ATTACH.uuid));
        agent_send(&m, WIRE_ATTACH, g->index);
}

static void send_usage(struct gpu *g)
{
        struct wire_message m = {0};

        g->usage_dirty = false;
        m.USAGE.allocated = g->heap.allocated;
        /* A restore is told when it is whole, so that a grant never comes before; the charge covers
         * the limit anyway. While memory leaves, what has not left yet counts. */
        m.USAGE.backed = core.waiters > 0 && !core.running ? g->heap.resident : g->heap.backed;
        if (g->heap.backed > g->limit)
                m.USAGE.backed = g->heap.backed;
        m.USAGE.fixed = g->fixed;
        m.USAGE.arena = swap_arena_bytes(g);
        m.USAGE.moved_out = g->moved_out;
        m.USAGE.moved_in = g->moved_in;
        m.USAGE.drain_ns = agent.last_drain_ns;
        m.USAGE.limit_sequence = g->limit_sequence;
        m.USAGE.flags = gpu_flags(g);
        agent_send(&m, WIRE_USAGE, g->index);
}

static void send_want(struct gpu *g)
{
        struct wire_message m = {0};

        g->want_dirty = false;
        m.WANT.commit = g->commit_wanted;
        m.WANT.fixed = g->fixed_wanted;
        m.WANT.need = g->heap.allocated;
        m.WANT.flags = core.waiters > 0 ? WIRE_FLAG_RUN : 0;
        agent.need_said[g->index] = m.WANT.need;
        agent.run_said[g->index] = core.waiters > 0;
        agent_send(&m, WIRE_WANT, g->index);
        g->want_sequence = agent.sequence;
}

/* ---- losing and finding the daemon; core.lock held ---- */

/* Nobody to ask: what the GPU has is the limit, as on the plain driver. */
static void gpu_alone(struct gpu *g)
{
        g->commit = g->limit = g->fixed_allowed = UINT64_MAX;
        if (!g->visible)
                g->visible = g->total;
        g->managed = true;
}

static void agent_down(const char *why)
{
        uint32_t random = 0;

        if (agent.link == LINK_UP)
                log_debug("lost the daemon in %s: %s", agent.where, why);
        if (agent.fd >= 0)
                (void)close(agent.fd);
        agent.fd = -1;
        if (agent.link != LINK_DOWN || !agent.down_since_ns)
                agent.down_since_ns = clock_now_ns();
        agent.link = LINK_DOWN;
        agent.backoff_ns = agent.tried && agent.backoff_ns
                                   ? MIN(agent.backoff_ns * 2,
                                         agent.instance ? BACKOFF_MAX_NS : BACKOFF_ALONE_NS)
                                   : BACKOFF_MIN_NS;
        (void)syscall(SYS_getrandom, &random, sizeof(random), 1 /* GRND_NONBLOCK */);
        agent.retry_ns = clock_now_ns() + agent.backoff_ns / 2 + random % agent.backoff_ns;

        /* A revocation by a daemon that is gone means nothing. */
        if (agent.revoking) {
                agent.revoking = false;
                core.running = true;
                gate_open(GATE_NO_LEASE);
        }
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];

                g->attached = false;
                /* Neither evict nor restore until somebody says so again. */
                if (g->managed && !core.running && g->limit != UINT64_MAX)
                        g->limit = g->heap.backed;
        }
        bound_set(0);
        bell_ring(&core.changed);
}

static void agent_alone(const char *why)
{
        const char *require = getenv("SUBLET_REQUIRE");

        if (require && strcmp(require, "1") == 0)
                return;
        if (!agent.warned)
                log_warning("no daemon in %s (%s): this program runs without sharing", agent.where,
                            why);
        agent.warned = true;
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].known)
                        gpu_alone(&core.gpus[i]);
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
}

/* Lock held, given up while the daemon is looked for. */
static void agent_connect(void)
{
        int fd = -1, r;

        lock_release(&core.lock);
        r = link_connect(agent.where, &fd);
        lock_acquire(&core.lock);
        if (r < 0) {
                bool first = !agent.tried;

                agent.tried = true;
                agent_down(strerror(-r));
                if (first || clock_now_ns() - agent.down_since_ns > ALONE_AFTER_NS) {
                        /* Before the first lease there is nothing to lose; after, only those who
                         * run may go on growing. */
                        if (core.running || !agent.instance)
                                agent_alone(strerror(-r));
                }
                return;
        }
        agent.tried = true;
        agent.fd = fd;
        agent.link = LINK_HELLO;
        agent.sequence = 0;
        send_hello();
}

/* ---- messages in; core.lock held ---- */

static void on_welcome(const struct wire_message *m)
{
        agent.link = LINK_UP;
        agent.instance = m->WELCOME.instance;
        agent.backoff_ns = 0;
        agent.down_since_ns = 0;
        core.lease = 0;
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].known)
                        send_attach(&core.gpus[i]);
}

static void on_refused(const struct wire_message *m)
{
        struct gpu *g = m->header.gpu < core.gpu_count ? &core.gpus[m->header.gpu] : NULL;

        switch (m->REFUSED.code) {
        case WIRE_REFUSED_COMMIT:
                if (g && m->REFUSED.of == g->want_sequence)
                        g->commit_wanted = g->commit;
                if (g)
                        g->refused_commit = m->REFUSED.of;
                break;
        case WIRE_REFUSED_FIXED:
                if (g && m->REFUSED.of == g->want_sequence)
                        g->fixed_wanted = g->fixed_allowed;
                if (g)
                        g->refused_fixed = m->REFUSED.of;
                break;
        case WIRE_REFUSED_VERSION:
                log_warning("%s; this program runs without sharing", m->REFUSED.text);
                agent_down(m->REFUSED.text);
                agent.link = LINK_REFUSED;
                agent.warned = true;
                agent_alone(m->REFUSED.text);
                break;
        default:
                log_warning("the daemon in %s refused this program: %s", agent.where,
                            m->REFUSED.text);
                break;
        }
        bell_ring(&core.changed);
}

static void on_attached(const struct wire_message *m)
{
        struct gpu *g = &core.gpus[m->header.gpu];
        bool first = !g->managed;

        g->visible = m->ATTACHED.visible_bytes;
        g->context_bytes = m->ATTACHED.context_bytes;
        g->block_bytes = MAX(m->ATTACHED.block_bytes, HEAP_GRANULARITY);
        if (agent.warned && g->commit == UINT64_MAX)
                log_warning("the daemon in %s is back: sharing again", agent.where),
                        agent.warned = false;
        /* What it was promised is asked for again; what it holds is what it says until the first
         * LIMIT. */
        g->commit = g->heap.allocated;
        g->commit_wanted = MAX(g->commit_wanted, g->heap.allocated);
        if (g->commit_wanted == UINT64_MAX)
                g->commit_wanted = g->heap.allocated;
        g->limit = g->heap.backed;
        g->fixed_allowed = g->fixed;
        g->limit_sequence = 0;
        g->attached = g->managed = true;
        log_debug("GPU %u: shared by the daemon in %s; this program sees %llu MiB", g->index,
                  agent.where, (unsigned long long)(g->visible >> 20));
        if (first && !core.running)
                gate_shut(GATE_NO_LEASE);
        g->want_dirty = core.waiters > 0 || g->commit_wanted > g->commit;
        bell_ring(&core.changed);
}

static void on_limit(const struct wire_message *m)
{
        struct gpu *g = &core.gpus[m->header.gpu];

        /* A LIMIT that crossed a WANT which gives room back must not hand it out again. */
        g->commit = MIN(m->LIMIT.commit, MAX(g->commit_wanted, g->heap.allocated));
        if (m->LIMIT.backed < g->limit && m->LIMIT.backed < g->heap.allocated)
                agent.run_said[g->index] = false; /* who wants it back has to say so again */
        g->limit = m->LIMIT.backed;
        g->fixed_allowed = m->LIMIT.fixed;
        g->visible = m->LIMIT.visible_bytes;
        g->arena_limit = m->LIMIT.arena;
        g->limit_sequence = m->header.sequence;
        g->usage_dirty = true;
        if (swap_arena_bytes(g) > g->arena_limit)
                swap_trim_arena(g, g->arena_limit);
        bell_ring(&core.changed);
}

static void on_grant(const struct wire_message *m)
{
        core.lease = m->GRANT.lease;
        agent.idle = agent.idle_said = false;
        agent.tick_ns = clock_now_ns() + TICK_NS;
        bell_ring(&core.changed);
}

static void on_revoke(const struct wire_message *m)
{
        if (m->REVOKE.lease != core.lease || agent.revoking || !core.lease)
                return;
        gate_open(GATE_TELL);
        agent.idle_said = false;
        agent.revoking = true;
        agent.revoked_ns = agent.progress_ns = clock_now_ns();
        agent.patience_ns = m->REVOKE.patience_ns;
        agent.drain_recorded = false;
        core.running = false;
        gate_shut(GATE_NO_LEASE);
        trace_event("drain_begin", 0, 0);
}

static void on_contested(const struct wire_message *m)
{
        /* The bound is the same for all; any GPU will do for its value. */
        bound_set(m->CONTESTED.contested ? 10 * NSEC_PER_MSEC : 0);
}

static bool gpu_known(const struct wire_message *m)
{
        return m->header.gpu < core.gpu_count && core.gpus[m->header.gpu].known;
}

static void agent_handle(const struct wire_message *m)
{
        switch (m->header.type) {
        case WIRE_WELCOME:
                on_welcome(m);
                break;
        case WIRE_REFUSED:
                on_refused(m);
                break;
        case WIRE_ATTACHED:
                if (gpu_known(m))
                        on_attached(m);
                break;
        case WIRE_LIMIT:
                if (gpu_known(m))
                        on_limit(m);
                break;
        case WIRE_GRANT:
                on_grant(m);
                break;
        case WIRE_REVOKE:
                on_revoke(m);
                break;
        case WIRE_CONTESTED:
                on_contested(m);
                break;
        }
}

static void agent_listen(void)
{
        while (agent.fd >= 0) {
                struct wire_message m;
                int r = link_receive(agent.fd, &m);

                if (r == 0)
                        return;
                if (r < 0) {
                        agent_down(strerror(-r));
                        return;
                }
                agent_handle(&m);
        }
}

/* ---- the course of a drain; core.lock held ---- */

static void drain_failed(enum wire_drain_failure reason)
{
        struct wire_message m = {0};

        agent.revoking = false;
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
        trace_event("drain_failed", 0, 0);
        m.DRAIN_FAILED.lease = core.lease;
        m.DRAIN_FAILED.after_ns = clock_now_ns() - agent.revoked_ns;
        m.DRAIN_FAILED.reason = reason;
        agent_send(&m, WIRE_DRAIN_FAILED, WIRE_NO_GPU);
}

static void drain_step(void)
{
        uint64_t now = clock_now_ns();
        enum quiet q = QUIET_BUSY;

        if (!gate_anybody_inside()) {
                if (!agent.drain_recorded) {
                        quiet_begin(&agent.drain);
                        agent.drain_recorded = !quiet_capturing();
                        if (agent.drain_recorded)
                                agent.progress_ns = now;
                }
                q = quiet_poll(&agent.drain);
        }
        if (q == QUIET_DONE || q == QUIET_POISONED) {
                agent.last_drain_ns = now - agent.revoked_ns;
                agent.revoking = false;
                trace_event("drain_end", 0, 0);
                send_lease(WIRE_DRAINED);
                core.lease = 0;
                for (unsigned i = 0; i < core.gpu_count; i++) {
                        agent.run_said[i] = false;
                        /* A WANT for room that is still to be sent stays to be sent. */
                        if (core.gpus[i].attached && core.waiters > 0)
                                core.gpus[i].want_dirty = true;
                }
                return;
        }
        if (agent.drain.progress != agent.drain_progress) {
                agent.drain_progress = agent.drain.progress;
                agent.progress_ns = now;
        }
        /* Only work that waits for work held at the gate never ends; a long kernel with nobody
         * waiting is simply awaited. */
        if (now - agent.progress_ns > agent.patience_ns && core.waiters > 0)
                drain_failed(WIRE_DRAIN_NO_PROGRESS);
}

/* ---- idleness; core.lock held ---- */

static void idle_step(uint64_t now)
{
        uint64_t submissions;

        if (!core.running || !core.lease || agent.revoking || agent.link != LINK_UP ||
            now < agent.tick_ns)
                return;
        agent.tick_ns = now + TICK_NS;
        submissions = gate_submissions();
        if (submissions != agent.seen_submissions || gate_anybody_inside() || quiet_capturing()) {
                agent.seen_submissions = submissions;
                agent.idle_probe_on = false;
                return;
        }
        if (!agent.idle_probe_on) {
                quiet_begin(&agent.probe);
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
        send_lease(WIRE_IDLE);
}

/* ---- the loop ---- */

/* Give room back that the program no longer uses, some blocks at a time. */
static void trim_commit(struct gpu *g)
{
        uint64_t keep = align_up(g->heap.allocated, g->block_bytes) + g->block_bytes;

        if (!g->attached || g->commit == UINT64_MAX || g->commit_wanted != g->commit ||
            g->commit <= keep + 2 * g->block_bytes ||
            clock_now_ns() - g->commit_used_ns < COMMIT_KEEP_NS)
                return;
        g->commit = g->commit_wanted = keep;
        g->want_dirty = true;
}

static void agent_tell(void)
{
        for (unsigned i = 0; i < core.gpu_count && agent.link == LINK_UP; i++) {
                struct gpu *g = &core.gpus[i];

                if (!g->attached)
                        continue;
                trim_commit(g);
                if (core.waiters > 0 &&
                    (!agent.run_said[i] || agent.need_said[i] != g->heap.allocated) &&
                    (!core.running || heap_missing(&g->heap) > 0))
                        g->want_dirty = true;
                if (g->usage_dirty)
                        send_usage(g);
                if (g->want_dirty && agent.link == LINK_UP)
                        send_want(g);
        }
}

/* The lease counts once everything that was evicted is back. */
static bool agent_may_run(void)
{
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct heap_cursor c = {0};
                struct extent *e;

                while ((e = heap_walk(&core.gpus[i].heap, &c)))
                        if (e->state == EXTENT_EVICTED || e->busy)
                                return false;
        }
        return true;
}

static void agent_begin_to_run(void)
{
        bool missing = false;

        if (!core.lease || core.running || agent.revoking || !agent_may_run())
                return;
        for (unsigned i = 0; i < core.gpu_count; i++) {
                missing = missing || heap_missing(&core.gpus[i].heap) > 0;
                agent.run_said[i] = false;
        }
        if (!missing)
                gate_open(GATE_UNBACKED);
        core.running = true;
        gate_open(GATE_NO_LEASE);
        agent.seen_submissions = gate_submissions();
        bell_ring(&core.changed);
}

static enum swap_progress agent_swap(void)
{
        enum swap_progress progress = SWAP_NOTHING;
        bool restore, may_evict;
        unsigned n;

        lock_acquire(&core.lock);
        restore = !core.running && !agent.revoking && (core.waiters > 0 || core.lease) &&
                  agent.link == LINK_UP;
        may_evict = !core.running && !agent.revoking && !core.lease && agent.link == LINK_UP;
        n = core.gpu_count;
        lock_release(&core.lock);
        for (unsigned i = 0; i < n; i++)
                if (core.gpus[i].managed) {
                        enum swap_progress p = swap_step(&core.gpus[i], may_evict, restore);

                        progress = p > progress ? p : progress;
                }
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
        if (core.running && core.lease && !agent.idle_said)
                t = MIN(t, sub_sat(agent.tick_ns, now));
        return t;
}

static void agent_sleep(uint64_t timeout_ns)
{
        const struct timespec ts = {.tv_sec = (time_t)(timeout_ns / NSEC_PER_SEC),
                                    .tv_nsec = (long)(timeout_ns % NSEC_PER_SEC)};
        struct pollfd fds[2] = {{.fd = agent.wake, .events = POLLIN},
                                {.fd = agent.fd, .events = POLLIN}};
        uint64_t count;

        (void)ppoll(fds, 2, timeout_ns == UINT64_MAX ? NULL : &ts, NULL);
        atomic_store(&agent.kicked, false);
        (void)!read(agent.wake, &count, sizeof(count));
}

static void *agent_main(void *unused)
{
        enum swap_progress progress;

        (void)prctl(PR_SET_NAME, "sublet-agent");
        (void)core_relax();
        for (;;) {
                uint64_t timeout;

                lock_acquire(&core.lock);
                if (agent.link == LINK_DOWN && clock_now_ns() >= agent.retry_ns)
                        agent_connect();
                agent_listen();
                if (agent.revoking)
                        drain_step();
                core_reap_late();
                agent_tell(); /* a lowered limit is acknowledged before the first byte moves */
                lock_release(&core.lock);

                progress = agent_swap();

                lock_acquire(&core.lock);
                agent_begin_to_run();
                idle_step(clock_now_ns());
                agent_tell();
                timeout = agent_timeout(progress, clock_now_ns());
                lock_release(&core.lock);
                agent_sleep(timeout);
        }
        return NULL;
}

/* ---- for the program's threads ---- */

int agent_start(void)
{
        sigset_t all, before;
        pthread_t thread;
        int r;

        if (agent.started)
                return 0;
        agent.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (agent.wake < 0)
                return -errno;
        /* The program's signals are the program's. */
        (void)sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, &before);
        r = compat_pthread_create(&thread, NULL, agent_main, NULL);
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        if (r != 0) {
                (void)close(agent.wake);
                agent.wake = -1;
                return -r;
        }
        (void)compat_pthread_detach(thread);
        agent.started = true;
        return 0;
}

void agent_kick(void)
{
        const uint64_t one = 1;

        if (!atomic_exchange(&agent.kicked, true) && agent.wake >= 0)
                (void)!write(agent.wake, &one, sizeof(one));
}

void agent_active(void)
{
        lock_acquire(&core.lock);
        gate_open(GATE_TELL);
        if (agent.idle_said) {
                agent.idle = agent.idle_said = false;
                agent.tick_ns = clock_now_ns() + TICK_NS;
                send_lease(WIRE_ACTIVE);
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

void agent_attach(struct gpu *g)
{
        struct core_wait w = {.what = "the daemon"};

        if (agent_start() < 0) {
                atomic_store(&core.bystander, true);
                return;
        }
        if (agent.link == LINK_UP)
                send_attach(g);
        else if (agent.link == LINK_REFUSED || agent.warned)
                gpu_alone(g);
        agent_kick();
        while (!g->managed)
                core_wait(&w, UINT64_MAX);
}

int agent_ask_commit(struct gpu *g, uint64_t bytes)
{
        struct core_wait w = {.what = "the daemon"};
        uint32_t refused = g->refused_commit;

        g->commit_wanted = MAX(g->commit_wanted, bytes);
        g->commit_used_ns = clock_now_ns();
        g->want_dirty = true;
        agent_kick();
        while (g->commit < bytes) {
                if (g->refused_commit != refused)
                        return -ENOMEM;
                core_wait(&w, UINT64_MAX);
        }
        return 0;
}

int agent_ask_fixed(struct gpu *g, uint64_t bytes)
{
        struct core_wait w = {.what = "room for a GPU context"};
        uint32_t refused = g->refused_fixed;

        if (g->fixed_allowed >= bytes)
                return 0;
        g->fixed_wanted = MAX(g->fixed_wanted, bytes);
        g->want_dirty = true;
        agent_kick();
        while (g->fixed_allowed < bytes) {
                if (g->refused_fixed != refused)
                        return -ENOMEM;
                core_wait(&w, UINT64_MAX);
        }
        return 0;
}

void agent_forget(void)
{
        if (agent.fd >= 0)
                (void)close(agent.fd);
        if (agent.wake >= 0)
                (void)close(agent.wake);
        agent.fd = agent.wake = -1;
}
