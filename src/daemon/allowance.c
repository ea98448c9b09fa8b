/* allowance.c: owns what one user's clients may hold together, and what of a client's figures is
 * believed. Must never stand in the way of the daemon's own user: a private daemon has no other. */
#include "daemon/client.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"

#define CLAIM_MESSAGES 50 /* what looking a claim up costs of the user's rate */

bool allowance_applies(const struct client *c)
{
        return !peer_is_trusted(&c->peer);
}

/* What c's user holds on a GPU, c left out. */
static void others_of_user(struct client *c, unsigned gpu, uint64_t *ret_fixed,
                           uint64_t *ret_commit)
{
        uint64_t fixed = 0, commit = 0;

        for (struct client *o = c->server->clients; o; o = o->next) {
                struct sched_account_view v;

                if (o == c || o->user != c->user || !o->id ||
                    sched_account_view(c->server->sched, o->id, gpu, &v) < 0)
                        continue;
                fixed += v.fixed + v.pinned;
                commit += v.commit_held;
        }
        *ret_fixed = fixed;
        *ret_commit = commit;
}

uint64_t allowance_fixed(struct client *c, unsigned gpu)
{
        uint64_t fixed, commit, total = c->server->gpus.list[gpu].total_bytes;

        if (!allowance_applies(c))
                return UINT64_MAX;
        others_of_user(c, gpu, &fixed, &commit);
        return sub_sat(total / 1000 * c->server->config->fixed_per_user_permille, fixed);
}

static uint64_t host_of_user(const struct server *s)
{
        return s->host_budget_bytes / 1000 * s->config->host_per_user_permille;
}

/* Host memory that the programs of c's user may map; own: c's as well. */
static uint64_t mapped_by_user(const struct client *c, bool own)
{
        uint64_t sum = 0;

        for (const struct client *o = c->server->clients; o; o = o->next)
                if (o->user == c->user && (own || o != c))
                        sum += o->host;
        return sum;
}

/* A card's worth costs no host memory; what is past it may have to lie there. */
bool allowance_commit(struct client *c, unsigned gpu, uint64_t wanted)
{
        struct server *s = c->server;
        uint64_t host = 0, fixed, commit;

        if (!allowance_applies(c))
                return true;
        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct sched_account_view v = {0};
                struct sched_gpu_view card;

                if (sched_gpu_view(s->sched, g, &card) < 0)
                        continue;
                (void)sched_account_view(s->sched, c->id, g, &v);
                others_of_user(c, g, &fixed, &commit);
                commit += g == gpu ? MAX(wanted, v.commit_held) : v.commit_held;
                host += sub_sat(commit, card.visible);
        }
        return host + mapped_by_user(c, true) <= host_of_user(s);
}

uint64_t allowance_host(struct client *c)
{
        return allowance_applies(c) ? sub_sat(host_of_user(c->server), mapped_by_user(c, false))
                                    : UINT64_MAX;
}

int allowance_claim(struct client *c, unsigned gpu, struct sched_usage *u)
{
        struct server *s = c->server;
        struct sched_gpu_view card;
        uint64_t most;

        if (!allowance_applies(c) || sched_gpu_view(s->sched, gpu, &card) < 0)
                return 0;
        u->allocated = MIN(u->allocated, card.visible);
        if (!allowance_commit(c, gpu, u->allocated))
                u->allocated = 0;
        u->backed = MIN(u->backed, u->allocated);
        if (u->backed == 0 && u->fixed == 0)
                return 0;
        if (!users_take_many(s->users, c->peer.uid, CLAIM_MESSAGES, clock_now_ns()))
                return -EUSERS;
        most = measure_most(s, c, gpu);
        u->backed = MIN(u->backed, most);
        u->fixed = MIN(MIN(u->fixed, most - u->backed), allowance_fixed(c, gpu));
        return 0;
}

void allowance_usage(struct client *c, unsigned gpu, struct sched_usage *u)
{
        struct sched_account_view v;

        if (!allowance_applies(c) || sched_account_view(c->server->sched, c->id, gpu, &v) < 0)
                return;
        u->allocated = MIN(u->allocated, MAX(v.commit_held, v.usage.allocated));
        u->backed = MIN(MIN(u->backed, v.charge - v.fixed), u->allocated);
        if (u->fixed > v.fixed)
                u->fixed = MIN(u->fixed, MAX(v.fixed, allowance_fixed(c, gpu)));
}
