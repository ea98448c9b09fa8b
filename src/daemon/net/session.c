/* session.c: owns the translation between messages and the scheduler's events and actions. Must
 * never decide who may hold or run anything (the scheduler does), nor call the scheduler while
 * carrying out its actions. */
#include "daemon/net/session.h"
#include "daemon/net/peer_daemons.h"
#include "daemon/state/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/history/history.h"
#include "daemon/people/process.h"
#include "daemon/setup/kill_point.h"
#include "daemon/net/broker.h"
#include "daemon/mps/mps_servers.h"
#include "daemon/net/room_left.h"
#include "daemon/ledger/pause.h"
#include "daemon/ledger/preemption.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/ledger/event.h"
#include "daemon/lend/host_pool.h"
#include "daemon/ledger/card_figures.h"
#include "daemon/ledger/allowance.h"
#include "daemon/ledger/permit.h"
#include "daemon/metrics/tally.h"

#define HOST_MOST  (UINT64_C(1) << 50) /* more than any machine has: such a figure is a lie */
#define BOUND_NS   (10 * NSEC_PER_MSEC)
#define REQUEST_NS (10 * NSEC_PER_SEC) /* time for idle clients of peer daemons to give way */
#define CHAIN_MAX  16                  /* clients that wait for one another, in a chain */

/* Moves the charge of the process's earlier record to this one, for each GPU that it attaches
 * again. */
static int take_over(struct client *c, const struct sched_origin *origin)
{
        struct server *s = c->server;
        struct client *old = c->former;
        int r;

        if (!old->lost_told) {
                old->lost_told = true;
                sched_client_lost(s->sched, old->id, clock_now_ns(), &s->actions);
        }
        tally_ended(old);
        kill_point("returning");
        r = sched_client_returned(s->sched, c->id, old->id);
        /* Ranks that took turns may have become a group. */
        return r < 0 ? r
                     : sched_client_origin(s->sched, c->id, origin, clock_now_ns(), &s->actions);
}

/* Releases earlier records that have no charge left. Records behind them in the chain may have a
 * charge. A process may come back with one GPU and lose the connection before it names the others.
 */
static void release_former(struct client *c)
{
        struct client **link = &c->former;

        while (*link) {
                struct client *old = *link;
                struct sched_client_view v;

                if (sched_client_view(c->server->sched, old->id, clock_now_ns(), &v) == 0) {
                        link = &old->former;
                        continue;
                }
                *link = old->former;
                old->former = NULL;
                client_mark_gone(old);
        }
}

static void find_container(struct client *c)
{
        char cgroup[PEER_CGROUP_MAX];

        if (peer_cgroup(&c->peer, cgroup) == 0)
                container_of_cgroup(cgroup, &c->container);
}

/* Without a configuration no program gets a turn or memory. The client waits for its WELCOME, and
 * can tell its user why. It connects again when the daemon has a configuration. */
static int hold(struct client *c)
{
        struct wire_message m = {.header = {WIRE_HOLDER, WIRE_NO_GPU, 0}};

        m.HOLDER.flags = WIRE_HOLDER_NO_CONFIGURATION;
        client_send(c, &m);
        log_info("client %d (%s) waits: there is no good configuration", (int)c->peer.pid, c->name);
        return 0;
}

static int on_hello(struct client *c, const struct wire_message *m)
{
        static const char *const kinds[] = {
                [TENANT_NONE] = "", [TENANT_POD] = ", pod ", [TENANT_JOB] = ", job "};
        struct wire_message welcome = {.header = {WIRE_WELCOME, WIRE_NO_GPU, 0}};
        char text[160];

        (void)snprintf(c->name, sizeof(c->name), "%s", m->HELLO.name);
        (void)snprintf(c->version, sizeof(c->version), "%s", m->HELLO.version);
        (void)snprintf(c->group, sizeof(c->group), "%s", m->HELLO.group);
        c->takes_turns = m->HELLO.takes_turns && c->group[0];
        if (m->HELLO.protocol != WIRE_VERSION) {
                (void)snprintf(text, sizeof(text),
                               "subletd " SUBLET_VERSION " speaks protocol %u, this program's "
                               "libsublet.so %s speaks %u: use one release of both",
                               WIRE_VERSION, c->version, m->HELLO.protocol);
                client_refuse(c, WIRE_REFUSED_VERSION, text);
                return -EPROTONOSUPPORT;
        }
        c->greeted = true;
        if (c->server->held)
                return hold(c);
        find_container(c);
        entitlement_greeted(c, (int32_t)m->HELLO.priority);
        log_info("client %d (%s), user %u%s%s, release %s", (int)c->peer.pid, c->name,
                 (unsigned)c->peer.uid, kinds[c->peer.tenant.kind], c->peer.tenant.id, c->version);
        welcome.WELCOME.magic = WIRE_MAGIC;
        welcome.WELCOME.instance = c->server->instance;
        welcome.WELCOME.protocol = WIRE_VERSION;
        (void)snprintf(welcome.WELCOME.version, sizeof(welcome.WELCOME.version), "%s",
                       SUBLET_VERSION);
        client_send(c, &welcome);
        if (!m->HELLO.previous_instance) /* not again when the process comes back */
                entitlement_tell_priority(c, (int32_t)m->HELLO.priority);
        pause_greeted(c);
        return 0;
}

static void send_attached(struct client *c, unsigned gpu, unsigned ordinal)
{
        struct wire_message m = {.header = {WIRE_ATTACHED, (uint16_t)ordinal, 0}};
        struct sched_gpu_view v = {0};

        (void)sched_gpu_view(c->server->sched, gpu, &v);
        m.ATTACHED.visible_bytes = MIN(v.visible, entitlement_cap(c));
        m.ATTACHED.cap_bytes = entitlement_cap(c) < UINT64_MAX ? entitlement_cap(c) : 0;
        m.ATTACHED.context_bytes = gpus_context_bytes(c->server->gpus.list[gpu].driver_bytes);
        m.ATTACHED.block_bytes = gpus_block_bytes(v.capacity);
        m.ATTACHED.bound_ns = BOUND_NS;
        client_send(c, &m);
}

/* Root has one uid in all containers, but is a different user in each. A pod's containers are one
 * tenant. */
static bool of_one_group(const struct client *a, const struct client *b)
{
        return a->group[0] && strcmp(a->group, b->group) == 0 && a->takes_turns == b->takes_turns &&
               peer_same_user(&a->peer, &b->peer) && peer_same_account(&a->peer, &b->peer) &&
               (a->peer.tenant.kind == TENANT_POD || a->peer.container == b->peer.container);
}

/* Numbers the job of a new client whose group takes turns. */
static void find_job(struct client *c)
{
        c->rank_of = 0;
        if (!c->takes_turns)
                return;
        for (const struct client *o = c->server->clients; o && !c->rank_of; o = o->next)
                if (o != c && o->id && of_one_group(c, o))
                        c->rank_of = o->rank_of;
        if (!c->rank_of)
                c->rank_of = ++c->server->rank_groups;
}

/* Makes a new client run together with the clients of its group: it uses their share of the time.
 */
static void join_group(struct client *c)
{
        for (const struct client *o = c->server->clients; o; o = o->next) {
                if (o == c || !o->id ||
                    !(entitlement_groups(c, o) || (!c->takes_turns && of_one_group(c, o))))
                        continue;
                (void)sched_client_join(c->server->sched, c->id, o->id);
                return;
        }
}

static int register_client(struct client *c)
{
        const struct sched_share share = entitlement_share(c);
        struct server *s = c->server;
        struct sched_origin origin;
        uint32_t slot;
        int r;

        find_job(c);
        origin = entitlement_origin(c);
        r = sched_client_add(s->sched, origin, c->priority, clock_now_ns(), &c->id);
        if (r < 0) {
                client_refuse(c, WIRE_REFUSED_LIMIT,
                              "the daemon serves as many programs as it may: end some, or raise "
                              "its key clients_max");
                return r;
        }
        slot = (uint32_t)c->id;
        if (slot > s->config->sched.clients_max)
                return -EINVAL;
        s->by_slot[slot] = c;
        s->n_attached++;
        (void)sched_client_share(s->sched, c->id, &share, clock_now_ns(), &s->actions);
        /* Set the marker before the client can hold anything, so that no crash comes in between. */
        place_mark(s->place, true);
        kill_point("attaching");
        r = c->former ? take_over(c, &origin) : 0;
        join_group(c); /* the group may be another one than before */
        return r;
}

static void refuse_gpu(struct client *c, const struct wire_message *m, int error)
{
        event_refuse(c, m->header.gpu, WIRE_REFUSED_GPU, m->header.sequence,
                     error == -ENOSPC   ? "this daemon serves 16 GPUs already"
                     : error == -EUSERS ? "this user's programs use as many GPUs that NVML "
                                          "does not know as one user may"
                                        : "no GPU has this much memory");
}

static int on_attach(struct client *c, const struct wire_message *m)
{
        const struct wire_ATTACH *in = &m->ATTACH;
        struct server *s = c->server;
        struct sched_attach a = {
                .usage = {.allocated = in->allocated,
                          .backed = in->backed,
                          .unevictable = in->unevictable,
                          .arena = in->arena},
                .unevictable_requested = in->unevictable_requested,
                .running = in->flags & WIRE_FLAG_RUNNING,
                .run = in->flags & WIRE_FLAG_RUN,
                .idle = in->flags & WIRE_FLAG_IDLE,
                .detached = in->flags & WIRE_FLAG_DETACHED,
                .spare = in->flags & WIRE_FLAG_SPARE,
                .sequence = m->header.sequence,
        };
        char why[160];
        unsigned gpu;
        bool may;
        int r;

        r = gpus_find(&s->gpus, in->uuid, in->total_bytes, allowance_card(c), s->sched,
                      clock_now_ns(), &gpu);
        if (r < 0) {
                refuse_gpu(c, m, r);
                return 0;
        }
        if (c->gpu_of[m->header.gpu] >= 0 || c->accounts[gpu].ordinal >= 0)
                return -EEXIST;
        if (!c->id) {
                r = register_client(c);
                if (r < 0)
                        return r;
        }
        allowance_claim(c, gpu, &a.usage);
        entitlement_attach(c, gpu, &a.usage);
        if (a.usage.backed < in->backed || a.usage.unevictable < in->unevictable)
                log_info("client %d (%s) says that it holds more than it can", (int)c->peer.pid,
                         c->name);
        may = permit_unevictable(c, gpu, a.unevictable_requested, false, why);
        if (!may)
                a.unevictable_requested = 0;
        r = sched_client_attach(s->sched, c->id, gpu, &a, clock_now_ns(), &s->actions);
        if (r < 0)
                return r;
        c->gpu_of[m->header.gpu] = (int)gpu;
        c->accounts[gpu].ordinal = m->header.gpu;
        c->accounts[gpu].limit_told = in->backed;
        send_attached(c, gpu, m->header.gpu);
        pause_attached(c);
        host_pool_attached(c);
        event_end(s);
        preemption_offer(c);
        if (!may)
                event_refuse(c, m->header.gpu, WIRE_REFUSED_UNEVICTABLE, m->header.sequence, why);
        release_former(c);
        /* Until now this client's memory may have counted as foreign. */
        if (in->backed + in->unevictable > 0)
                server_measure_soon(s);
        return 0;
}

static int on_usage(struct client *c, const struct wire_message *m)
{
        const struct wire_USAGE *in = &m->USAGE;
        struct sched_usage u = {
                .allocated = in->allocated,
                .backed = in->backed,
                .unevictable = in->unevictable,
                .arena = in->arena,
                .moved_out = in->moved_out,
                .moved_in = in->moved_in,
                .drain_ns = in->drain_ns,
                .waits = in->flags & WIRE_FLAG_WAITS,
                .stays = in->flags & WIRE_FLAG_STAYS,
        };

        /* Refuse the descriptors only; the figures of the message count. From Linux 6.16 on the
         * kernel refuses them at the sender's end. */
        if (in->pass_bytes && !c->peer.trusted)
                event_refuse(c, m->header.gpu, WIRE_REFUSED_PASS, m->header.sequence,
                             "descriptors are taken from the daemon's own user alone");
        c->accounts[c->gpu_of[m->header.gpu]].unpin_told = false;
        allowance_usage(c, (unsigned)c->gpu_of[m->header.gpu], &u);
        pass_begin(c->server, c, (unsigned)c->gpu_of[m->header.gpu], in->pass_bytes);
        tally_usage(c, (unsigned)c->gpu_of[m->header.gpu], in->moved_out, in->moved_in);
        return sched_client_usage(c->server->sched, c->id, (unsigned)c->gpu_of[m->header.gpu], &u,
                                  in->limit_sequence,
                                  in->flags & WIRE_FLAG_POISONED ? SCHED_POISONED : 0,
                                  clock_now_ns(), &c->server->actions);
}

/* Keeps a request that would be refused, which to the program is out-of-memory, while idle clients
 * of peer daemons may give way. */
static bool keep_request(struct client *c, unsigned gpu, uint64_t commit, uint32_t sequence)
{
        if (!peer_daemons_may_help(c->server, gpu, commit))
                return false;
        c->request = (struct client_request){commit, clock_now_ns(), sequence, gpu, true};
        return true;
}

static void resume_request(struct client *c)
{
        struct server *s = c->server;
        struct client_request w = c->request;

        if (peer_daemons_may_help(s, w.gpu, w.commit)) {
                if (clock_now_ns() - w.since_ns < REQUEST_NS)
                        return;
                peer_daemons_did_not_help(s, w.gpu);
        }
        c->request.kept = false;
        event_begin(s);
        (void)sched_client_commit(s->sched, c->id, w.gpu, w.commit, w.sequence, clock_now_ns(),
                                  &s->actions);
        event_end(s);
}

void session_resume(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next)
                if (c->request.kept && !c->dropped)
                        resume_request(c);
}

static int on_request(struct client *c, const struct wire_message *m)
{
        struct sched_request w = {
                .commit = m->REQUEST.commit,
                .unevictable = m->REQUEST.unevictable,
                .need = m->REQUEST.need,
                .run = m->REQUEST.flags & WIRE_FLAG_RUN,
                .spare = m->REQUEST.flags & WIRE_FLAG_SPARE,
                .spare_requested = m->REQUEST.flags & WIRE_FLAG_SPARE_REQUEST,
                .sequence = m->header.sequence,
        };
        unsigned gpu = (unsigned)c->gpu_of[m->header.gpu];
        struct sched_account_view v;
        int r = sched_account_view(c->server->sched, c->id, gpu, &v);
        char why[160];

        if (r < 0)
                return r;
        /* A refused part counts as not requested; the rest of the message holds. */
        if (w.commit > v.commit && !permit_commit(c, gpu, w.commit, false, why)) {
                w.commit = 0;
                event_refuse(c, m->header.gpu, WIRE_REFUSED_COMMIT, m->header.sequence, why);
        }
        if (w.unevictable > v.unevictable &&
            !permit_unevictable(c, gpu, w.unevictable, w.spare || w.spare_requested, why)) {
                w.unevictable = 0;
                event_refuse(c, m->header.gpu, WIRE_REFUSED_UNEVICTABLE, m->header.sequence, why);
        }
        if (w.commit)
                c->request.kept = false; /* this request replaces the kept one */
        if (w.commit > v.commit && keep_request(c, gpu, w.commit, m->header.sequence))
                w.commit = 0;
        return sched_client_request(c->server->sched, c->id, gpu, &w, clock_now_ns(),
                                    &c->server->actions);
}

static int on_export(struct client *c, const struct wire_message *m)
{
        struct sched_export p = {
                .bytes = m->EXPORT.bytes,
                .held = m->EXPORT.flags & WIRE_EXPORT_HELD,
                .sequence = m->header.sequence,
        };
        unsigned gpu = (unsigned)c->gpu_of[m->header.gpu];
        struct sched_account_view v;
        int r = sched_account_view(c->server->sched, c->id, gpu, &v);
        uint64_t most;

        if (r < 0)
                return r;
        most = allowance_exported(c, gpu);
        if (p.bytes > v.exported && p.bytes > most) {
                if (!p.held) {
                        event_refuse(c, m->header.gpu, WIRE_REFUSED_EXPORT, m->header.sequence,
                                     permit_share_text);
                        return 0;
                }
                p.bytes = MAX(v.exported, most); /* bytes beyond these are not believed */
        }
        return sched_client_export(c->server->sched, c->id, gpu, &p, clock_now_ns(),
                                   &c->server->actions);
}

static int on_idle(struct client *c, const struct wire_message *m)
{
        return sched_client_idle(c->server->sched, c->id, m->IDLE.lease, true, clock_now_ns(),
                                 &c->server->actions);
}

static int on_active(struct client *c, const struct wire_message *m)
{
        return sched_client_idle(c->server->sched, c->id, m->ACTIVE.lease, false, clock_now_ns(),
                                 &c->server->actions);
}

static int on_drained(struct client *c, const struct wire_message *m)
{
        tally_drained(c, m->DRAINED.lease);
        return sched_client_drained(c->server->sched, c->id, m->DRAINED.lease, clock_now_ns(),
                                    &c->server->actions);
}

static const char *why_drain_failed(uint32_t reason)
{
        switch (reason) {
        case WIRE_DRAIN_CAPTURE:
                return "a stream capture goes on";
        case WIRE_DRAIN_HIDDEN:
                return "it has loaded a library whose work on the GPU cannot be awaited";
        case WIRE_DRAIN_PAUSED:
                return "it is paused, and its memory stays on the GPU meanwhile";
        default:
                return "its work in flight waits for work that it has not submitted";
        }
}

static int on_drain_failed(struct client *c, const struct wire_message *m)
{
        struct sched_client_view v;
        bool asked = sched_client_view(c->server->sched, c->id, clock_now_ns(), &v) == 0 &&
                     v.state == SCHED_DRAINING && v.lease == m->DRAIN_FAILED.lease;
        int r;

        /* Logged once for each revocation, whatever a client sends. */
        if (asked)
                log_info("process %d (%s) keeps its turn after %llu ms: %s", (int)c->peer.pid,
                         c->name, (unsigned long long)(m->DRAIN_FAILED.after_ns / NSEC_PER_MSEC),
                         why_drain_failed(m->DRAIN_FAILED.reason));
        r = sched_client_drain_failed(c->server->sched, c->id, m->DRAIN_FAILED.lease,
                                      m->DRAIN_FAILED.after_ns, clock_now_ns(),
                                      &c->server->actions);
        if (asked && m->DRAIN_FAILED.reason == WIRE_DRAIN_PAUSED)
                pause_refused(c);
        return r;
}

/* The missing bytes count only within what the client may back and has not backed: by claiming them
 * it takes no more from others than by allocating them. */
static int on_short(struct client *c, const struct wire_message *m)
{
        struct sched *sched = c->server->sched;
        unsigned gpu = (unsigned)c->gpu_of[m->header.gpu];
        struct sched_account_view v;
        int r = sched_account_view(sched, c->id, gpu, &v);

        if (r < 0)
                return r;
        r = sched_client_short(sched, c->id, gpu,
                               MIN(m->SHORT.bytes, sub_sat(v.limit, v.usage.backed)),
                               clock_now_ns(), &c->server->actions);
        event_end(c->server);
        figures_rise(c->server, gpu);
        return r;
}

/* True if the client holds pinned host memory that it needs for no evicted memory, and was not
 * asked for it. A client that does not answer is asked once. */
static bool can_unpin(const struct client *c, unsigned gpu)
{
        const struct client_account *acc = &c->accounts[gpu];
        struct sched_account_view v;

        return acc->ordinal >= 0 && !acc->unpin_told && !c->dropped &&
               sched_account_view(c->server->sched, c->id, gpu, &v) == 0 &&
               client_spare_arena(&v) > 0;
}

static void ask_to_unpin(struct client *c, unsigned gpu, uint64_t bytes)
{
        struct wire_message m = {.header = {WIRE_UNPIN, (uint16_t)c->accounts[gpu].ordinal, 0},
                                 .UNPIN.bytes = bytes};

        c->accounts[gpu].unpin_told = true;
        client_send(c, &m);
}

/* The client goes on evicting as soon as others have given host memory back. Only a client that has
 * to evict is believed. Those that are asked look themselves whether the host is short of memory.
 * The pools are looked at once, and only if somebody can give: many clients may repeat this message
 * every 100 ms. */
static int on_host_short(struct client *c, const struct wire_message *m)
{
        struct server *s = c->server;
        const unsigned gpu = (unsigned)c->gpu_of[m->header.gpu];
        const uint64_t bytes = m->HOST_SHORT.bytes;
        enum host_pool_lack lack = HOST_POOL_LACKS_NOTHING;
        bool looked = false;
        struct sched_account_view v;
        int r = sched_account_view(s->sched, c->id, gpu, &v);

        if (r < 0 || v.usage.backed <= v.limit)
                return r;
        for (struct client *o = s->clients; o; o = o->next)
                for (unsigned i = 0; i < s->gpus.n; i++) {
                        if ((o == c && i == gpu) || !can_unpin(o, i))
                                continue;
                        if (!looked)
                                lack = host_pool_lack(c, bytes);
                        looked = true;
                        if (host_pool_helps(o, c, lack))
                                ask_to_unpin(o, i, bytes);
                }
        return 0;
}

/* card_figures.c needs to know how many bytes that NVML counts for no process may be this
 * client's. */
static int on_managed(struct client *c, const struct wire_message *m)
{
        struct client_account *acc = &c->accounts[c->gpu_of[m->header.gpu]];

        acc->managed = m->MANAGED.bytes;
        acc->managed_left = m->MANAGED.left;
        return 0;
}

/* For display only. */
static int on_spared(struct client *c, const struct wire_message *m)
{
        struct client_account *acc = &c->accounts[c->gpu_of[m->header.gpu]];

        acc->spared_out = m->SPARED.out;
        acc->spared_in = m->SPARED.in;
        return 0;
}

/* For display, but for the way. No process has run for longer than it has lived. */
static int on_self(struct client *c, const struct wire_message *m)
{
        struct client_account *acc = &c->accounts[c->gpu_of[m->header.gpu]];
        const bool shared = m->SELF.way == WIRE_WAY_SHARED;

        acc->overflow = m->SELF.overflow;
        acc->keep = m->SELF.keep;
        acc->mode = m->SELF.mode;
        if (shared && !acc->shared)
                mps_servers_seen(c, (unsigned)c->gpu_of[m->header.gpu]);
        if (shared != acc->shared)
                (void)sched_client_mps(c->server->sched, c->id, shared, clock_now_ns(),
                                       &c->server->actions);
        acc->shared = shared;
        c->ran_before_ns = MIN(m->SELF.ran_ns, peer_age_ns(c->peer.pid));
        return 0;
}

/* Sets how much host memory c may map. held: c maps it already, so it is not refused, because the
 * process may have come back to a restarted daemon. */
static bool host_take(struct client *c, uint64_t bytes, bool held)
{
        struct server *s = c->server;
        uint64_t all = s->host_mapped - c->host + bytes;

        if (sched_host_take(s->sched, all, held, clock_now_ns(), &s->actions) < 0)
                return false;
        s->host_mapped = all;
        c->host = bytes;
        return true;
}

void session_host_back(struct client *c)
{
        event_begin(c->server);
        (void)host_take(c, 0, true);
        event_end(c->server);
}

static int on_host(struct client *c, const struct wire_message *m)
{
        uint64_t held = m->HOST.held, wanted = MAX(held, m->HOST.wanted), allowed;
        struct wire_message answer = {.header = {WIRE_HOST_LIMIT, WIRE_NO_GPU, 0}};

        if (wanted > HOST_MOST)
                return -EINVAL;
        allowed = allowance_host(c);
        if (wanted <= c->host || held > c->host)
                (void)host_take(c, MIN(wanted <= c->host ? wanted : held, allowed), true);
        if (wanted > c->host && wanted <= allowed)
                (void)host_take(c, wanted, false);
        answer.HOST_LIMIT.bytes = c->host;
        answer.HOST_LIMIT.most = room_left_host(c);
        answer.HOST_LIMIT.of = m->header.sequence;
        client_send(c, &answer);
        return 0;
}

static int on_bye(struct client *c, const struct wire_message *m)
{
        c->said_bye = true;
        client_drop(c, NULL);
        return 0;
}

/* Clients before c in the queue may be waiting too, so this follows the chain to its end. */
const struct client *session_holder(const struct client *c, struct sched_client_view *ret_view)
{
        struct server *s = c->server;
        const struct client *holder = NULL, *next = c;
        uint64_t now = clock_now_ns();

        for (unsigned i = 0; i < CHAIN_MAX && next; i++) {
                struct sched_client_view v;

                if (sched_client_view(s->sched, next->id, now, &v) < 0)
                        break;
                if (next != c) {
                        holder = next;
                        *ret_view = v;
                }
                next = server_find(s, v.blocker);
                if (next == c)
                        break;
        }
        return holder;
}

bool session_waits_for_foreign(const struct client *c, const struct sched_client_view *view)
{
        return c->request.kept || view->foreign;
}

/* Returns the foreign bytes on the one of the client's GPUs that has most. */
static uint64_t most_foreign(const struct client *c)
{
        uint64_t most = 0;

        for (unsigned i = 0; i < WIRE_GPUS_MAX; i++) {
                struct sched_gpu_view g;

                if (c->gpu_of[i] >= 0 &&
                    sched_gpu_view(c->server->sched, (unsigned)c->gpu_of[i], &g) == 0)
                        most = MAX(most, sub_sat(g.total, g.capacity));
        }
        return most;
}

static void name_holder(struct wire_message *m, const struct client *c, const struct client *holder,
                        unsigned flags)
{
        struct wire_HOLDER *out = &m->HOLDER;
        const bool known = peer_may_know(&c->peer, &holder->peer, c->server->config->names) !=
                           PEER_KNOWS_NOTHING;

        out->pid = (uint32_t)holder->peer.pid;
        if (known)
                (void)snprintf(out->name, sizeof(out->name), "%s", holder->name);
        if (!known || !peer_same_user(&holder->peer, &c->peer)) {
                out->flags |= WIRE_HOLDER_OTHER_USER;
                out->uid = known ? holder->peer.uid : UINT32_MAX;
        }
        if (flags & (SCHED_OVERDUE | SCHED_LOST | SCHED_UNPREEMPTIBLE))
                out->flags |= WIRE_HOLDER_STUCK;
        out->stop = (uint32_t)process_stop(&holder->peer, true);
}

static int on_who(struct client *c, const struct wire_message *m)
{
        struct wire_message answer = {.header = {WIRE_HOLDER, WIRE_NO_GPU, 0}};
        struct sched_client_view own = {0}, v = {0};
        const struct client *holder = session_holder(c, &v);

        (void)sched_client_view(c->server->sched, c->id, clock_now_ns(), &own);
        answer.HOLDER.foreign = most_foreign(c);
        if (session_waits_for_foreign(c, &own)) {
                answer.HOLDER.flags = WIRE_HOLDER_FOREIGN;
                if (peer_daemons_exist(c->server))
                        answer.HOLDER.flags |= WIRE_HOLDER_PEERS;
        } else if (own.held) {
                answer.HOLDER.flags = WIRE_HOLDER_MAXIMUM;
        } else if (holder) {
                name_holder(&answer, c, holder, v.flags);
        }
        client_send(c, &answer);
        return 0;
}

static int (*const handlers[])(struct client *c, const struct wire_message *m) = {
        [WIRE_HELLO] = on_hello,
        [WIRE_ATTACH] = on_attach,
        [WIRE_USAGE] = on_usage,
        [WIRE_REQUEST] = on_request,
        [WIRE_IDLE] = on_idle,
        [WIRE_ACTIVE] = on_active,
        [WIRE_DRAINED] = on_drained,
        [WIRE_DRAIN_FAILED] = on_drain_failed,
        [WIRE_SHORT] = on_short,
        [WIRE_BYE] = on_bye,
        [WIRE_WHO] = on_who,
        [WIRE_EXPORT] = on_export,
        [WIRE_NAME] = broker_name,
        [WIRE_PEER] = broker_peer,
        [WIRE_MANAGED] = on_managed,
        [WIRE_HOST] = on_host,
        [WIRE_SPARED] = on_spared,
        [WIRE_SELF] = on_self,
        [WIRE_FROZEN] = pause_frozen,
        [WIRE_CLAIM] = entitlement_claim,
        [WIRE_JOIN] = mps_servers_join,
        [WIRE_HOST_SHORT] = on_host_short,
        [WIRE_FILL] = host_pool_fill,
        [WIRE_ROOM] = room_left,
};

static bool in_scope(const struct client *c, const struct wire_message *m)
{
        switch (wire_scope(m->header.type)) {
        case WIRE_SCOPE_FIRST:
                return !c->greeted;
        case WIRE_SCOPE_PROCESS:
        case WIRE_SCOPE_NEW_GPU:
                return c->greeted && !c->server->held;
        case WIRE_SCOPE_ANY_GPU:
                return c->id != 0;
        case WIRE_SCOPE_GPU:
                return m->header.gpu < WIRE_GPUS_MAX && c->gpu_of[m->header.gpu] >= 0;
        }
        return false;
}

int session_handle(struct client *c, const struct wire_message *m)
{
        unsigned type = m->header.type;
        char text[160];
        int r;

        if (type >= ARRAY_SIZE(handlers) || !handlers[type] || !in_scope(c, m)) {
                (void)snprintf(text, sizeof(text), "%s does not belong here", wire_name(type));
                client_refuse(c, WIRE_REFUSED_PROTOCOL, text);
                return -EPROTO;
        }
        event_begin(c->server);
        r = handlers[type](c, m);
        kill_point_message("handled", type);
        if (r < 0 && !c->dropped) {
                (void)snprintf(text, sizeof(text), "%s has impossible figures", wire_name(type));
                client_refuse(c, WIRE_REFUSED_PROTOCOL, text);
        }
        pass_match(c->server);
        event_end(c->server);
        history_client(c);
        return r;
}
