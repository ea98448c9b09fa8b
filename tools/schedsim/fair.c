/* fair.c: owns the share error: how far a user is from his fair share of the GPU.
 *
 * A user asks for the GPU time A that his programs would get until the end of the run if each were
 * alone on the card. The GPU time G that all programs got together is divided max-min: each user's
 * fair share is F = min(A, L), with one level L for all, so that the shares add up to all G. All
 * users have the same weight, as in the scheduler. The share error is the largest (F - G) / F. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "model.h"
#include "plan.h"

struct user {
        uint32_t uid;
        double asked_ns, got_ns;
};

/* Returns the GPU time that a program alone on the card gets until end_ns. */
static uint64_t asked(struct plan p, uint64_t end_ns)
{
        uint64_t now = p.arrives_ns, gpu_ns = 0, ns;
        const struct phase *f;

        while (now < end_ns && (f = plan_next(&p, now, &ns))) {
                ns = MIN(ns, end_ns - now);
                gpu_ns += f->kind == PHASE_GPU ? ns : 0;
                now += ns;
        }
        return gpu_ns;
}

static struct user *user_of(struct user *users, unsigned *n, uint32_t uid)
{
        for (unsigned i = 0; i < *n; i++)
                if (users[i].uid == uid)
                        return &users[i];
        users[*n] = (struct user){.uid = uid};
        return &users[(*n)++];
}

static int by_asked(const void *a, const void *b)
{
        const struct user *x = a, *y = b;

        return x->asked_ns < y->asked_ns ? -1 : x->asked_ns > y->asked_ns;
}

int fair_error(const struct workload *w, const struct model_result *r, double *ret_error,
               uint32_t *ret_uid)
{
        _cleanup_free_ struct plan *plans = calloc(w->clients, sizeof(*plans));
        _cleanup_free_ struct user *users = calloc(w->clients, sizeof(*users));
        double left_ns = 0, error = 0;
        uint32_t uid = 0;
        unsigned n = 0;

        if (!plans || !users)
                return -ENOMEM;
        plan_all(w, plans);
        for (unsigned i = 0; i < w->clients; i++) {
                const struct model_client *c = &r->clients[i];
                struct user *u = user_of(users, &n, c->job->uid);

                u->asked_ns += c->refused ? 0 : (double)asked(plans[i], r->end_ns);
                u->got_ns += (double)c->gpu_ns;
                left_ns += (double)c->gpu_ns;
        }
        /* The users who asked for least come first: what they leave is divided among the others. */
        qsort(users, n, sizeof(*users), by_asked);
        for (unsigned i = 0; i < n; i++) {
                double fair_ns = MIN(users[i].asked_ns, left_ns / (n - i));

                left_ns -= fair_ns;
                if (fair_ns > 0 && (fair_ns - users[i].got_ns) / fair_ns > error) {
                        error = (fair_ns - users[i].got_ns) / fair_ns;
                        uid = users[i].uid;
                }
        }
        *ret_error = error;
        *ret_uid = uid;
        return 0;
}
