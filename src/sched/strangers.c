/* strangers.c: owns what a client does that lacks bytes because of programs that are not ours, and
 * what may be kept from a client of another daemon that asks for ours. Must never drive out anybody
 * else for it. */
#include "sched/internal.h"

/* G. Marsaglia, "Xorshift RNGs" (2003). */
static uint64_t random_below(struct sched *s, uint64_t bound)
{
        s->random ^= s->random << 13;
        s->random ^= s->random >> 7;
        s->random ^= s->random << 17;
        return s->random % MAX(bound, UINT64_C(1));
}

/* Without strangers there would be room for c. */
static bool strangers_hold(const struct sched *s, const struct client *c)
{
        return c->waiting && !settle_fits(s, c, false) && settle_fits(s, c, true);
}

/* Of two daemons' clients that each hold what the other lacks, one has to give and one to keep, and
 * both daemons must choose the same: who has waited longer keeps. What of our bytes a stranger's
 * need cannot have for that reason. */
uint64_t strangers_keep_from(const struct sched *s, const struct client *c, unsigned gpu)
{
        uint64_t sum = 0;

        for (unsigned i = 0; c->stranger_since_ns && i < s->clients; i++) {
                const struct client *v = &s->client[i];
                const struct account *a = &v->accounts[gpu];

                if (v->used && a->attached && !v->stranger_since_ns && !client_immovable(s, v) &&
                    v->queued_ns < c->stranger_since_ns && strangers_hold(s, v))
                        sum += account_movable(a);
        }
        return sum;
}

/* Between us and strangers turns are taken in the order of waiting: what strangers gave way with is
 * for those of ours who asked for it, and who has had his turn goes behind a stranger that waits,
 * whatever each daemon has counted. The last of those before c. */
uint64_t strangers_turn_after(const struct sched *s, const struct client *c)
{
        uint64_t tag = 0;

        for (unsigned i = 0; i < s->clients; i++) {
                const struct client *v = &s->client[i];
                bool first = c->stranger_since_ns
                                     ? v->asks_strangers && v->queued_ns < c->stranger_since_ns
                                     : v->stranger_since_ns && v->waiting;

                if (v->used && v->gpus & c->gpus && first)
                        tag = MAX(tag, v->tag_ns);
        }
        return tag;
}

/* What was left to strangers may be in use by now. In exclusive mode that is no lease yet. */
bool strangers_have(const struct sched *s, const struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                if (account_missing(c, &c->accounts[gpu]))
                        return false;
        }
        return c->stranger_since_ns && c->waiting && s->config.mode == SCHED_MODE_AUTO;
}

/* In the queue the request of another daemon is an equal of the first of ours that want the card
 * now: it takes turns with that one. */
int strangers_rank(const struct sched *s, const struct client *c)
{
        int rank = INT32_MIN;

        for (unsigned i = 0; i < s->clients; i++) {
                const struct client *v = &s->client[i];
                bool wants = v->waiting || v->fixed_ticket || (v->lease && !v->idle);

                if (v->used && !v->stranger_since_ns && !client_immovable(s, v) && wants &&
                    v->gpus & c->gpus)
                        rank = MAX(rank, v->priority);
        }
        return rank;
}

/* What c lacks is with other daemons, which know that it is asked for. */
static bool is_offered(const struct sched *s, const struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                const struct gpu *g = &s->gpu[gpu];

                if (gpu_promisable(g) < add_sat(account_need(c, &c->accounts[gpu]), g->fixed))
                        return false;
        }
        return true;
}

/* Strangers that cannot be asked may wait for c as well: after a time that two do not share for
 * long, one of them gives back what it has. Where somebody offers it, c waits for its turn first.
 */
static void give_back(struct sched *s, struct client *c)
{
        bool holds = false;
        unsigned gpu, one = 0;
        uint64_t when;

        FOR_EACH_GPU_OF (c, gpu) {
                if (c->accounts[gpu].limit > c->accounts[gpu].pinned) {
                        one = gpu;
                        holds = true;
                }
        }
        if (!holds || c->overdue || c->stands || s->config.mode == SCHED_MODE_OFF ||
            !settle_fits(s, c, true)) {
                c->give_back_ns = 0;
                return;
        }
        if (!c->give_back_ns)
                c->give_back_ns =
                        s->now_ns + s->config.grace_ns / 2 + random_below(s, s->config.grace_ns);
        when = c->give_back_ns + (is_offered(s, c) ? s->config.quantum_max_ns : 0);
        when = MAX(MAX(when, c->retry_ns), c->unpreemptible_until_ns);
        if (s->now_ns < when) {
                wake_at(s, when);
        } else if (c->lease) {
                if (!c->draining)
                        policy_revoke(s, c, one, NULL);
        } else {
                FOR_EACH_GPU_OF (c, gpu) {
                        if (c->accounts[gpu].limit > c->accounts[gpu].pinned)
                                ledger_set_limit(s, c, gpu, c->accounts[gpu].pinned);
                }
                c->give_back_ns = 0;
                c->restoring = false;
        }
}

void strangers_stuck(struct sched *s, struct client *c)
{
        if (c->stranger_since_ns)
                return; /* its own daemon sees to it */
        if (!c->overdue && s->config.mode != SCHED_MODE_OFF && strangers_hold(s, c))
                c->asks_strangers = true;
        give_back(s, c);
}
