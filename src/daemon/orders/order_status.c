/* order_status.c: owns the daemon's state as people see it: plain figures in bytes and seconds.
 * Must never change the state, nor show a figure that is not known (those are null). */
#include "daemon/orders/order_status.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/state/client.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/hand/hand.h"
#include "daemon/lend/host_pool.h"
#include "daemon/ledger/reserve.h"
#include "daemon/net/session.h"
#include "daemon/people/process.h"
#include "daemon/queue/submit.h"
#include "daemon/setup/sources.h"

/* Version of the answer. Raise it when a field is renamed, is removed, or gets another meaning. */
#define STATUS_SCHEMA 1
#define OTHERS_MAX    32u /* processes outside of this daemon that are named for a card */

static double seconds(uint64_t ns)
{
        return (double)ns / (double)NSEC_PER_SEC;
}

static json_t *bytes(uint64_t n)
{
        return json_integer((json_int_t)MIN(n, (uint64_t)INT64_MAX));
}

static json_t *flag_list(unsigned set)
{
        json_t *list = json_array();

        for (unsigned i = 0; i < SCHED_FLAGS; i++)
                if (set & 1u << i)
                        (void)json_array_append_new(list, json_string(sched_flag_name(i)));
        return list;
}

/* A client that has been given some bytes is restoring, and may still wait for the others. */
static bool waits(const struct sched_client_view *v)
{
        return v->state == SCHED_WAITING || (v->state == SCHED_RESTORING && v->blocker);
}

static json_t *holder_of(const struct client *c)
{
        struct sched_client_view v;
        const struct client *holder = session_holder(c, &v);

        return holder ? json_integer(holder->peer.pid) : json_null();
}

static json_t *memory_mode(const struct client_account *acc)
{
        const char *name = wire_memory_name(acc->mode);

        return name ? json_string(name) : json_null();
}

/* Describes freezing as the client reports it; null for a client that has lost its connection. */
static json_t *frozen_json(const struct client *c, uint64_t now)
{
        const struct client_frozen *f = &c->frozen;
        json_t *why;

        if (!f->said || c->fd < 0)
                return json_null();
        why = json_array();
        if (f->why & WIRE_FROZEN_PAUSED)
                (void)json_array_append_new(why, json_string("paused"));
        if (f->why & WIRE_FROZEN_AWAY)
                (void)json_array_append_new(why, json_string("away"));
        return json_pack("{s:f, s:o, s:o, s:f, s:f}", "for_s",
                         f->since_ns ? seconds(sub_sat(now, f->since_ns)) : 0.0, "why", why,
                         "times", bytes(f->times), "lost_s", seconds(f->lost_ns), "took_s",
                         seconds(f->took_ns));
}

static json_t *freeze_mode(const struct client *c)
{
        const char *name = wire_freeze_name(c->frozen.mode);

        return name ? json_string(name) : json_null();
}

static json_t *text_if(const char *text)
{
        return text && *text ? json_string(text) : json_null();
}

/* Null: the daemon cannot take the program off the GPU. */
static json_t *preempted_json(const struct client *c, uint64_t now)
{
        const struct client_hand *h = &c->hand;
        const uint64_t off_ns = h->off ? sub_sat(now, h->since_ns) : 0;

        if (!h->ready)
                return json_null();
        return json_pack("{s:f, s:o, s:f, s:f}", "for_s", seconds(off_ns), "times", bytes(h->times),
                         "lost_s", seconds(h->off_ns + off_ns), "took_s", seconds(h->took_ns));
}

static void add_frozen(json_t *one, const struct client *c, uint64_t now, bool known)
{
        (void)json_object_set_new(one, "paused", json_boolean(c->pause.ordered));
        (void)json_object_set_new(one, "frozen", frozen_json(c, now));
        (void)json_object_set_new(one, "freeze", freeze_mode(c));
        (void)json_object_set_new(one, "freeze_off", text_if(known ? c->frozen.off : ""));
        (void)json_object_set_new(one, "preempted", preempted_json(c, now));
}

static json_t *permille(unsigned v)
{
        return v ? json_real(v / 1000.0) : json_null();
}

/* A program that is stopped answers nothing, and keeps what it holds. */
static json_t *stopped(const struct client *c, enum sched_state state)
{
        const bool late = state == SCHED_DRAINING || state == SCHED_EVICTING;

        return text_if(stop_name(process_stop(&c->peer, late)));
}

/* Adds the client's part of its class's time, and its own maximum. known: the viewer may see them,
 * as with the order get. */
static void add_share(json_t *one, const struct client *c, bool held, uint64_t paid_ns, bool known)
{
        const struct sched_share share = entitlement_share(c);
        const uint64_t cap = entitlement_cap(c);

        (void)json_object_set_new(one, "class",
                                  known && c->class ? json_string(c->class->name) : json_null());
        (void)json_object_set_new(one, "weight",
                                  !known         ? json_null()
                                  : share.weight ? permille(share.weight)
                                                 : json_real(1));
        (void)json_object_set_new(one, "minimum", permille(known ? share.minimum : 0));
        (void)json_object_set_new(one, "maximum", permille(known ? entitlement_maximum(c) : 0));
        (void)json_object_set_new(one, "memory_cap",
                                  known && cap < UINT64_MAX ? bytes(cap) : json_null());
        (void)json_object_set_new(one, "held", json_boolean(held));
        (void)json_object_set_new(one, "billed_s", json_real(seconds(paid_ns)));
}

/* Adds where the client runs. The names are those that conf.d tells. */
static void add_place(json_t *one, const struct client *c, bool known)
{
        static const struct class_pod unknown;
        const struct classes *classes = &c->server->config->classes;
        const struct tenant t = classes_tenant(classes, &c->peer.tenant);
        const struct class_pod *pod = classes_pod(classes, &t);
        const bool in_pod = known && t.kind == TENANT_POD, in_job = known && t.kind == TENANT_JOB;

        if (!pod || !known)
                pod = &unknown;
        (void)json_object_set_new(one, "container", text_if(known ? c->container.id : ""));
        (void)json_object_set_new(one, "pod", text_if(in_pod ? t.id : ""));
        (void)json_object_set_new(one, "pod_namespace", text_if(pod->namespace));
        (void)json_object_set_new(one, "pod_name", text_if(pod->name));
        (void)json_object_set_new(one, "slurm_job", text_if(in_job ? t.id : ""));
}

/* The times at which waiting clients of one GPU expect their turns. */
struct expected {
        struct sched_expected *list;
        unsigned n;
};

static json_t *expected_json(const struct expected *e, sched_client id)
{
        for (unsigned i = 0; i < e->n; i++)
                if (e->list[i].client == id)
                        return json_real(seconds(e->list[i].ns));
        return json_null();
}

static json_t *client_json(struct server *s, struct client *c, unsigned gpu, uint64_t now,
                           const struct peer *viewer, const struct expected *expected)
{
        const struct client_account *acc = &c->accounts[gpu];
        const enum peer_knowledge knows = peer_may_know(viewer, &c->peer, s->config->names);
        const bool named = knows != PEER_KNOWS_NOTHING, known = knows == PEER_KNOWS_ALL;
        struct sched_client_view v;
        struct sched_account_view a;
        json_t *one;

        if (sched_client_view(s->sched, c->id, now, &v) < 0 ||
            sched_account_view(s->sched, c->id, gpu, &a) < 0)
                return NULL;
        one = json_pack(
                "{s:i, s:o, s:s?, s:s?, s:i, s:s, s:b, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
                "s:o, s:o, s:o, s:o, s:o, s:o, "
                "s:f, s:f, s:I, s:o, s:o, s:o, s:o, s:f, s:o}",
                "pid", (int)c->peer.pid, "uid", named ? json_integer(c->peer.uid) : json_null(),
                "name", named ? c->name : NULL, "group", known && c->group[0] ? c->group : NULL,
                "priority", v.priority, "state", sched_state_name(v.state), "idle", v.idle,
                "since_s", seconds(sub_sat(now, v.since_ns)), "flags", flag_list(v.flags),
                "allocated", bytes(a.usage.allocated + client_overflow(c, gpu)), "backed",
                bytes(a.usage.backed), "evicted", bytes(sub_sat(a.usage.allocated, a.usage.backed)),
                "overflow", bytes(client_overflow(c, gpu)), "managed", bytes(acc->managed),
                "memory", memory_mode(acc), "keep", acc->keep ? bytes(acc->keep) : json_null(),
                "limit", bytes(a.limit), "commit", bytes(a.commit), "charge", bytes(a.charge),
                "unevictable", bytes(a.unevictable + a.exported), "arena", bytes(a.usage.arena),
                "gpu_time_s", seconds(v.run_ns + c->ran_before_ns), "waited_s",
                seconds(v.waited_ns), "handoffs", (json_int_t)v.handoffs, "moved_out",
                bytes(a.usage.moved_out), "moved_in", bytes(a.usage.moved_in), "spared_out",
                bytes(acc->spared_out), "spared_in", bytes(acc->spared_in), "last_drain_s",
                seconds(a.usage.drain_ns), "waiting_for", waits(&v) ? holder_of(c) : json_null());
        if (one) {
                (void)json_object_set_new(one, "stranger",
                                          text_if(named ? "" : peer_stranger(viewer, &c->peer)));
                (void)json_object_set_new(one, "waits_for_foreign",
                                          json_boolean(session_waits_for_foreign(c, &v)));
                (void)json_object_set_new(one, "stopped", stopped(c, v.state));
                add_frozen(one, c, now, known);
                add_share(one, c, v.held, a.paid_ns, known);
                add_place(one, c, known);
                (void)json_object_set_new(one, "way", json_string(acc->shared ? "shared" : "own"));
                (void)json_object_set_new(one, "takes_turns", json_boolean(c->takes_turns));
                (void)json_object_set_new(one, "host_pool", bytes(host_pool_held(c)));
                (void)json_object_set_new(one, "expected_s", expected_json(expected, c->id));
        }
        return one;
}

static json_t *clients_json(struct server *s, unsigned gpu, uint64_t now, const struct peer *viewer)
{
        json_t *list = json_array();
        _cleanup_free_ struct sched_expected *room = calloc(s->n_attached + 1, sizeof(*room));
        struct expected expected = {.list = room};

        if (room)
                expected.n = sched_gpu_expected(s->sched, gpu, now, room, s->n_attached);
        /* List clients in the order in which they came; s->clients has the newest first. */
        for (struct client *c = s->clients; c; c = c->next) {
                json_t *one;

                if (!c->id || c->accounts[gpu].ordinal < 0)
                        continue;
                one = client_json(s, c, gpu, now, viewer, &expected);
                if (one)
                        (void)json_array_insert_new(list, 0, one);
        }
        return list;
}

/* Returns NVML's last figures of the card; NULL: it does not list the card. */
static const struct nvml_card *card_of(const struct server *s, const struct gpu *g)
{
        const bool listed = s->look && g->nvml_index >= 0 && (unsigned)g->nvml_index < s->look->n;

        return listed ? &s->look->cards[g->nvml_index] : NULL;
}

static int most_bytes_first(const void *a, const void *b)
{
        const struct nvml_process *one = a, *two = b;
        const uint64_t bytes[] = {one->used_bytes, two->used_bytes};

        return bytes[0] == bytes[1] ? 0 : bytes[0] > bytes[1] ? -1 : 1;
}

static json_t *other_json(const struct server *s, const struct nvml_process *p,
                          const struct peer *viewer)
{
        struct process look;
        struct peer peer;
        bool known = false;

        if (process_look((pid_t)p->pid, &look) == 0) {
                peer_look_at((pid_t)p->pid, look.uid, &peer);
                known = peer_may_know(viewer, &peer, s->config->names) != PEER_KNOWS_NOTHING;
        }
        return json_pack("{s:i, s:o, s:o, s:o}", "pid", (int)p->pid, "uid",
                         known ? json_integer(look.uid) : json_null(), "name",
                         text_if(known ? look.name : ""), "bytes",
                         p->used_bytes != UINT64_MAX ? bytes(p->used_bytes) : json_null());
}

/* Lists the processes outside this daemon that NVML lists, those with most bytes first. null: NVML
 * lists none, or its numbers may not be ours, as in a container. */
static json_t *others_json(struct server *s, const struct gpu *g, const struct peer *viewer)
{
        const struct nvml_card *card = card_of(s, g);
        struct nvml_process list[NVML_PROCESSES_MAX];
        unsigned n = 0;
        json_t *others;

        if (!card || !card->listed || !(g->names || process_numbers_are_the_machines()))
                return json_null();
        for (unsigned i = 0; i < card->n_processes; i++)
                if (!client_of_process(s, (pid_t)card->processes[i].pid))
                        list[n++] = card->processes[i];
        qsort(list, n, sizeof(*list), most_bytes_first);
        others = json_array();
        for (unsigned i = 0; i < MIN(n, OTHERS_MAX); i++)
                (void)json_array_append_new(others, other_json(s, &list[i], viewer));
        return others;
}

/* Returns the part of the time, lately, in which a kernel ran on the card. */
static json_t *utilization(const struct server *s, const struct gpu *g)
{
        const struct nvml_card *card = card_of(s, g);
        const int percent = card ? card->utilization : -1;

        return percent >= 0 && percent <= 100 ? json_real(percent / 100.0) : json_null();
}

/* A paused program counts neither as running nor as waiting, whatever its state in the scheduler
 * is. Returns how many paused programs the GPU has. */
static unsigned leave_out_paused(const struct server *s, unsigned gpu, uint64_t now,
                                 struct sched_gpu_view *v)
{
        unsigned paused = 0;

        for (const struct client *c = s->clients; c; c = c->next) {
                struct sched_client_view view;

                if (!c->id || c->accounts[gpu].ordinal < 0 || !client_is_paused(c) ||
                    sched_client_view(s->sched, c->id, now, &view) < 0)
                        continue;
                paused++;
                if (view.state == SCHED_RUNNING || view.state == SCHED_DRAINING)
                        v->running--;
                else if (view.state == SCHED_WAITING && v->waiting > 0)
                        v->waiting--;
        }
        return paused;
}

static json_t *gpu_json(struct server *s, unsigned gpu, const struct sched_gpu_view *v,
                        unsigned paused, uint64_t now, const struct peer *viewer)
{
        const struct gpu *g = &s->gpus.list[gpu];

        return json_pack(
                "{s:i, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:f, "
                "s:I, s:b, s:i, s:i, s:i, s:i, s:o, s:s?, s:o, s:o}",
                "index", (int)gpu, "nvml_index",
                g->nvml_index >= 0 ? json_integer(g->nvml_index) : json_null(), "uuid",
                g->uuid_text, "name", g->name, "total", bytes(v->total), "foreign",
                bytes(v->foreign), "measured_s_ago",
                g->measured_ns ? json_real(seconds(sub_sat(now, g->measured_ns))) : json_null(),
                "capacity", bytes(v->capacity), "headroom", bytes(v->headroom),
                "unevictable_budget", bytes(v->unevictable_budget), "visible", bytes(v->visible),
                "charged", bytes(v->charged), "unevictable", bytes(v->unevictable), "committed",
                bytes(v->committed), "quantum_s", seconds(v->quantum_ns), "move_s_per_gib",
                seconds(v->gib_ns), "handoffs", (json_int_t)v->handoffs, "contested", v->contested,
                "waiting", (int)v->waiting, "running", (int)v->running, "paused", (int)paused,
                "reserved", (int)reserve_count(s, gpu), "utilization", utilization(s, g),
                "compute_mode", nvml_compute_mode_name(g->compute_mode), "others",
                others_json(s, g, viewer), "clients", clients_json(s, gpu, now, viewer));
}

/* Returns the host memory that programs hold: their arenas, and what overflow uses. */
static uint64_t host_used(const struct server *s)
{
        uint64_t sum = 0;

        for (const struct client *c = s->clients; c; c = c->next)
                for (unsigned g = 0; c->id && g < s->gpus.n; g++) {
                        struct sched_account_view a;

                        if (sched_account_view(s->sched, c->id, g, &a) == 0)
                                sum += a.usage.arena + client_overflow(c, g);
                }
        return sum;
}

/* The content of the files is for people of this machine. A viewer in a pod or a container learns
 * only whether the configuration is good. */
static json_t *configuration_json(const struct sources *from, const struct peer *viewer)
{
        static const char *const found[] = {[SOURCES_NOTHING] = "none",
                                            [SOURCES_LAST_GOOD] = "last_good",
                                            [SOURCES_GOOD] = "good"};
        const bool told = viewer->trusted || (viewer->outside && viewer->tenant.kind != TENANT_POD);

        return json_pack("{s:s, s:o, s:o}", "state", found[from->found], "error",
                         text_if(told ? from->error : ""), "file", text_if(told ? from->file : ""));
}

static json_t *hand_json(const struct server *s)
{
        static const char *const states[] = {
                [HAND_UNTRIED] = "untried", [HAND_WORKS] = "works", [HAND_MISSING] = "missing"};
        const char *why;
        const enum hand_state state = hand_state(s->hand, &why);

        return json_pack("{s:s, s:o}", "state", states[state], "why", text_if(why));
}

json_t *status_json(struct server *s, const struct peer *viewer)
{
        const uint64_t now = clock_now_ns();
        json_t *list = json_array();
        char instance[24], utc[UNITS_TEXT_MAX];

        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct sched_gpu_view v;
                unsigned paused;

                if (sched_gpu_view(s->sched, g, &v) < 0)
                        continue;
                paused = leave_out_paused(s, g, now, &v);
                (void)json_array_append_new(list, gpu_json(s, g, &v, paused, now, viewer));
        }
        /* As text, because many readers of JSON cannot hold a random 64-bit number. */
        (void)snprintf(instance, sizeof(instance), "%016llx", (unsigned long long)s->instance);
        return json_pack(
                "{s:i, s:s, s:s, s:s, s:f, s:s, s:o, s:s, s:o, s:{s:o, s:o, s:o, s:o}, s:o, s:o, "
                "s:o}",
                "schema", STATUS_SCHEMA, "time", units_format_utc(time(NULL), utc), "version",
                SUBLET_VERSION, "instance", instance, "uptime_s", seconds(now - s->started_ns),
                "mode", sched_mode_name(s->config->sched.mode), "quantum",
                s->config->sched.quantum_ns ? json_real(seconds(s->config->sched.quantum_ns))
                                            : json_string("auto"),
                "freeze", wire_freeze_name(s->config->freeze), "hand", hand_json(s), "host_memory",
                "budget", bytes(s->host_budget_bytes), "committed",
                bytes(sched_beyond_cards(s->sched) + s->host_mapped), "used", bytes(host_used(s)),
                "pool", bytes(host_pools_held(s)), "gpus", list, "jobs", submit_json(s, viewer),
                "configuration", configuration_json(s->sources, viewer));
}
