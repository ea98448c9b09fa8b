/* collect.c: owns the choice of figures and labels. Must never show a figure that is not known, nor
 * a name to a reader who may not know it. */
#include "daemon/metrics/collect.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/lend/host_pool.h"
#include "daemon/metrics/tally.h"
#include "daemon/setup/sources.h"
#include "daemon/state/client.h"

static void add_number(struct labels *l, const char *name, uint64_t number)
{
        char text[24];

        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
        labels_add(l, name, text);
}

static struct labels gpu_labels(const struct server *s, unsigned gpu)
{
        struct labels l;

        l.used = 0;
        add_number(&l, "gpu", gpu);
        labels_add(&l, "uuid", s->gpus.list[gpu].uuid_text);
        return l;
}

/* Adds the labels by which clusters join metrics. A pod without a name in conf.d appears with its
 * uid. */
static void add_tenant(struct labels *l, const struct client *c)
{
        const struct classes *classes = &c->server->config->classes;
        const struct tenant t = classes_tenant(classes, &c->peer.tenant);
        const struct class_pod *pod = classes_pod(classes, &t);
        const bool in_pod = t.kind == TENANT_POD;

        labels_add(l, "namespace", pod ? pod->namespace : "");
        labels_add(l, "pod", pod && pod->name[0] ? pod->name : in_pod ? t.id : "");
        labels_add(l, "slurm_job", t.kind == TENANT_JOB ? t.id : "");
}

/* Adds what a person needs to recognise the program; only for those who may know it. */
static void add_names(struct labels *l, const struct client *c)
{
        add_number(l, "uid", c->peer.uid);
        labels_add(l, "name", c->name);
        labels_add(l, "class", c->class ? c->class->name : "");
        labels_add(l, "group", c->group);
        add_tenant(l, c);
}

/* Processes in a pid namespace that the daemon cannot see have no number here; another label has to
 * tell them apart. */
static struct labels client_labels(const struct client *c, unsigned gpu, bool names)
{
        struct labels l = gpu_labels(c->server, gpu);

        add_number(&l, "pid", (uint64_t)c->peer.pid);
        if (c->peer.pid == 0)
                add_number(&l, "connection", c->id);
        if (names)
                add_names(&l, c);
        return l;
}

/* ---- the daemon ---- */

static void add_daemon(struct exposition *e, const struct server *s)
{
        struct labels l = {0};
        struct sched_transitions t;

        exposition_add(e, METRIC_START_TIME, &l, s->tally->began_unix_ns);
        exposition_add(e, METRIC_CLIENTS, &l, s->n_attached);
        exposition_add(e, METRIC_CLIENTS_LIMIT, &l, s->config->sched.clients_max);
        exposition_add(e, METRIC_HOST_BUDGET, &l, s->host_budget_bytes);
        exposition_add(e, METRIC_HOST_POOL, &l, host_pools_held(s));
        exposition_add(e, METRIC_HOST_POOL_LIMIT, &l, s->config->host_pool_bytes);
        exposition_add(e, METRIC_MPS, &l, s->n_mps);
        exposition_add(e, METRIC_CONFIGURATION, &l, s->sources->found == SOURCES_GOOD);
        sched_transitions(s->sched, &t);
        for (unsigned i = 0; i < SCHED_FLAGS; i++)
                exposition_add_with(e, METRIC_FLAGS, &l, "flag", sched_flag_name(i), t.set[i]);
        labels_add(&l, "version", SUBLET_VERSION);
        labels_add(&l, "mode", sched_mode_name(s->config->sched.mode));
        exposition_add(e, METRIC_BUILD, &l, 1);
}

static void add_queue(struct exposition *e, const struct server *s)
{
        struct labels l = {0};
        exposition_add_with(e, METRIC_QUEUE_JOBS, &l, "state", "waiting", s->jobs.waiting);
        exposition_add_with(e, METRIC_QUEUE_JOBS, &l, "state", "running", s->jobs.running);
        for (unsigned way = 0; way < WAYS; way++)
                exposition_add_with(e, METRIC_QUEUE_PAIRS, &l, "way", way_names[way],
                                    s->jobs.pairs[way]);
        exposition_add(e, METRIC_QUEUE_BELOW, &l, s->jobs.below);
}

/* ---- a GPU ---- */

static void add_gpu(struct exposition *e, struct server *s, unsigned gpu, uint64_t now,
                    const struct sched_gpu_view *v)
{
        const struct tally_gpu *t = tally_of_gpu(s, gpu);
        const struct gpu *card = &s->gpus.list[gpu];
        struct labels l = gpu_labels(s, gpu);

        exposition_add_with(e, METRIC_GPU, &l, "model", card->name, 1);
        exposition_add(e, METRIC_GPU_MEMORY, &l, v->total);
        exposition_add(e, METRIC_GPU_FOREIGN, &l, v->foreign);
        exposition_add(e, METRIC_GPU_CAPACITY, &l, v->capacity);
        exposition_add(e, METRIC_GPU_HEADROOM, &l, v->headroom);
        exposition_add(e, METRIC_GPU_CHARGED, &l, v->charged);
        exposition_add(e, METRIC_GPU_COMMITTED, &l, v->committed);
        exposition_add(e, METRIC_GPU_UNEVICTABLE, &l, v->unevictable);
        exposition_add(e, METRIC_GPU_UNEVICTABLE_BUDGET, &l, v->unevictable_budget);
        if (card->measured_ns)
                exposition_add(e, METRIC_GPU_MEASURED_AGE, &l, sub_sat(now, card->measured_ns));
        exposition_add(e, METRIC_GPU_QUANTUM, &l, v->quantum_ns);
        exposition_add(e, METRIC_GPU_CONTESTED, &l, v->contested);
        exposition_add(e, METRIC_GPU_HANDOFFS, &l, v->handoffs);
        exposition_add(e, METRIC_GPU_REFUSED, &l, t->refused);
        exposition_add(e, METRIC_GPU_LEASE, &l, t->totals.lease_ns);
        exposition_add(e, METRIC_GPU_WAITED, &l, t->totals.waited_ns);
        exposition_add(e, METRIC_GPU_BILLED, &l, t->totals.billed_ns);
        exposition_add(e, METRIC_GPU_MOVED_OUT, &l, t->totals.moved_out);
        exposition_add(e, METRIC_GPU_MOVED_IN, &l, t->totals.moved_in);
        exposition_add_histogram(e, METRIC_GPU_HANDOFF, &l, &t->handoff);
        exposition_add_histogram(e, METRIC_GPU_WAIT, &l, &t->wait);
        exposition_add_histogram(e, METRIC_GPU_DRAIN, &l, &t->drain);
        exposition_add_histogram(e, METRIC_GPU_EVICTION, &l, &t->eviction);
        exposition_add_histogram(e, METRIC_GPU_RESTORE, &l, &t->restore);
}

/* ---- a class on a GPU ---- */

static const char *class_name(const struct server *s, uint32_t number)
{
        const struct classes *all = &s->config->classes;

        for (unsigned i = 0; i < all->n; i++)
                if (all->list[i].number == number)
                        return all->list[i].name;
        return "";
}

static void add_class(struct exposition *e, const struct server *s, unsigned gpu,
                      const struct tally_class *class)
{
        const struct tally_totals *t = &class->gpus[gpu];
        struct labels l = gpu_labels(s, gpu);

        labels_add(&l, "class", class_name(s, class->number));
        exposition_add(e, METRIC_CLASS_HANDOFFS, &l, t->handoffs);
        exposition_add(e, METRIC_CLASS_LEASE, &l, t->lease_ns);
        exposition_add(e, METRIC_CLASS_WAITED, &l, t->waited_ns);
        exposition_add(e, METRIC_CLASS_BILLED, &l, t->billed_ns);
        exposition_add(e, METRIC_CLASS_MOVED_OUT, &l, t->moved_out);
        exposition_add(e, METRIC_CLASS_MOVED_IN, &l, t->moved_in);
}

/* ---- a client on a GPU ---- */

#define PAUSED "paused" /* a state that the scheduler does not know */

static void add_info(struct exposition *e, const struct client *c, const struct client_account *acc,
                     struct labels *l)
{
        const char *memory = wire_memory_name(acc->mode);
        const size_t before = l->used;

        labels_add(l, "version", c->version);
        labels_add(l, "memory", memory ? memory : "");
        exposition_add(e, METRIC_CLIENT, l, 1);
        l->used = before;
}

static void add_client(struct exposition *e, const struct client *c, unsigned gpu, uint64_t now,
                       const struct sched_client_view *v, const struct sched_account_view *a,
                       bool names)
{
        const struct client_account *acc = &c->accounts[gpu];
        const uint64_t overflow = client_overflow(c, gpu);
        struct labels l = client_labels(c, gpu, names);

        add_info(e, c, acc, &l);
        if (client_is_paused(c))
                exposition_add_with(e, METRIC_CLIENT_STATE, &l, "state", PAUSED,
                                    sub_sat(now, c->frozen.since_ns));
        else
                exposition_add_with(e, METRIC_CLIENT_STATE, &l, "state", sched_state_name(v->state),
                                    sub_sat(now, v->since_ns));
        for (unsigned i = 0; i < SCHED_FLAGS; i++)
                if (v->flags & 1u << i)
                        exposition_add_with(e, METRIC_CLIENT_FLAG, &l, "flag", sched_flag_name(i),
                                            1);
        exposition_add(e, METRIC_CLIENT_PAUSED, &l, c->pause.ordered);
        exposition_add_signed(e, METRIC_CLIENT_PRIORITY, &l, v->priority);
        exposition_add(e, METRIC_CLIENT_ALLOCATED, &l, a->usage.allocated + overflow);
        exposition_add(e, METRIC_CLIENT_BACKED, &l, a->usage.backed);
        exposition_add(e, METRIC_CLIENT_EVICTED, &l, sub_sat(a->usage.allocated, a->usage.backed));
        exposition_add(e, METRIC_CLIENT_OVERFLOW, &l, overflow);
        exposition_add(e, METRIC_CLIENT_MANAGED, &l, acc->managed);
        exposition_add(e, METRIC_CLIENT_UNEVICTABLE, &l, a->unevictable + a->exported);
        exposition_add(e, METRIC_CLIENT_CHARGED, &l, a->charge);
        exposition_add(e, METRIC_CLIENT_COMMITTED, &l, a->commit);
        exposition_add(e, METRIC_CLIENT_ARENA, &l, a->usage.arena);
        exposition_add(e, METRIC_CLIENT_HOST_POOL, &l, host_pool_held(c));
        exposition_add(e, METRIC_CLIENT_HANDOFFS, &l, v->handoffs);
        exposition_add(e, METRIC_CLIENT_LEASE, &l, v->run_ns + c->ran_before_ns);
        exposition_add(e, METRIC_CLIENT_WAITED, &l, v->waited_ns);
        exposition_add(e, METRIC_CLIENT_BILLED, &l, a->paid_ns);
        exposition_add(e, METRIC_CLIENT_MOVED_OUT, &l, a->usage.moved_out);
        exposition_add(e, METRIC_CLIENT_MOVED_IN, &l, a->usage.moved_in);
        exposition_add(e, METRIC_CLIENT_SPARED_OUT, &l, acc->spared_out);
        exposition_add(e, METRIC_CLIENT_SPARED_IN, &l, acc->spared_in);
}

/* ---- the whole ---- */

static void add_states(struct exposition *e, const struct server *s, unsigned gpu,
                       const unsigned in_state[static SCHED_STATES + 1])
{
        struct labels l = gpu_labels(s, gpu);

        for (unsigned state = 0; state < SCHED_STATES; state++)
                exposition_add_with(e, METRIC_GPU_CLIENTS, &l, "state",
                                    sched_state_name((enum sched_state)state), in_state[state]);
        exposition_add_with(e, METRIC_GPU_CLIENTS, &l, "state", PAUSED, in_state[SCHED_STATES]);
}

static void add_clients(struct exposition *e, struct server *s, uint64_t now, bool names)
{
        unsigned in_state[SCHED_GPUS_MAX][SCHED_STATES + 1] = {0}; /* the last: paused clients */

        for (struct client *c = s->clients; c; c = c->next) {
                struct sched_client_view v;

                if (!c->id || sched_client_view(s->sched, c->id, now, &v) < 0)
                        continue;
                for (unsigned g = 0; g < s->gpus.n; g++) {
                        struct sched_account_view a;

                        if (sched_account_view(s->sched, c->id, g, &a) < 0)
                                continue;
                        in_state[g][client_is_paused(c) ? SCHED_STATES : v.state]++;
                        add_client(e, c, g, now, &v, &a, names);
                }
        }
        for (unsigned g = 0; g < s->gpus.n; g++)
                if (s->gpus.list[g].present)
                        add_states(e, s, g, in_state[g]);
}

struct exposition *collect(struct server *s, bool names)
{
        struct exposition *e = exposition_new();
        const uint64_t now = clock_now_ns();
        const struct labels none = {0};

        if (!e)
                return NULL;
        tally_settle_all(s);
        add_daemon(e, s);
        add_queue(e, s);
        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct sched_gpu_view v;

                if (sched_gpu_view(s->sched, g, &v) < 0)
                        continue;
                add_gpu(e, s, g, now, &v);
                for (unsigned i = 0; names && i < s->tally->n_classes; i++)
                        add_class(e, s, g, &s->tally->classes[i]);
        }
        exposition_add(e, METRIC_HOST_PROMISED, &none,
                       sched_beyond_cards(s->sched) + s->host_mapped);
        add_clients(e, s, now, names);
        return e;
}
