/* view.c: owns the views of the state for people and the daemon. Must never change the state. */
#include <errno.h>
#include <string.h>

#include "sched/internal.h"
#include "base/precondition.h"

static const char *const state_names[] = {
        [SCHED_IDLE] = "idle",       [SCHED_WAITING] = "waiting",   [SCHED_RESTORING] = "restoring",
        [SCHED_RUNNING] = "running", [SCHED_DRAINING] = "draining", [SCHED_EVICTING] = "evicting",
};

static const char *const mode_names[] = {
        [SCHED_MODE_AUTO] = "auto",
        [SCHED_MODE_EXCLUSIVE] = "exclusive",
        [SCHED_MODE_OFF] = "off",
};

const char *sched_state_name(enum sched_state state)
{
        return (size_t)state < ARRAY_SIZE(state_names) ? state_names[state] : "unknown";
}

const char *sched_flag_name(unsigned number)
{
        static const char *const names[SCHED_FLAGS] = {"overdue", "lost", "detached", "poisoned",
                                                       "unpreemptible"};

        return number < SCHED_FLAGS ? names[number] : "unknown";
}

const char *sched_mode_name(enum sched_mode mode)
{
        return (size_t)mode < ARRAY_SIZE(mode_names) ? mode_names[mode] : "unknown";
}

int sched_mode_parse(const char *text, enum sched_mode *ret_mode)
{
        for (size_t i = 0; i < ARRAY_SIZE(mode_names); i++) {
                if (strcmp(text, mode_names[i]) == 0) {
                        *ret_mode = (enum sched_mode)i;
                        return 0;
                }
        }
        return -EINVAL;
}

int sched_gpu_view(const struct sched *s, unsigned gpu, struct sched_gpu_view *ret)
{
        const struct client *c;
        const struct gpu *g;

        if (gpu >= s->gpus || !s->gpu[gpu].present)
                return -EINVAL;
        g = &s->gpu[gpu];
        *ret = (struct sched_gpu_view){
                .total = g->total,
                .foreign = g->foreign,
                .capacity = gpu_capacity(g),
                .headroom = gpu_headroom(g),
                .unevictable_budget = gpu_unevictable_budget(s, g),
                .visible = gpu_visible(s, g),
                .charged = g->charged,
                .unevictable = g->unevictable,
                .committed = g->committed,
                .yielded = g->yielded,
                .quantum_ns = s->config.quantum_ns ? s->config.quantum_ns : g->quantum_ns,
                .gib_ns = gpu_move_ns(g, GIB),
                .handoffs = g->handoffs,
                .handoffs_timed = g->handoffs_timed,
                .handoff_ns = g->handoff_ns,
                .contested = g->contested,
                .serial = g->serial,
        };
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                if (c->lease)
                        ret->running++;
                else if (c->waiting || c->unevictable_ticket)
                        ret->waiting++;
        }
        return 0;
}

uint64_t sched_beyond_cards(const struct sched *s)
{
        uint64_t committed = 0, capacity = 0;

        for (unsigned gpu = 0; gpu < s->gpus; gpu++) {
                if (!s->gpu[gpu].present)
                        continue;
                committed += s->gpu[gpu].committed;
                capacity += gpu_capacity(&s->gpu[gpu]);
        }
        return sub_sat(committed, capacity);
}

bool sched_gpu_in_use(const struct sched *s, unsigned gpu)
{
        PRECONDITION(gpu < SCHED_GPUS_MAX, false);
        return s->gpu[gpu].n_clients > 0;
}

uint64_t sched_gpu_lacks(const struct sched *s, unsigned gpu)
{
        const struct holder *first = NULL, *h;
        const struct gpu *g;
        bool lacks;

        if (gpu >= s->gpus || !s->gpu[gpu].present)
                return 0;
        g = &s->gpu[gpu];
        FOR_EACH_HOLDER_ON (s, gpu, h) {
                if (s->now_ns >= h->unpreemptible_until_ns && foreign_blocks(s, h) &&
                    (!first || h->ticket < first->ticket))
                        first = h;
        }
        if (!first)
                return 0;
        return sub_sat(settle_needs(s, first, gpu, &lacks) + g->unevictable +
                               ledger_immovable_beside(s, gpu, first),
                       gpu_usable(g));
}

static const struct client *first_on(const struct holder *h, unsigned gpu)
{
        const struct client *c = h->first;

        while (!c->accounts[gpu]->attached)
                c = c->next;
        return c;
}

/* Returns the client that keeps c from the bytes that it lacks on this GPU. */
static const struct client *blocker_on(const struct sched *s, const struct client *c, unsigned gpu)
{
        const struct client *leased = NULL, *stubborn = NULL, *v;

        if (s->gpu[gpu].head && s->gpu[gpu].head != c->holder && !c->holder->stuck)
                return first_on(s->gpu[gpu].head, gpu);
        FOR_EACH_CLIENT_ON (s, gpu, v) {
                const struct account *a = v->accounts[gpu];

                if (v->holder == c->holder || !account_charge(a))
                        continue;
                if (client_immovable(s, v)) {
                        if (!stubborn ||
                            account_charge(a) > account_charge(stubborn->accounts[gpu]))
                                stubborn = v;
                        continue;
                }
                if (v->draining || account_held(a) > a->limit)
                        return v;
                if (v->lease && (!leased || v->holder->granted_ns < leased->holder->granted_ns))
                        leased = v;
        }
        if (c->holder->stuck && stubborn)
                return stubborn;
        return leased ? leased : stubborn;
}

static sched_client blocker(const struct sched *s, const struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                const struct account *a = c->accounts[gpu];
                const struct client *b = NULL;

                if ((c->holder->waiting && !c->holder->held && ledger_lacks(c->holder, gpu)) ||
                    a->unevictable_requested || a->export_requested ||
                    s->gpu[gpu].lease_head == c->holder)
                        b = blocker_on(s, c, gpu);
                if (b)
                        return client_id(s, b);
        }
        return 0;
}

int sched_client_view(const struct sched *s, sched_client id, uint64_t now_ns,
                      struct sched_client_view *ret)
{
        const struct client *c = client_find(s, id);
        uint64_t ns;

        if (!c)
                return -ESTALE;
        ns = sub_sat(now_ns, c->clock_ns);
        *ret = (struct sched_client_view){
                .state = c->state,
                .flags = client_flags(s, c),
                .idle = c->idle,
                .since_ns = c->since_ns,
                .lease = c->lease,
                .run_ns = c->run_ns - c->overdue_ns +
                          (c->counted_run && !c->counted_overdue ? ns : 0),
                .handoffs = c->handoffs,
                .waited_ns = c->waited_ns + (c->counted_wait ? ns : 0),
                .blocker = blocker(s, c),
                .foreign = foreign_blocks(s, c->holder),
                .held = c->holder->waiting && c->holder->held,
                .priority = c->holder->priority,
                .preempted = c->preempted,
        };
        return 0;
}

/* Returns the time until the first holder on the GPU may be asked to give way. */
static uint64_t turn_ends_in(const struct sched *s, unsigned gpu, uint64_t now_ns)
{
        uint64_t first_ns = UINT64_MAX;
        const struct holder *h;

        FOR_EACH_HOLDER_ON (s, gpu, h) {
                if (h->lease && holder_can_be_asked(s, h))
                        first_ns = MIN(first_ns, h->idle ? 0 : h->turn_end_ns);
        }
        return first_ns == UINT64_MAX ? 0 : sub_sat(first_ns, now_ns);
}

unsigned sched_gpu_expected(struct sched *s, unsigned gpu, uint64_t now_ns,
                            struct sched_expected *list, unsigned most)
{
        unsigned n_holders, n = 0;
        uint64_t ns;

        if (gpu >= s->gpus || !s->gpu[gpu].present)
                return 0;
        ns = turn_ends_in(s, gpu, now_ns);
        n_holders = policy_queue(s, gpu);
        for (unsigned i = 0; i < n_holders; i++) {
                const struct holder *h = s->order[i].h;
                const struct client *c;
                uint64_t missing = 0;

                FOR_EACH_CLIENT_OF_ON (h, gpu, c)
                        missing += account_missing(c, c->accounts[gpu]);
                ns = add_sat(ns, gpu_move_ns(&s->gpu[gpu], missing));
                FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                        if (c->waiting && n < most)
                                list[n++] = (struct sched_expected){client_id(s, c), ns};
                }
                ns = add_sat(ns, turns_next(s, h));
        }
        return n;
}

int sched_account_view(const struct sched *s, sched_client id, unsigned gpu,
                       struct sched_account_view *ret)
{
        const struct client *c = client_find(s, id);
        const struct account *a;

        if (!c)
                return -ESTALE;
        if (gpu >= SCHED_GPUS_MAX || !c->accounts[gpu]->attached)
                return -EINVAL;
        a = c->accounts[gpu];
        *ret = (struct sched_account_view){
                .usage = a->usage,
                .commit = a->commit,
                .limit = a->limit,
                .charge = account_charge(a),
                .unevictable = account_own_unevictable(a),
                .unevictable_known = MAX(a->unevictable_allowed, a->usage.unevictable),
                .exported = a->exported,
                .spare = a->spare || (a->unevictable_requested && a->spare_requested),
                .need = account_need(c, a),
                .paid_ns = a->paid_ns,
                .commit_held = a->commit_held,
                .commit_asked = MAX(a->commit_held, a->commit_requested ? a->commit_request : 0),
                .unevictable_asked = MAX(account_own_unevictable(a),
                                         a->unevictable_requested ? a->unevictable_request : 0),
                .exported_asked = MAX(a->exported, a->export_requested ? a->export_request : 0),
        };
        return 0;
}

bool sched_commit_fits(const struct sched *s, sched_client id, unsigned gpu, uint64_t commit)
{
        const struct client *c = client_find(s, id);

        return c && !c->lost && gpu < SCHED_GPUS_MAX && c->accounts[gpu]->attached &&
               ledger_commit_fits(s, gpu, c, commit);
}

void sched_transitions(const struct sched *s, struct sched_transitions *ret)
{
        *ret = s->transitions;
}
