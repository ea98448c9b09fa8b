/* allowance.c: owns what one user's clients may hold together, and which of a client's figures are
 * believed. Must never limit the daemon's own user: a private daemon serves no other. */
#include "daemon/ledger/allowance.h"
#include "daemon/state/client.h"
#include "daemon/ledger/card_figures.h"

#include "base/macros.h"

#define CARDS_OF_USER (SCHED_GPUS_MAX / 2) /* limit on a user's cards that only clients know */

bool allowance_applies(const struct client *c)
{
        return !c->peer.trusted;
}

/* Adds up what the other clients of c's user hold on a GPU or have requested. */
static void others_of_user(struct client *c, unsigned gpu, uint64_t *ret_unevictable,
                           uint64_t *ret_commit)
{
        uint64_t unevictable = 0, commit = 0;

        for (struct client *o = c->server->clients; o; o = o->next) {
                struct sched_account_view v;

                if (o == c || o->user != c->user || !client_asked(o, gpu, &v))
                        continue;
                unevictable += v.unevictable_asked + v.exported_asked;
                commit += v.commit_asked;
        }
        *ret_unevictable = unevictable;
        *ret_commit = commit;
}

/* Returns how many bytes c may have that are unevictable or exported: the user's share without the
 * part of the user's other clients. */
static uint64_t left_of_unevictable(struct client *c, unsigned gpu)
{
        uint64_t unevictable, commit, total = c->server->gpus.list[gpu].total_bytes;

        others_of_user(c, gpu, &unevictable, &commit);
        return sub_sat(total / 1000 * c->server->config->unevictable_per_user_permille,
                       unevictable);
}

static struct sched_account_view own_account(const struct client *c, unsigned gpu)
{
        struct sched_account_view v = {0};

        /* Without an account, as before ATTACH, v stays zero. */
        (void)sched_account_view(c->server->sched, c->id, gpu, &v);
        return v;
}

uint64_t allowance_unevictable(struct client *c, unsigned gpu)
{
        return allowance_applies(c)
                       ? sub_sat(left_of_unevictable(c, gpu), own_account(c, gpu).exported_asked)
                       : UINT64_MAX;
}

uint64_t allowance_exported(struct client *c, unsigned gpu)
{
        return allowance_applies(c)
                       ? sub_sat(left_of_unevictable(c, gpu), own_account(c, gpu).unevictable_asked)
                       : UINT64_MAX;
}

static uint64_t host_of_user(const struct server *s)
{
        return s->host_budget_bytes / 1000 * s->config->host_per_user_permille;
}

/* Returns the host memory that the programs of c's user may map; own: include c. */
static uint64_t mapped_by_user(const struct client *c, bool own)
{
        uint64_t sum = 0;

        for (const struct client *o = c->server->clients; o; o = o->next)
                if (o->user == c->user && (own || o != c))
                        sum += o->host;
        return sum;
}

/* Returns by how many bytes the user's commits exceed the visible sizes of the cards, if c commits
 * `wanted` bytes on this GPU. Only these bytes may have to lie in host memory. */
static uint64_t committed_past_cards(struct client *c, unsigned gpu, uint64_t wanted)
{
        struct server *s = c->server;
        uint64_t host = 0, unevictable, commit;

        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct sched_account_view v = own_account(c, g);
                struct sched_gpu_view card;

                if (sched_gpu_view(s->sched, g, &card) < 0)
                        continue;
                others_of_user(c, g, &unevictable, &commit);
                commit += g == gpu ? MAX(wanted, v.commit_held) : v.commit_asked;
                host += sub_sat(commit, card.visible);
        }
        return host;
}

bool allowance_commit(struct client *c, unsigned gpu, uint64_t wanted)
{
        return !allowance_applies(c) ||
               committed_past_cards(c, gpu, wanted) + mapped_by_user(c, true) <=
                       host_of_user(c->server);
}

uint64_t allowance_host(struct client *c)
{
        return allowance_applies(c) ? sub_sat(host_of_user(c->server),
                                              mapped_by_user(c, false) +
                                                      committed_past_cards(c, SCHED_GPUS_MAX, 0))
                                    : UINT64_MAX;
}

void allowance_claim(struct client *c, unsigned gpu, struct sched_usage *u)
{
        struct server *s = c->server;
        struct sched_gpu_view card;
        uint64_t most;

        if (!allowance_applies(c) || sched_gpu_view(s->sched, gpu, &card) < 0)
                return;
        u->allocated = MIN(u->allocated, card.visible);
        if (!allowance_commit(c, gpu, u->allocated))
                u->allocated = 0;
        u->backed = MIN(u->backed, u->allocated);
        if (u->backed == 0 && u->unevictable == 0)
                return;
        most = figures_most(s, c, gpu);
        u->backed = MIN(u->backed, most);
        u->unevictable = MIN(MIN(u->unevictable, most - u->backed), allowance_unevictable(c, gpu));
}

void allowance_usage(struct client *c, unsigned gpu, struct sched_usage *u)
{
        struct sched_account_view v;

        if (!allowance_applies(c) || sched_account_view(c->server->sched, c->id, gpu, &v) < 0)
                return;
        u->allocated = MIN(u->allocated, MAX(v.commit_held, v.usage.allocated));
        u->backed = MIN(MIN(u->backed, v.charge - v.unevictable), u->allocated);
        if (u->unevictable > v.unevictable)
                u->unevictable =
                        MIN(u->unevictable, MAX(v.unevictable, allowance_unevictable(c, gpu)));
}

bool allowance_card(const struct client *c)
{
        const struct server *s = c->server;
        unsigned held = 0;

        for (unsigned g = 0; g < s->gpus.n; g++) {
                const struct client *o = s->clients;

                if (!s->gpus.list[g].present || s->gpus.list[g].vouched)
                        continue;
                while (o && (o->user != c->user || o->accounts[g].ordinal < 0))
                        o = o->next;
                held += o != NULL;
        }
        return !allowance_applies(c) || held < CARDS_OF_USER;
}
