/* strangers.c: owns what a client does that lacks bytes because of programs that are not ours to
 * ask. Must never drive out anybody else for it. */
#include "sched/internal.h"

/* G. Marsaglia, "Xorshift RNGs" (2003). */
static uint64_t random_below(struct sched *s, uint64_t bound)
{
        s->random ^= s->random << 13;
        s->random ^= s->random >> 7;
        s->random ^= s->random << 17;
        return s->random % MAX(bound, UINT64_C(1));
}

/* What is missing lies with strangers, who cannot be asked. If they are another daemon's, theirs
 * may be half there as well and wait for us: after a time that two daemons do not share for long,
 * one of them gives back what it has. */
void strangers_give_back(struct sched *s, struct client *c)
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
        if (!holds || c->overdue || s->config.mode == SCHED_MODE_OFF || !settle_fits(s, c, true)) {
                c->give_back_ns = 0;
                return;
        }
        if (!c->give_back_ns)
                c->give_back_ns =
                        s->now_ns + s->config.grace_ns / 2 + random_below(s, s->config.grace_ns);
        when = MAX(MAX(c->give_back_ns, c->retry_ns), c->unpreemptible_until_ns);
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
