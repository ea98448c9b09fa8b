/* tally.c: owns the totals that outlive clients, and the histograms.
 * Must never count a thing twice, and never let a total fall. */
#include "daemon/metrics/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/precondition.h"
#include "daemon/setup/classes.h"
#include "daemon/state/client.h"

#define BUS_BYTES_PER_NS 1000 /* more than any bus */

struct tally *tally_new(void)
{
        struct tally *t = calloc(1, sizeof(*t));
        struct timespec now;

        (void)clock_gettime(CLOCK_REALTIME, &now);
        if (t)
                t->began_unix_ns = (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
        return t;
}

void tally_free(struct tally *t)
{
        if (t)
                free(t->classes);
        free(t);
}

struct tally_gpu *tally_of_gpu(struct server *s, unsigned gpu)
{
        struct tally_gpu *t = &s->tally->gpus[gpu];
        const uint8_t *uuid = s->gpus.list[gpu].uuid;

        if (memcmp(t->uuid, uuid, sizeof(t->uuid)) != 0) {
                *t = (struct tally_gpu){0};
                memcpy(t->uuid, uuid, sizeof(t->uuid));
                for (unsigned i = 0; i < s->tally->n_classes; i++)
                        s->tally->classes[i].gpus[gpu] = (struct tally_totals){0};
        }
        return t;
}

/* Returns the totals of a class; NULL: no memory, so the class has none. */
static struct tally_class *class_of(struct tally *t, uint32_t number)
{
        struct tally_class *list;

        for (unsigned i = 0; i < t->n_classes; i++)
                if (t->classes[i].number == number)
                        return &t->classes[i];
        list = realloc(t->classes, (t->n_classes + 1ul) * sizeof(*list));
        if (!list)
                return NULL;
        t->classes = list;
        list[t->n_classes] = (struct tally_class){.number = number};
        return &list[t->n_classes++];
}

/* Returns by how much a figure has grown since it was counted, but at most `most`; the rest counts
 * later. The greatest figure stays noted, so that a figure that falls and rises again counts
 * once. */
static uint64_t grown_at_most(uint64_t most, uint64_t now, uint64_t *counted)
{
        const uint64_t by = MIN(most, sub_sat(now, *counted));

        *counted += by;
        return by;
}

static uint64_t grown(uint64_t now, uint64_t *counted)
{
        return grown_at_most(UINT64_MAX, now, counted);
}

static void add(struct tally_totals *to, const struct tally_totals *what)
{
        to->lease_ns += what->lease_ns;
        to->waited_ns += what->waited_ns;
        to->billed_ns += what->billed_ns;
        to->handoffs += what->handoffs;
        to->moved_out += what->moved_out;
        to->moved_in += what->moved_in;
}

void tally_settle(struct client *c)
{
        struct server *s = c->server;
        struct client_counted *seen = &c->counted;
        struct tally_class *class;
        struct sched_client_view v;
        const uint64_t now = clock_now_ns();
        struct tally_totals own;
        uint64_t most; /* the client may report any figure, but no bus moves more */

        if (!c->id || sched_client_view(s->sched, c->id, now, &v) < 0)
                return;
        most = sub_sat(now, seen->settled_ns) * BUS_BYTES_PER_NS;
        seen->settled_ns = now;
        class = class_of(s->tally, c->class ? c->class->number : 0);
        own = (struct tally_totals){.lease_ns = grown(v.run_ns, &seen->lease_ns),
                                    .waited_ns = grown(v.waited_ns, &seen->waited_ns),
                                    .handoffs = grown(v.handoffs, &seen->handoffs)};
        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct client_account *acc = &c->accounts[g];
                struct tally_totals on = own;
                struct sched_account_view a;

                if (sched_account_view(s->sched, c->id, g, &a) < 0)
                        continue;
                on.billed_ns = grown(a.paid_ns, &acc->counted.billed_ns);
                on.moved_out = grown_at_most(most, a.usage.moved_out, &acc->counted.moved_out);
                on.moved_in = grown_at_most(most, a.usage.moved_in, &acc->counted.moved_in);
                add(&tally_of_gpu(s, g)->totals, &on);
                if (class)
                        add(&class->gpus[g], &on);
        }
}

void tally_settle_all(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next)
                tally_settle(c);
}

static bool is_configured(const struct classes *c, uint32_t number)
{
        for (unsigned i = 0; i < c->n; i++)
                if (c->list[i].number == number)
                        return true;
        return number == 0;
}

void tally_keep_classes(struct server *s)
{
        struct tally *t = s->tally;
        unsigned n = 0;

        for (unsigned i = 0; i < t->n_classes; i++)
                if (is_configured(&s->config->classes, t->classes[i].number))
                        t->classes[n++] = t->classes[i];
        t->n_classes = n;
}

/* ---- what happens to a client ---- */

void tally_usage(struct client *c, unsigned gpu, uint64_t moved_out, uint64_t moved_in)
{
        struct client_account_counted *seen = &c->accounts[gpu].counted;

        PRECONDITION(gpu < SCHED_GPUS_MAX, );
        if (seen->begun)
                return;
        if (!c->counted.settled_ns)
                c->counted.settled_ns = clock_now_ns();
        *seen = (struct client_account_counted){.begun = true,
                                                .billed_ns = seen->billed_ns,
                                                .moved_out = moved_out,
                                                .moved_in = moved_in,
                                                .out_before = moved_out,
                                                .in_before = moved_in};
}

/* Adds the bytes that moved between the client's last turn and now. */
static void add_moves(struct client *c, unsigned gpu, const struct sched_usage *u)
{
        struct client_account_counted *seen = &c->accounts[gpu].counted;
        struct tally_gpu *t = tally_of_gpu(c->server, gpu);
        const uint64_t out = grown(u->moved_out, &seen->out_before),
                       in = grown(u->moved_in, &seen->in_before),
                       most = c->server->gpus.list[gpu].driver_bytes;

        if (out)
                histogram_add(&t->eviction, METRIC_GPU_EVICTION, MIN(out, most));
        if (in)
                histogram_add(&t->restore, METRIC_GPU_RESTORE, MIN(in, most));
}

static void add_handoff(struct tally_gpu *t, const struct sched_gpu_view *v)
{
        if (v->handoffs_timed && v->handoffs_timed != t->handoffs_timed)
                histogram_add(&t->handoff, METRIC_GPU_HANDOFF, v->handoff_ns);
        t->handoffs_timed = v->handoffs_timed;
}

void tally_granted(struct client *c)
{
        struct server *s = c->server;
        struct sched_client_view v;
        uint64_t waited;

        if (sched_client_view(s->sched, c->id, clock_now_ns(), &v) < 0)
                return;
        waited = grown(v.waited_ns, &c->counted.waited_before_ns);
        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct tally_gpu *t = tally_of_gpu(s, g);
                struct sched_account_view a;
                struct sched_gpu_view on;

                if (sched_account_view(s->sched, c->id, g, &a) < 0 ||
                    sched_gpu_view(s->sched, g, &on) < 0)
                        continue;
                histogram_add(&t->wait, METRIC_GPU_WAIT, waited);
                add_handoff(t, &on);
                add_moves(c, g, &a.usage);
        }
}

void tally_drained(struct client *c, uint64_t lease)
{
        struct server *s = c->server;
        const uint64_t now = clock_now_ns();
        struct sched_client_view v;

        if (sched_client_view(s->sched, c->id, now, &v) < 0 || v.state != SCHED_DRAINING ||
            v.lease != lease)
                return;
        for (unsigned g = 0; g < s->gpus.n; g++)
                if (c->accounts[g].ordinal >= 0)
                        histogram_add(&tally_of_gpu(s, g)->drain, METRIC_GPU_DRAIN,
                                      sub_sat(now, v.since_ns));
}

void tally_refused(struct client *c, unsigned ordinal)
{
        if (ordinal < WIRE_GPUS_MAX && c->gpu_of[ordinal] >= 0)
                tally_of_gpu(c->server, (unsigned)c->gpu_of[ordinal])->refused++;
}

void tally_ended(struct client *c)
{
        struct server *s = c->server;

        tally_settle(c);
        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct sched_account_view a;

                if (c->id && sched_account_view(s->sched, c->id, g, &a) == 0)
                        add_moves(c, g, &a.usage);
        }
}
