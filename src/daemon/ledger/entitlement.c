/* entitlement.c: owns what a client is entitled to: its class by the owner's configuration, and the
 * part of its own request that the owner allows. Must never let a request widen what the
 * configuration gives. */
#include "daemon/ledger/entitlement.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/precondition.h"
#include "base/shares.h"
#include "daemon/ledger/event.h"
#include "daemon/ledger/card_figures.h"
#include "daemon/state/client.h"

/* To the scheduler, a class whose programs run together is one user, and so is a pod; pods have
 * numbers above all uids. A user's job counts as a container, and so does a group of ranks that
 * take turns outside of containers. The numbers of these groups lie between the numbers of
 * containers and of tenants. */
#define ONE_USER    UINT32_MAX
#define RANKS_ABOVE (UINT64_C(1) << 62)

/* A class of the resource file has no keys that select programs: a program names it as its group.
 */
static const struct class *find_class(const struct client *c)
{
        const struct classes *all = &c->server->config->classes;
        char cgroup[PEER_CGROUP_MAX];
        const struct class_subject who = {
                .uid = c->peer.uid,
                .name = c->name,
                .cgroup = all->by_cgroup && peer_cgroup(&c->peer, cgroup) == 0 ? cgroup : NULL,
                .tenant = &c->peer.tenant,
        };
        const struct class *class = classes_find(all, &who), *named;

        if (class || !c->group[0])
                return class;
        named = classes_named(all, c->group);
        return named && named->by_group && !classes_matches_by_key(named) ? named : NULL;
}

static const struct class_settings *settings_of(const struct client *c)
{
        return c->class ? &c->class->settings : &c->server->config->classes.unmatched;
}

/* ---- priorities ---- */

/* Any client may lower its priority. Only clients that may give orders rise above what their class
 * allows. */
static int allowed_priority(const struct client *c, int32_t wanted)
{
        const int most = c->peer.trusted ? SHARES_PRIORITY_MAX : settings_of(c)->priority_max;
        const int allowed = wanted > most ? most : MAX(wanted, -SHARES_PRIORITY_MAX);

        if (allowed != wanted)
                log_info("client %d (%s) asked for priority %d and gets %d", (int)c->peer.pid,
                         c->name, wanted, allowed);
        return allowed;
}

void entitlement_greeted(struct client *c, int32_t priority)
{
        const struct client *former = c->former;

        c->class = find_class(c);
        c->priority = allowed_priority(c, priority ? priority : settings_of(c)->priority);
        if (former && former->claim.by_owner) {
                c->claim = former->claim;
                c->priority = former->priority;
        }
}

/* ---- shares ---- */

/* Returns the part of the client's minimum that the owner allows, in thousandths of the card. It is
 * at most the class's minimum, unless the owner has ordered it or the client may give orders. */
static unsigned allowed_minimum(const struct client *c)
{
        return c->peer.trusted || c->claim.by_owner
                       ? c->claim.minimum
                       : MIN(c->claim.minimum, settings_of(c)->minimum_permille);
}

static void tell_client(struct client *c, const char *text)
{
        struct wire_message m = {.header = {WIRE_NOTICE, WIRE_NO_GPU, 0}};

        (void)snprintf(m.NOTICE.text, sizeof(m.NOTICE.text), "%s", text);
        client_send(c, &m);
}

void entitlement_tell_priority(struct client *c, int32_t asked)
{
        char text[160];

        if (!asked || c->priority >= asked || c->claim.by_owner)
                return;
        (void)snprintf(text, sizeof(text),
                       "this program asked for priority %d and gets %d: more is for the daemon's "
                       "own user and root, and for classes with a larger priority_max",
                       (int)asked, c->priority);
        tell_client(c, text);
}

int entitlement_claim(struct client *c, const struct wire_message *m)
{
        const struct wire_CLAIM *in = &m->CLAIM;
        unsigned allowed;
        char text[160];

        if (in->minimum > 1000 || in->maximum > 1000 || in->weight > 100000 || c->id)
                return -EINVAL;
        if (c->claim.by_owner)
                return 0; /* an order on an earlier connection holds */
        c->claim =
                (struct client_claim){in->memory_cap, in->weight, in->minimum, in->maximum, false};
        allowed = allowed_minimum(c);
        if (allowed < in->minimum) {
                (void)snprintf(text, sizeof(text),
                               "this program asked for at least %u.%u %% of the GPU and gets %u.%u "
                               "%%: its owner promises no more",
                               in->minimum / 10, in->minimum % 10, allowed / 10, allowed % 10);
                tell_client(c, text);
        }
        return 0;
}

/* Converts a setting of a class into one of the scheduler, for which 0 means: as the daemon. */
static uint64_t term_of(uint64_t ns, uint64_t instead_of_0)
{
        return ns == CLASS_AS_DAEMON ? 0 : ns ? ns : instead_of_0;
}

static uint64_t container_of_client(const struct client *c, bool in_pod)
{
        const uint64_t container = in_pod ? 0 : c->peer.container;
        const uint64_t tenant = in_pod ? 0 : tenant_number(&c->peer.tenant);

        return tenant ? tenant : container ? container : c->rank_of ? RANKS_ABOVE + c->rank_of : 0;
}

struct sched_origin entitlement_origin(const struct client *c)
{
        const struct class_settings *t = settings_of(c);
        const bool together = c->class && t->group, in_pod = c->peer.tenant.kind == TENANT_POD;

        return (struct sched_origin){
                .uid = together ? ONE_USER
                       : in_pod ? tenant_number(&c->peer.tenant)
                                : c->peer.uid,
                .container = together ? 0 : container_of_client(c, in_pod),
                .job = c->rank_of,
                .class_number = c->class ? c->class->number : 0,
                .share = {t->weight_permille, t->minimum_permille, t->maximum_permille},
                .terms = {term_of(t->quantum_ns, UINT64_MAX),
                          term_of(t->idle_release_ns, UINT64_MAX),
                          term_of(MAX(t->grace_ns, NSEC_PER_MSEC), 0), t->exclusive},
        };
}

/* A program states its minimum as a part of the card; the scheduler takes it as a part of the
 * minimum of its class. */
struct sched_share entitlement_share(const struct client *c)
{
        const unsigned promised = settings_of(c)->minimum_permille;
        const unsigned minimum = allowed_minimum(c);

        return (struct sched_share){
                .weight = c->claim.weight,
                .minimum = promised ? MIN(minimum * 1000 / promised, 1000U) : minimum,
                .maximum = c->claim.maximum,
        };
}

unsigned entitlement_maximum(const struct client *c)
{
        const unsigned class = settings_of(c)->maximum_permille % 1000, own = c->claim.maximum;

        return class && own ? MIN(class, own) : MAX(class, own);
}

bool entitlement_groups(const struct client *a, const struct client *b)
{
        return a->class && a->class == b->class && a->class->settings.group;
}

/* ---- memory ---- */

uint64_t entitlement_cap(const struct client *c)
{
        const uint64_t class = settings_of(c)->memory_cap, own = c->claim.memory_cap;

        return MIN(class ? class : UINT64_MAX, own ? own : UINT64_MAX);
}

/* True if both share one cap: they are of one class, or of one user without a class. */
static bool same_cap(const struct client *a, const struct client *b)
{
        return a->class == b->class && (a->class || peer_same_account(&a->peer, &b->peer));
}

/* What counts toward a cap. */
struct counted {
        uint64_t bytes;  /* movable bytes, and unevictable bytes that the client has reported */
        uint64_t excess; /* unevictable bytes that only NVML shows */
};

/* The context that every program has does not count, nor does the second one that only sublet
 * needs (v->spare). */
static struct counted count(const struct client *c, unsigned gpu,
                            const struct sched_account_view *v, uint64_t movable,
                            uint64_t unevictable, uint64_t excess)
{
        const uint64_t card = c->server->gpus.list[gpu].driver_bytes;
        const uint64_t free = gpus_context_bytes(card) + (v->spare ? gpus_mover_bytes(card) : 0);
        const uint64_t said = sub_sat(unevictable, free);

        return (struct counted){
                .bytes = add_sat(movable, said),
                .excess = sub_sat(add_sat(unevictable, excess), free) - said,
        };
}

static struct counted count_others(const struct client *c, unsigned gpu, bool soon)
{
        struct counted sum = {0};

        for (const struct client *o = c->server->clients; o; o = o->next) {
                const struct client_account *acc = &o->accounts[gpu];
                struct sched_account_view v;
                struct counted n;

                if (o == c || !same_cap(o, c) || !client_asked(o, gpu, &v))
                        continue;
                n = count(o, gpu, &v, v.commit_asked,
                          v.unevictable_asked > v.unevictable ? v.unevictable_asked
                                                              : v.unevictable_known,
                          soon ? figures_excess_soon(acc) : figures_excess(acc));
                sum.bytes = add_sat(sum.bytes, n.bytes);
                sum.excess = add_sat(sum.excess, n.excess);
        }
        return sum;
}

static uint64_t held_by_others(const struct client *c, unsigned gpu)
{
        const struct counted others = count_others(c, gpu, false);

        return add_sat(others.bytes, others.excess);
}

/* True if c may have so much of the GPU. */
static bool fits(const struct client *c, unsigned gpu, struct counted its, bool soon,
                 char why[static 160])
{
        const uint64_t own = c->claim.memory_cap, cap = settings_of(c)->memory_cap;
        const uint64_t bytes = add_sat(its.bytes, its.excess);
        const struct counted others = cap ? count_others(c, gpu, soon) : (struct counted){0};
        const char *whose = own && bytes > own ? "this program"
                            : c->class         ? "its class"
                                               : "its user";
        const uint64_t most =
                own && bytes > own ? own : sub_sat(cap, add_sat(others.bytes, others.excess));

        if ((!own || bytes <= own) && (!cap || bytes <= most))
                return true;
        (void)snprintf(why, 160,
                       "the memory cap of %s leaves it %llu MiB: use less, end other programs that "
                       "it is for, or ask the owner for more",
                       whose, (unsigned long long)(most / MIB));
        return false;
}

/* NVML shows the real size of a context and of code only some time after they exist. Bytes that
 * show up late must not reduce the commit that a program had: it may free memory and allocate it
 * again. */
static uint64_t excess_beside(const struct client_account *acc, uint64_t movable, uint64_t excess)
{
        return movable <= acc->cover_commit ? MIN(excess, acc->cover_excess) : excess;
}

static struct counted count_commit(const struct client *c, unsigned gpu, uint64_t commit,
                                   uint64_t excess)
{
        struct sched_account_view v = {0};

        (void)client_asked(c, gpu, &v);
        return count(c, gpu, &v, commit, v.unevictable_known,
                     excess_beside(&c->accounts[gpu], commit, excess));
}

bool entitlement_fits(struct client *c, unsigned gpu, uint64_t commit, bool only_asks,
                      char why[static 160])
{
        struct client_account *acc = &c->accounts[gpu];
        const uint64_t excess = only_asks ? figures_excess_soon(acc) : figures_excess(acc);

        PRECONDITION(gpu < SCHED_GPUS_MAX, false);
        if (!fits(c, gpu, count_commit(c, gpu, commit, excess), only_asks, why))
                return false;
        if (!only_asks && commit > acc->cover_commit) {
                acc->cover_commit = commit;
                acc->cover_excess = excess;
        }
        return true;
}

/* The library allocates no more than its unevictable bytes leave of the cap, whatever its commit
 * is. So what it has allocated counts here, not its commit. */
bool entitlement_fits_unevictable(const struct client *c, unsigned gpu, uint64_t unevictable,
                                  bool spare, char why[static 160])
{
        const struct client_account *acc = &c->accounts[gpu];
        struct sched_account_view v = {0};
        struct counted its;

        (void)client_asked(c, gpu, &v);
        v.spare = spare;
        its = count(c, gpu, &v, v.usage.allocated, unevictable,
                    excess_beside(acc, v.usage.allocated, figures_excess(acc)));
        return its.bytes == v.usage.allocated || fits(c, gpu, its, false, why);
}

/* True if an earlier daemon may have allowed the process what this one does not. The kernel counts
 * both ages in ticks, so a process that began in the same tick as the daemon is not older. */
static bool is_older_than_daemon(const struct client *c)
{
        const uint64_t age_ns = peer_age_ns(c->peer.pid);

        return age_ns > peer_age_ns(getpid());
}

void entitlement_attach(struct client *c, unsigned gpu, struct sched_usage *u)
{
        const uint64_t cap = entitlement_cap(c);
        uint64_t most;

        PRECONDITION(gpu < SCHED_GPUS_MAX, );
        c->accounts[gpu].cover_commit = u->allocated;
        if (cap == UINT64_MAX || is_older_than_daemon(c))
                return;
        u->backed = MIN(u->backed, figures_most(c->server, c, gpu));
        most = MAX(sub_sat(cap, held_by_others(c, gpu)), u->backed);
        for (const struct client *f = c->former; f; f = f->former) {
                struct sched_account_view v;

                if (client_asked(f, gpu, &v))
                        most = MAX(most, v.commit_held);
        }
        u->allocated = c->accounts[gpu].cover_commit = MIN(u->allocated, most);
}

bool entitlement_kills(const struct client *c)
{
        const int answer = settings_of(c)->kill_overdue;

        return answer < 0 ? c->server->config->kill_overdue : answer == 1;
}

bool entitlement_mps(const struct client *c)
{
        const int answer = settings_of(c)->mps;

        return answer < 0 ? c->server->config->mps : answer == 1;
}

/* Tells the scheduler the client's share now. The LIMITs that follow tell the program its cap. */
static void give_share(struct client *c)
{
        const struct sched_share share = entitlement_share(c);
        struct server *s = c->server;

        event_begin(s);
        (void)sched_client_share(s->sched, c->id, &share, clock_now_ns(), &s->actions);
        event_end(s);
}

/* ---- orders ---- */

void entitlement_own(const struct client *c, struct class_settings *ret)
{
        *ret = (struct class_settings){
                .minimum_permille = allowed_minimum(c),
                .maximum_permille = c->claim.maximum ? c->claim.maximum : 1000,
                .weight_permille = c->claim.weight ? c->claim.weight : 1000,
                .memory_cap = c->claim.memory_cap,
                .priority = c->priority,
        };
}

int entitlement_order(struct client *c, const struct class_settings *own, const struct peer *by)
{
        struct server *s = c->server;

        if (c->claim.by_owner && !by->trusted)
                return -EPERM;
        c->claim = (struct client_claim){
                .memory_cap = own->memory_cap,
                .weight = own->weight_permille,
                .minimum = own->minimum_permille,
                .maximum = own->maximum_permille % 1000,
                .by_owner = by->trusted,
        };
        c->priority = by->trusted ? own->priority : allowed_priority(c, own->priority);
        c->claim.minimum = allowed_minimum(c);
        give_share(c);
        event_begin(s);
        (void)sched_client_priority(s->sched, c->id, c->priority, clock_now_ns(), &s->actions);
        event_end(s);
        return 0;
}

/* ---- the configuration ---- */

void entitlement_number(struct server *s, const struct classes *before)
{
        struct classes *all = &s->settings.classes;

        for (unsigned i = 0; i < all->n; i++) {
                const struct class *old = before ? classes_named(before, all->list[i].name) : NULL;

                all->list[i].number = old ? old->number : ++s->class_numbers;
        }
}

void entitlement_renew(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next) {
                struct sched_origin origin;

                if (!c->greeted)
                        continue;
                c->class = find_class(c);
                if (!c->id)
                        continue;
                origin = entitlement_origin(c);
                event_begin(s);
                (void)sched_client_origin(s->sched, c->id, &origin, clock_now_ns(), &s->actions);
                event_end(s);
                give_share(c);
        }
}
