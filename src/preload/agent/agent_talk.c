/* agent_talk.c: owns the conversation with the daemon: when each message is sent, what follows from
 * each answer, and what to do while there is no daemon. Must never wait for an answer: only the
 * threads that asked do. */
#include "preload/agent/agent_state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/heap/lent.h"
#include "preload/state/core.h"
#include "preload/state/part.h"
#include "preload/freeze/freeze.h"
#include "preload/stream/gate.h"
#include "preload/share/ipc.h"
#include "preload/process/link.h"
#include "preload/process/passed.h"
#include "preload/process/require.h"
#include "preload/move/export.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/process/trace.h"
#include "preload/state/daemon.h"

#define BACKOFF_MIN_NS   (50 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS   NSEC_PER_SEC
#define BACKOFF_ALONE_NS (30 * NSEC_PER_SEC) /* longest pause if there never was a daemon */
#define ALONE_AFTER_NS   (10 * NSEC_PER_SEC) /* without a daemon for longer, a client may grow */
/* A program that allocates in small steps changes its figures a million times a second. */
#define USAGE_SPACING_NS  (NSEC_PER_MSEC / 2)
#define COMMIT_KEEP_NS    NSEC_PER_SEC /* room requested so recently is about to be used */
#define ALONE_PATIENCE_NS (2 * NSEC_PER_SEC)
/* The daemon drops a request of a running program if by the ledger no memory is missing. The
 * program is not told, so while it lacks memory it repeats the request. */
#define REQUEST_AGAIN_NS NSEC_PER_SEC
#define SHORT_SPACING_NS (10 * NSEC_PER_MSEC)
/* An eviction that found no host memory is tried ten times as often as it is reported. */
#define HOST_SPACING_NS (100 * NSEC_PER_MSEC)

/* ---- messages out; core_lock held ---- */

/* Allocating threads read `managed` without the lock: set it after all figures that they
 * read then. */
static void gpu_is_managed(struct gpu *g)
{
        __atomic_store_n(&g->managed, true, __ATOMIC_RELEASE);
}

static uint32_t gpu_flags(const struct gpu *g) REQUIRES(core_lock)
{
        return (agent_wants_to_run() ? WIRE_FLAG_RUN : 0u) | (agent.idle ? WIRE_FLAG_IDLE : 0u) |
               (g->error ? WIRE_FLAG_POISONED : 0u) |
               (core.running || (agent.paused && agent.in_use) ? WIRE_FLAG_RUNNING : 0u) |
               (agent_holds_spare(g) ? WIRE_FLAG_SPARE : 0u);
}

static void send_export(struct gpu *g, uint64_t bytes, uint32_t flags) REQUIRES(core_lock)
{
        struct wire_message m = {0};

        g->told.exported = bytes;
        g->export_allowed = MIN(g->export_allowed, bytes);
        m.EXPORT.bytes = bytes;
        m.EXPORT.flags = flags;
        daemon_send(&m, WIRE_EXPORT, g->index);
}

void agent_send_attach(struct gpu *g)
{
        struct wire_message m = {0};

        /* From here on the daemon knows only the figures of this message. Grants of an earlier
         * daemon are void. Descriptors of memory on its way between processes are closed, because
         * no figure contains that memory. */
        agent_cancel_own();
        g->asked = true;
        passed_close(&g->leaving);
        passed_close(&g->passed);
        g->commit = g->heap.allocated;
        g->limit = g->heap.backed;
        g->unevictable_allowed = g->unevictable;
        m.ATTACH.total_bytes = g->total;
        m.ATTACH.allocated = g->heap.allocated;
        m.ATTACH.backed = g->heap.backed;
        m.ATTACH.unevictable = g->unevictable;
        m.ATTACH.arena = swap_arena_bytes(g);
        if (request_is_movers(g)) { /* only REQUEST marks bytes as room for a mover */
                g->unevictable_requested = g->unevictable;
                g->mover_asks = false;
        }
        m.ATTACH.unevictable_requested = g->unevictable_requested;
        m.ATTACH.flags = gpu_flags(g);
        memcpy(m.ATTACH.uuid, g->uuid, sizeof(m.ATTACH.uuid));
        daemon_send(&m, WIRE_ATTACH, g->index);
        g->told = (struct told){.usage.allocated = g->heap.allocated,
                                .request.unevictable = g->unevictable_requested,
                                .request_sequence = daemon_line.sequence,
                                .room = g->room_answered}; /* an open question is asked again */
        g->export_allowed = 0;
        export_back(g);
        if (g->export_granted && daemon_is_up()) {
                send_export(g, g->export_granted, WIRE_EXPORT_HELD);
                g->export_allowed = g->export_granted;
        }
}

/* Send a decrease of exported bytes before the figures that follow from it, an increase after the
 * figures that include it. */
static void tell_exported(struct gpu *g) REQUIRES(core_lock)
{
        if (g->export_requested < g->told.exported ||
            (g->export_requested > g->told.exported && !g->usage_dirty))
                send_export(g, g->export_requested, 0);
}

static void send_usage(struct gpu *g) REQUIRES(core_lock)
{
        struct wire_message m = {0};

        g->usage_dirty = false;
        m.USAGE.allocated = g->heap.allocated;
        /* While memory is being restored, only complete extents count: otherwise the lease could be
         * granted before the restore is complete. The charge covers the limit anyway. While memory
         * is being evicted, bytes that have not left yet count. */
        m.USAGE.backed = agent_wants_to_run() && !core.running ? g->heap.resident : g->heap.backed;
        if (g->heap.backed > g->limit)
                m.USAGE.backed = g->heap.backed;
        m.USAGE.unevictable = g->unevictable;
        m.USAGE.arena = swap_arena_bytes(g);
        m.USAGE.moved_out = g->moved_out;
        m.USAGE.moved_in = g->moved_in;
        m.USAGE.drain_ns = agent.last_drain_ns;
        m.USAGE.limit_sequence = g->limit_sequence;
        m.USAGE.flags = gpu_flags(g) |
                        (g->stays && g->heap.backed > g->limit ? WIRE_FLAG_STAYS : 0u) |
                        (agent.waits && !core.running ? WIRE_FLAG_WAITS : 0u);
        m.USAGE.pass_bytes = g->leaving.count ? g->heap.extent_bytes : 0;
        g->told.usage = m.USAGE;
        g->told.usage_ns = clock_now_ns();
        if (daemon_send_with(&m, WIRE_USAGE, g->index, g->leaving.fds, g->leaving.count) < 0) {
                /* The daemon takes no descriptors. Since Linux 6.16 the kernel reports that
                 * (SO_PASSRIGHTS), with older kernels the daemon does (REFUSED). */
                g->may_pass = false;
                passed_close(&g->leaving); /* before the bytes are reported as free */
                m.USAGE.pass_bytes = 0;
                daemon_send(&m, WIRE_USAGE, g->index);
        }
        passed_close(&g->leaving);
}

/* Report how much host memory is mapped for kernels, and how much is requested. */
static void send_host(void) REQUIRES(core_lock)
{
        struct wire_message m = {0};

        agent.host_held_said = m.HOST.held = core_host_mapped() - core.host.taking;
        core.host.wanted = MAX(core.host.wanted, core_host_mapped());
        agent.host_requested_said = m.HOST.wanted = core.host.wanted;
        daemon_send(&m, WIRE_HOST, WIRE_NO_GPU);
        agent.host_sequence = daemon_line.sequence;
}

static void send_request(struct gpu *g) REQUIRES(core_lock)
{
        struct wire_message m = {0};

        g->request_dirty = false;
        m.REQUEST.commit = g->commit_requested;
        m.REQUEST.unevictable = g->unevictable_requested;
        m.REQUEST.need = g->heap.allocated;
        m.REQUEST.flags = (agent_wants_to_run() ? WIRE_FLAG_RUN : 0u) |
                          (agent_holds_spare(g) ? WIRE_FLAG_SPARE : 0u) |
                          (agent_wants_spare(g) ? WIRE_FLAG_SPARE_REQUEST : 0u);
        daemon_send(&m, WIRE_REQUEST, g->index);
        g->told.request = m.REQUEST;
        g->told.request_ns = clock_now_ns();
        g->told.request_sequence = daemon_line.sequence;
        g->told.run = m.REQUEST.flags & WIRE_FLAG_RUN;
        g->told.mover = request_is_movers(g);
}

/* ---- losing and finding the daemon; core_lock held ---- */

/* There is no daemon to ask for host memory: allow all available memory. */
static void host_alone(void) REQUIRES(core_lock)
{
        struct host_memory m;

        if (!core.host.known)
                core.host.most = host_memory_read(&m) < 0 ? 0 : host_memory_room(&m);
        core.host.allowed = UINT64_MAX;
        core.host.known = true;
}

/* There is no daemon for this GPU: set no limit, as on the plain driver. */
void agent_gpu_alone(struct gpu *g)
{
        host_alone();
        g->commit = g->limit = g->unevictable_allowed = UINT64_MAX;
        if (!g->visible)
                g->visible = g->total;
        gpu_is_managed(g);
        export_allowed(g, UINT64_MAX);
}

uint32_t agent_random(void)
{
        uint32_t random = 0;

        (void)syscall(SYS_getrandom, &random, sizeof(random), 1 /* GRND_NONBLOCK */);
        return random;
}

static void agent_down(const char *why) REQUIRES(core_lock)
{
        FOR_EACH_PART (p, daemon_lost) {
                p->daemon_lost();
        }
        lent_parted();
        agent_set_slice(0);
        if (daemon_line.link == LINK_UP || daemon_line.link == LINK_LOST)
                log_debug("lost the daemon in %s: %s", agent.where, why);
        if (daemon_line.fd >= 0)
                (void)close(daemon_line.fd);
        daemon_line.fd = -1;
        if (daemon_line.link != LINK_DOWN || !agent.down_since_ns)
                agent.down_since_ns = clock_now_ns();
        daemon_line.link = LINK_DOWN;
        agent.backoff_ns =
                agent.tried && agent.backoff_ns
                        ? MIN(agent.backoff_ns * 2, daemon_line.instance || require_daemon()
                                                            ? BACKOFF_MAX_NS
                                                            : BACKOFF_ALONE_NS)
                        : BACKOFF_MIN_NS;
        agent.retry_ns = clock_now_ns() + agent.backoff_ns / 2 + agent_random() % agent.backoff_ns;

        /* A revocation by a daemon that has ended means nothing. */
        if (agent.revoking && agent_own_drain() < OWN_DRAINS)
                agent_end_drain();
        for (unsigned i = 0; i < core.gpu_count; i++) {
                struct gpu *g = &core.gpus[i];

                g->asked = g->attached = false;
                passed_close(&g->leaving);
                /* Neither evict nor restore until a daemon orders it again. */
                if (g->managed && !core.running && agent_own_drain() < OWN_DRAINS &&
                    g->limit != UINT64_MAX)
                        g->limit = g->heap.backed;
        }
        agent.contested_ns = 0;
        agent.prompt = false;
        agent_throttle();
        ipc_disconnected();
        bell_ring(&core.changed);
}

static void agent_alone(const char *why) REQUIRES(core_lock)
{
        if (require_sharing()) {
                agent_refuse_alone(why);
                return;
        }
        agent_tell_alone(why);
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].known)
                        agent_gpu_alone(&core.gpus[i]);
        /* If memory is still evicted for an earlier daemon, it is restored first, as far as the
         * card has room. */
        if (agent_own_drain() < OWN_DRAINS && !agent.paused && agent_all_is_back())
                agent_go_on();
        bell_ring(&core.changed);
}

/* Resume a paused program if no daemon is left that could do so. True: the program had a lease and
 * has all of its memory. */
static bool unpause(void) REQUIRES(core_lock)
{
        if (!agent.paused || require_sharing())
                return false;
        log_notice("no daemon in %s any more: this program, which was paused, goes on",
                   agent.where);
        agent_pause(false);
        return core.lease != 0 && agent_all_is_back();
}

void agent_connect(void)
{
        int fd = -1, r;

        lock_release(&core_lock);
        r = link_connect(agent.where, &fd);
        lock_acquire(&core_lock);
        if (r < 0) {
                bool awaited = agent_awaits(r), first = !agent.tried && !awaited;

                agent.tried = agent.tried || !awaited;
                agent_down(strerror(-r));
                if (!agent_refused(r) &&
                    (first || clock_now_ns() - agent.down_since_ns > ALONE_AFTER_NS)) {
                        /* A program that never had a daemon may run without one. A program that
                         * lost its daemon may do so only if it is running, or was paused during its
                         * turn. */
                        if (unpause() || core.running || !daemon_line.instance)
                                agent_alone(strerror(-r));
                }
                return;
        }
        agent.tried = true;
        daemon_line.fd = fd;
        daemon_line.link = LINK_HELLO;
        daemon_line.held = false;
        daemon_line.sequence = 0;
        agent_hello();
}

/* ---- messages in; core_lock held ---- */

/* A function that handles one received message. g: the GPU that the header names; NULL: the message
 * is about no GPU. came: the received descriptors; those that the function leaves there are closed.
 */
#define HANDLER(name)                                                                      \
        static void name(const struct wire_message *m, struct gpu *g, struct passed *came) \
                REQUIRES(core_lock)

HANDLER(on_welcome)
{
        daemon_line.link = LINK_UP;
        daemon_line.instance = m->WELCOME.instance;
        agent.backoff_ns = 0;
        agent.refusal_said = false;
        core.lease = 0;
        agent.freeze_most = WIRE_FREEZE_MOVE;
        agent.frozen_said = 0;
        agent_claim();
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (core.gpus[i].known)
                        agent_send_attach(&core.gpus[i]);
        ipc_connected();
}

static void count_refusal(struct refusals *r, uint64_t bytes, const char *why)
{
        (void)snprintf(r->why, sizeof(r->why), "%s", why);
        r->bytes = bytes;
        r->count++;
}

/* The daemon speaks another version, so even its grants cannot be relied on. */
static void on_other_release(const char *text) REQUIRES(core_lock)
{
        agent_down(text);
        core.lease = 0;
        if (require_sharing()) {
                if (!agent.refusal_said)
                        log_warning("%s; this program waits for a daemon of its own release", text);
                agent.refusal_said = true;
                return;
        }
        log_warning("%s; this program runs without sharing", text);
        daemon_line.link = LINK_REFUSED;
        daemon_line.warned = true;
        agent_pause(false);
        agent_alone(text);
        /* Several programs may have grown without a daemon, so that none has room for all of its
         * memory. Drain this one, so that its memory can give way (giveway.h). */
        if (core.running && !agent_all_is_back())
                agent_begin_drain(ALONE_PATIENCE_NS, true);
}

HANDLER(on_refused)
{
        /* The refusal of an earlier request means nothing: the last request gets its own answer. */
        bool last = g && m->REFUSED.of == g->told.request_sequence;

        switch (m->REFUSED.code) {
        case WIRE_REFUSED_COMMIT:
                if (!last)
                        break;
                g->commit_requested = g->commit;
                count_refusal(&g->refused_commit, g->told.request.commit, m->REFUSED.text);
                break;
        case WIRE_REFUSED_UNEVICTABLE:
                if (!last)
                        break;
                g->unevictable_requested = g->unevictable_allowed;
                if (g->told.mover)
                        request_no_mover(
                                g); /* other threads' requests may be smaller, and be granted */
                else
                        count_refusal(&g->refused_unevictable, g->told.request.unevictable,
                                      m->REFUSED.text);
                break;
        case WIRE_REFUSED_EXPORT:
                if (g)
                        export_refused(g);
                break;
        case WIRE_REFUSED_PEER:
                ipc_on_refused(m);
                break;
        case WIRE_REFUSED_PASS:
                if (g)
                        g->may_pass = false;
                break;
        case WIRE_REFUSED_VERSION:
                on_other_release(m->REFUSED.text);
                break;
        default:
                log_warning("the daemon in %s refused this program: %s", agent.where,
                            m->REFUSED.text);
                break;
        }
        bell_ring(&core.changed);
}

/* A FREEZE message takes effect at once. Without a FREEZE message, every mode is allowed once
 * ATTACHED has come. */
HANDLER(on_freeze)
{
        agent.freeze_most = (enum wire_freeze)m->FREEZE.mode;
        freeze_allow(agent.freeze_most);
}

HANDLER(on_attached)
{
        bool first = !g->managed;

        freeze_allow(agent.freeze_most);
        g->visible = m->ATTACHED.visible_bytes;
        g->cap = m->ATTACHED.cap_bytes;
        g->context_bytes = m->ATTACHED.context_bytes;
        g->block_bytes = MAX(m->ATTACHED.block_bytes, HEAP_GRANULARITY);
        agent.bound_ns = m->ATTACHED.bound_ns;
        if (daemon_line.warned)
                log_notice("the daemon in %s is back: sharing again", agent.where),
                        daemon_line.warned = false;
        /* Request again the bytes that an earlier daemon had promised. */
        g->commit_requested = MAX(g->commit_requested, g->heap.allocated);
        if (g->commit_requested == UINT64_MAX)
                g->commit_requested = g->heap.allocated;
        g->limit_sequence = 0;
        g->attached = g->may_pass = true;
        /* With overflow the visible size depends on the host's memory: wait until that is known. */
        if (!g->overflow || core.host.known)
                gpu_is_managed(g);
        agent.host_requested_said = UINT64_MAX;
        log_debug("GPU %u: shared by the daemon in %s; this program sees %llu MiB", g->index,
                  agent.where, (unsigned long long)(g->visible >> 20));
        if (first && !core.running)
                gate_shut(GATE_NO_LEASE);
        g->request_dirty |= agent_wants_to_run() || g->commit_requested > g->commit;
        bell_ring(&core.changed);
}

HANDLER(on_limit)
{
        uint64_t commit_before = g->commit;

        /* If this LIMIT crossed a REQUEST that returns room, do not use that room again. */
        g->commit = MIN(m->LIMIT.commit, MAX(g->commit_requested, g->heap.allocated));
        if (m->LIMIT.backed < g->limit && m->LIMIT.backed < g->heap.allocated)
                g->told.run = false; /* waiting threads must ask again */
        g->limit = m->LIMIT.backed;
        g->unevictable_allowed = m->LIMIT.unevictable;
        g->visible = m->LIMIT.visible_bytes;
        g->limit_sequence = m->header.sequence;
        if (g->commit > commit_before)
                core_room_changed(g);
        /* The commit was lowered before the threads that had asked for it could use it: ask
         * again. */
        if (g->commit < commit_before && g->commit_askers > 0)
                g->request_dirty = true;
        g->usage_dirty = true;
        while (came->count && m->LIMIT.pass_bytes == g->heap.extent_bytes)
                passed_add(&g->passed, passed_take(came));
        bell_ring(&core.changed);
}

HANDLER(on_room_left)
{
        g->room = m->ROOM_LEFT.commit;
        g->room_host = m->ROOM_LEFT.host;
        g->room_answered = m->ROOM_LEFT.ask;
        bell_ring(&core.changed);
}

HANDLER(on_host_limit)
{
        core.host.allowed = m->HOST_LIMIT.bytes;
        if (!core.host.known)
                core.host.most = m->HOST_LIMIT.most;
        core.host.known = true;
        /* This answers our last HOST message; requests that threads have made since are not yet
         * sent. */
        if (m->HOST_LIMIT.of == agent.host_sequence &&
            core.host.allowed < agent.host_requested_said) {
                count_refusal(&core.host.refused, agent.host_requested_said, "");
                core.host.wanted = core.host.allowed;
                agent.host_requested_said = core.host.wanted;
        }
        for (unsigned i = 0; i < core.gpu_count; i++) {
                if (core.gpus[i].attached)
                        gpu_is_managed(&core.gpus[i]);
                core_room_changed(&core.gpus[i]);
        }
        bell_ring(&core.changed);
}

HANDLER(on_grant)
{
        core.lease = m->GRANT.lease;
        agent.idle = agent.idle_said = false;
        agent.tick_ns = clock_now_ns() + agent_tick();
        bell_ring(&core.changed);
}

HANDLER(on_revoke)
{
        agent_cancel_own();
        if (m->REVOKE.lease != core.lease || agent.revoking || !core.lease)
                return;
        gate_open(GATE_TELL);
        agent.idle_said = false;
        agent_begin_drain(m->REVOKE.patience_ns, true);
}

HANDLER(on_contested)
{
        const uint64_t times[] = {[WIRE_CONTESTED_NOW] = 1, [WIRE_CONTESTED_MAY] = WIRE_MAY_TIMES};

        agent.contested_ns =
                agent.bound_ns * times[MIN(m->CONTESTED.contested, (uint64_t)WIRE_CONTESTED_MAY)];
        agent_throttle();
}

HANDLER(on_notice)
{
        log_warning("%s", m->NOTICE.text);
}

HANDLER(on_spare)
{
        agent_mover_unwanted(g);
}

HANDLER(on_unpin)
{
        swap_ask_unpin(g, m->UNPIN.bytes);
}

HANDLER(on_host_pool)
{
        lent_told(passed_take(came), m->HOST_POOL.bytes, m->HOST_POOL.filled);
}

HANDLER(on_filled)
{
        lent_filled(m->FILLED.filled, m->FILLED.refused != 0);
}

HANDLER(on_pause)
{
        agent_pause(m->PAUSE.paused != 0);
}

HANDLER(on_exported)
{
        export_allowed(g, m->EXPORTED.bytes);
}

HANDLER(on_named)
{
        ipc_on_named(m);
}

HANDLER(on_peered)
{
        ipc_on_peered(m, came);
}

static void (*const handlers[])(const struct wire_message *m, struct gpu *g,
                                struct passed *came) = {
        [WIRE_WELCOME] = on_welcome,       [WIRE_REFUSED] = on_refused,
        [WIRE_ATTACHED] = on_attached,     [WIRE_LIMIT] = on_limit,
        [WIRE_HOST_LIMIT] = on_host_limit, [WIRE_ROOM_LEFT] = on_room_left,
        [WIRE_GRANT] = on_grant,           [WIRE_REVOKE] = on_revoke,
        [WIRE_CONTESTED] = on_contested,   [WIRE_FREEZE] = on_freeze,
        [WIRE_NOTICE] = on_notice,         [WIRE_SPARE] = on_spare,
        [WIRE_UNPIN] = on_unpin,           [WIRE_HOST_POOL] = on_host_pool,
        [WIRE_FILLED] = on_filled,         [WIRE_PAUSE] = on_pause,
        [WIRE_EXPORTED] = on_exported,     [WIRE_NAMED] = on_named,
        [WIRE_PEERED] = on_peered,         [WIRE_HOLDER] = agent_on_holder,
        [WIRE_SLICE] = agent_on_slice,     [WIRE_HAND] = agent_on_hand,
        [WIRE_PROMPT] = agent_on_prompt,
};

static void agent_handle(const struct wire_message *m, struct passed *came) REQUIRES(core_lock)
{
        const unsigned type = m->header.type, gpu = m->header.gpu;
        struct gpu *g = gpu < core.gpu_count && core.gpus[gpu].known ? &core.gpus[gpu] : NULL;

        if (type < ARRAY_SIZE(handlers) && handlers[type] &&
            (g || wire_scope(type) != WIRE_SCOPE_GPU))
                handlers[type](m, g, came);
}

void agent_listen(void)
{
        if (daemon_line.link == LINK_LOST)
                agent_down(strerror(-daemon_line.error));
        /* HELLO has said that this rank takes turns. It cannot take turns any more, so connect once
         * more to say so. */
        if (agent.takes_turns && daemon_line.link == LINK_UP && freeze_mode() != WIRE_FREEZE_MOVE)
                agent_down("ranks that cannot be frozen run together");
        while (daemon_line.fd >= 0) {
                struct wire_message m;
                struct passed came;
                int r = link_receive(daemon_line.fd, WIRE_DOWN, &m, &came);

                if (r == 0)
                        return;
                if (r < 0) {
                        agent_down(strerror(-r));
                        return;
                }
                agent_handle(&m, &came);
                passed_close(&came);
        }
}

/* Give back room that the program no longer uses, if it is more than a few blocks. While overflow
 * moves buffers between card and host, their room is kept for other buffers of the program. */
static void trim_commit(struct gpu *g, uint64_t now) REQUIRES(core_lock)
{
        uint64_t used = MAX(g->heap.allocated, g->commit_kept);
        uint64_t keep = align_up(used, g->block_bytes) + g->block_bytes;

        if (g->commit == UINT64_MAX || g->commit_requested != g->commit || g->commit_askers > 0 ||
            agent_own_drain() == OWN_MOVES || g->commit <= keep + 2 * g->block_bytes)
                return;
        if (now - g->commit_used_ns < COMMIT_KEEP_NS) {
                agent.tell_ns = MIN(agent.tell_ns, g->commit_used_ns + COMMIT_KEEP_NS);
                return;
        }
        g->commit = g->commit_requested = keep;
        g->request_dirty = true;
}

/* Report host memory if threads request another size than was reported, or hold less than was
 * reported. */
static void tell_host(void) REQUIRES(core_lock)
{
        bool any = false;

        for (unsigned i = 0; i < core.gpu_count; i++)
                any = any || (core.gpus[i].overflow && core.gpus[i].attached);
        if (!any)
                return;
        if (core.host.wanted != agent.host_requested_said ||
            core_host_mapped() - core.host.taking < agent.host_held_said)
                send_host();
}

/* Ask the daemon for host memory, or report how much is left of what earlier daemons lent. */
static void tell_lent(void) REQUIRES(core_lock)
{
        struct wire_message m = {0};

        if (lent_to_say(&m.FILL.end, &m.FILL.kept))
                daemon_send(&m, WIRE_FILL, WIRE_NO_GPU);
}

/* True if the figures must be sent now: a thread or the daemon waits for them or for a later
 * message, or the last report is old enough. */
static bool usage_is_due(const struct gpu *g) REQUIRES(core_lock)
{
        return g->request_dirty || g->room_asked != g->told.room || g->leaving.count > 0 ||
               agent.revoking || agent_wants_to_run() || g->export_requested > g->told.exported ||
               g->told.usage.limit_sequence != g->limit_sequence || g->heap.backed > g->limit ||
               clock_now_ns() - g->told.usage_ns >= USAGE_SPACING_NS;
}

/* A thread submits. If the daemon was told that the client is idle, tell it that the client is
 * active. */
static void tell_active(uint64_t now) REQUIRES(core_lock)
{
        core.submits = false;
        if (!agent.idle_said)
                return;
        agent.idle = agent.idle_said = agent.waits = false;
        agent.tick_ns = now + agent_tick();
        agent_send_lease(WIRE_ACTIVE);
}

/* Report that the driver lacked memory within the limit: other processes hold bytes that were
 * promised to us. */
static void tell_short(struct gpu *g, uint64_t now) REQUIRES(core_lock)
{
        struct wire_message m = {.SHORT.bytes = g->short_bytes};

        g->short_bytes = 0;
        if (now - g->told.short_ns < SHORT_SPACING_NS)
                return;
        g->told.short_ns = now;
        daemon_send(&m, WIRE_SHORT, g->index);
}

/* Report that an eviction found no host memory: other programs may hold some that they do not need.
 * The report counts two extents more than have to leave: extents leave as a whole, and each process
 * sees slightly different figures of the host. */
static void tell_host_short(struct gpu *g, uint64_t now) REQUIRES(core_lock)
{
        const uint64_t owed = sub_sat(g->heap.backed, g->limit);
        struct wire_message m = {.HOST_SHORT.bytes = owed + 2 * g->heap.extent_bytes};

        g->host_short = false;
        if (!owed || now - g->told.host_short_ns < HOST_SPACING_NS)
                return;
        g->told.host_short_ns = now;
        daemon_send(&m, WIRE_HOST_SHORT, g->index);
}

/* True if the daemon does not know, or no longer knows, that the program wants to run and what it
 * needs. */
static bool run_is_due(const struct gpu *g, uint64_t now) REQUIRES(core_lock)
{
        return agent_wants_to_run() && (!core.running || heap_missing(&g->heap) > 0) &&
               (!g->told.run || g->told.request.need != g->heap.allocated ||
                (core.running && now - g->told.request_ns >= REQUEST_AGAIN_NS));
}

static void tell_usage(struct gpu *g, uint64_t now) REQUIRES(core_lock)
{
        if (g->usage_dirty && usage_is_due(g)) {
                agent_self_spared(g);
                send_usage(g);
        }
        if (g->usage_dirty)
                agent.tell_ns = MIN(agent.tell_ns, now + USAGE_SPACING_NS);
}

/* Call it last: the answer counts all that earlier messages have said. */
static void ask_room(struct gpu *g) REQUIRES(core_lock)
{
        struct wire_message m = {.ROOM.ask = g->room_asked};

        g->told.room = g->room_asked;
        daemon_send(&m, WIRE_ROOM, g->index);
}

static void tell_gpu(struct gpu *g, uint64_t now) REQUIRES(core_lock)
{
        if (g->short_bytes)
                tell_short(g, now);
        if (g->host_short)
                tell_host_short(g, now);
        trim_commit(g, now);
        if (run_is_due(g, now))
                g->request_dirty = true;
        tell_exported(g);
        agent_self_tell(g);
        tell_usage(g, now);
        tell_exported(g);
        if (g->request_dirty && daemon_line.link == LINK_UP)
                send_request(g);
        if (g->room_asked != g->told.room && daemon_line.link == LINK_UP)
                ask_room(g);
}

void agent_tell(void)
{
        uint64_t now = clock_now_ns();

        agent.tell_ns = UINT64_MAX;
        if (core.submits)
                tell_active(now);
        if (core.holder.asked)
                agent_ask_holder();
        agent_self_count(now);
        agent_self_frozen();
        tell_host();
        tell_lent();
        for (unsigned i = 0; i < core.gpu_count && daemon_line.link == LINK_UP; i++)
                if (core.gpus[i].attached)
                        tell_gpu(&core.gpus[i], now);
}
