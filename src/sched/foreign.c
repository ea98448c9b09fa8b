/* foreign.c: owns the behaviour of a holder that lacks bytes because foreign processes hold them.
 * Must never evict another holder for it. */
#include "sched/internal.h"

/* A daemon notices the memory that a peer daemon gave back at its next look at the card, seconds
 * later. Two daemons that both give back within that time would do so for ever. */
#define GIVE_BACK_MIN_NS (5 * NSEC_PER_SEC)

/* The generator of G. Marsaglia, "Xorshift RNGs" (2003). */
static uint64_t random_below(struct sched *s, uint64_t bound)
{
        s->random ^= s->random << 13;
        s->random ^= s->random >> 7;
        s->random ^= s->random << 17;
        return s->random % MAX(bound, UINT64_C(1));
}

bool foreign_blocks(const struct sched *s, const struct holder *h)
{
        return h->waiting && !h->held && !h->overdue && s->config.mode != SCHED_MODE_OFF &&
               !settle_fits(s, h, false) && settle_fits(s, h, true);
}

/* Programs of two daemons may each hold half of the bytes that the other program needs. Neither is
 * idle, so neither gives way. Each waits for a random time, and the one with the shorter time gives
 * back its bytes. */
void foreign_stuck(struct sched *s, struct holder *h)
{
        bool holds = false;
        struct client *c;
        unsigned gpu, one = 0;
        uint64_t when, spread = MAX(s->config.grace_ns, GIVE_BACK_MIN_NS);

        FOR_EACH_CLIENT_OF (h, c) {
                FOR_EACH_GPU_OF (c, gpu) {
                        if (c->accounts[gpu]->limit > c->accounts[gpu]->exported) {
                                one = gpu;
                                holds = true;
                        }
                }
        }
        if (!holds || h->overdue || (h->lease && !h->askable) || s->config.mode == SCHED_MODE_OFF ||
            !settle_fits(s, h, true)) {
                h->give_back_ns = 0;
                return;
        }
        if (!h->give_back_ns)
                h->give_back_ns = s->now_ns + spread / 2 + random_below(s, spread);
        when = MAX(MAX(h->give_back_ns, h->retry_ns), h->unpreemptible_until_ns);
        if (s->now_ns < when) {
                wake_at(s, when);
        } else if (h->lease) {
                if (!h->draining)
                        holder_revoke(s, h, one);
        } else {
                evict_holder(s, h);
                h->give_back_ns = 0;
        }
}
