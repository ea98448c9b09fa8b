/* ordered_evictions.c: owns evictions that a person orders. Must never evict a holder that has
 * work. */
#include <errno.h>

#include "sched/internal.h"

static bool has_work(const struct holder *h)
{
        return h->waiting || (h->lease && !h->idle);
}

/* Returns the movable bytes that h has on its cards. */
static uint64_t on_cards(const struct holder *h)
{
        const struct client *c;
        uint64_t sum = 0;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c) {
                FOR_EACH_GPU_OF (c, gpu)
                        sum += sub_sat(c->accounts[gpu]->usage.backed, c->accounts[gpu]->exported);
        }
        return sum;
}

/* Returns the evicted bytes. The promises of host memory suppose a full card, so they do not
 * contain what an order evicts from a card with room. */
static uint64_t in_host_memory(const struct sched *s)
{
        uint64_t sum = 0;

        for (unsigned gpu = 0; gpu < s->gpus; gpu++) {
                const struct client *c;

                FOR_EACH_CLIENT_ON (s, gpu, c)
                        sum += sub_sat(c->accounts[gpu]->usage.allocated,
                                       c->accounts[gpu]->usage.backed);
        }
        return sum;
}

int evict_objection(const struct sched *s, const struct holder *h)
{
        if (s->config.mode == SCHED_MODE_OFF)
                return -EPERM;
        if (has_work(h)) /* the library's own tests look like work of a program that starts */
                return h->waiting || habits_run_ns(s, h) >= STARTS_NS ? -EBUSY : -EAGAIN;
        return in_host_memory(s) + on_cards(h) > ledger_host_budget(s) ? -ENOMEM : 0;
}

void evict_holder(struct sched *s, struct holder *h)
{
        struct client *c;
        unsigned gpu;

        FOR_EACH_CLIENT_OF (h, c) {
                FOR_EACH_GPU_OF (c, gpu) {
                        if (!c->lost)
                                ledger_set_limit(s, c, gpu, c->accounts[gpu]->exported);
                }
                c->restoring = false;
        }
}

/* A holder that has work again keeps its memory. */
static void go_on(struct sched *s, struct holder *h)
{
        if (has_work(h)) {
                h->leaves = false;
        } else if (h->lease) {
                holder_ask_back(s, h);
        } else {
                evict_holder(s, h);
                h->leaves = false;
        }
}

void evict_check(struct sched *s)
{
        struct client *c;

        FOR_EACH_TOUCHED_CLIENT (s, c) {
                if (c == c->holder->first && c->holder->leaves)
                        go_on(s, c->holder);
        }
}
