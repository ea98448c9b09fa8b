/* report.c: owns the text of a result. Must never call it the speed of a GPU. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"
#include "model.h"

static int by_size(const void *a, const void *b)
{
        const uint64_t *x = a, *y = b;

        return *x < *y ? -1 : *x > *y;
}

static uint64_t share_of(uint64_t *list, unsigned n, unsigned permille)
{
        if (!n)
                return 0;
        qsort(list, n, sizeof(*list), by_size);
        return list[(size_t)(n - 1) * permille / 1000];
}

uint64_t model_wait(struct model_client *c, unsigned permille)
{
        return share_of(c->waits, c->n_waits, permille);
}

static double s(uint64_t ns)
{
        return (double)ns / 1e9;
}

static double gb(uint64_t bytes)
{
        return (double)bytes / 1e9;
}

/* The figures of all clients of a job together. */
struct sum {
        unsigned clients, ended, refused, n_waits;
        uint64_t turnaround_ns, gpu_ns, paid_ns, handoffs, in_bytes, out_bytes;
        uint64_t *waits;
};

static struct sum sum_of(const struct job *j, struct model_result *r)
{
        struct sum t = {0};
        unsigned n = 0;

        for (unsigned i = 0; i < r->n_clients; i++)
                if (r->clients[i].job == j)
                        n += r->clients[i].n_waits;
        t.waits = calloc(n + 1, sizeof(*t.waits));
        if (!t.waits)
                abort();
        for (unsigned i = 0; i < r->n_clients; i++) {
                const struct model_client *c = &r->clients[i];

                if (c->job != j)
                        continue;
                t.clients++;
                t.refused += c->refused;
                if (c->ended_ns && !c->refused) {
                        t.ended++;
                        t.turnaround_ns += c->ended_ns - c->arrived_ns;
                }
                t.gpu_ns += c->gpu_ns;
                t.paid_ns += c->paid_ns;
                t.handoffs += c->handoffs;
                t.in_bytes += c->in_bytes;
                t.out_bytes += c->out_bytes;
                if (c->n_waits)
                        memcpy(t.waits + t.n_waits, c->waits, c->n_waits * sizeof(*t.waits));
                t.n_waits += c->n_waits;
        }
        return t;
}

/* Returns quantiles of two lists: how long bursts waited before they began, and how many
 * thousandths of their time alone they took. A burst that never began waited until the end of the
 * run. */
struct bursts {
        unsigned n, n_ended;
        uint64_t *waits, *slowdowns;
};

static struct bursts bursts_of(const struct model_result *r)
{
        struct bursts b = {0};
        size_t n = 0;

        for (unsigned i = 0; i < r->n_clients; i++)
                n += r->clients[i].n_bursts;
        b.waits = calloc(n + 1, sizeof(*b.waits));
        b.slowdowns = calloc(n + 1, sizeof(*b.slowdowns));
        if (!b.waits || !b.slowdowns)
                abort();
        for (unsigned i = 0; i < r->n_clients; i++)
                for (unsigned k = 0; k < r->clients[i].n_bursts; k++) {
                        const struct burst *u = &r->clients[i].bursts[k];

                        b.waits[b.n++] = MIN(u->begun_ns, r->end_ns) - u->wanted_ns;
                        if (u->ended_ns != NOT_YET)
                                b.slowdowns[b.n_ended++] =
                                        (uint64_t)((double)(u->ended_ns - u->wanted_ns) /
                                                   (double)u->alone_ns * 1000);
                }
        return b;
}

static void report_bursts_and_shares(FILE *f, const struct workload *w,
                                     const struct model_result *r)
{
        struct bursts b = bursts_of(r);
        double error;
        uint32_t uid;

        fprintf(f, "bursts         %12u\n", b.n);
        fprintf(f, "burst p50, p99 %12.3f s %.3f s  from the wish to compute to the beginning\n",
                s(share_of(b.waits, b.n, 500)), s(share_of(b.waits, b.n, 990)));
        fprintf(f, "slowdown p50, p99 %9.2f %.2f  time from the wish to the end, over time alone\n",
                (double)share_of(b.slowdowns, b.n_ended, 500) / 1e3,
                (double)share_of(b.slowdowns, b.n_ended, 990) / 1e3);
        free(b.waits);
        free(b.slowdowns);
        if (fair_error(w, r, &error, &uid) < 0)
                abort();
        fprintf(f, "share error    %12.1f %%", 100 * error);
        if (error > 0)
                fprintf(f, "  of user %u", uid);
        fprintf(f, "\n");
}

void report_bursts(FILE *f, const struct model_result *r)
{
        fprintf(f, "\nburst,job,number,wanted_s,waited_s,took_s,alone_s\n");
        for (unsigned i = 0; i < r->n_clients; i++) {
                const struct model_client *c = &r->clients[i];

                for (unsigned k = 0; k < c->n_bursts; k++) {
                        const struct burst *b = &c->bursts[k];

                        fprintf(f, "burst,%s,%u,%.6f,%.6f,", c->job->name, i, s(b->wanted_ns),
                                s(MIN(b->begun_ns, r->end_ns) - b->wanted_ns));
                        if (b->ended_ns != NOT_YET)
                                fprintf(f, "%.6f", s(b->ended_ns - b->wanted_ns));
                        fprintf(f, ",%.6f\n", s(b->alone_ns));
                }
        }
}

void report_jobs(FILE *f, const struct workload *w, struct model_result *r)
{
        char card[UNITS_TEXT_MAX];

        fprintf(f, "A model of a %s card, not a measurement: what follows from %s.\n\n",
                units_format_size(w->card, card), r->system);
        fprintf(f, "makespan       %12.1f s\n", s(r->end_ns));
        fprintf(f, "somebody ran   %12.1f s  %.1f %%\n", s(r->busy_ns),
                r->end_ns ? 100.0 * s(r->busy_ns) / s(r->end_ns) : 0);
        fprintf(f, "lost           %12.1f s  %.1f %%\n", s(r->lost_ns),
                r->end_ns ? 100.0 * s(r->lost_ns) / s(r->end_ns) : 0);
        fprintf(f, "wasted         %12.1f s  %.1f %%\n", s(r->wasted_ns),
                r->end_ns ? 100.0 * s(r->wasted_ns) / s(r->end_ns) : 0);
        fprintf(f, "hand-offs      %12llu\n", (unsigned long long)r->handoffs);
        fprintf(f, "moved in       %12.1f GB\nmoved out      %12.1f GB\n", gb(r->in_bytes),
                gb(r->out_bytes));
        fprintf(f, "events         %12llu\n", (unsigned long long)r->events);
        report_bursts_and_shares(f, w, r);
        fprintf(f, "\n");
        fprintf(f, "%-20s %8s %8s %8s %12s %12s %7s %8s %9s %10s %10s %10s %10s\n", "job",
                "clients", "ended", "refused", "mean time s", "gpu time s", "gpu %", "billed %",
                "hand-offs", "waits", "p50 s", "p99 s", "max s");
        for (unsigned i = 0; i < w->n_jobs; i++) {
                struct sum t = sum_of(&w->jobs[i], r);

                fprintf(f, "%-20s %8u %8u %8u ", w->jobs[i].name, t.clients, t.ended, t.refused);
                if (t.ended)
                        fprintf(f, "%12.1f ", s(t.turnaround_ns) / t.ended);
                else
                        fprintf(f, "%12s ", "-");
                fprintf(f, "%12.1f %7.1f %8.1f %9llu %10u %10.3f %10.3f %10.3f\n", s(t.gpu_ns),
                        r->end_ns ? 100.0 * s(t.gpu_ns) / s(r->end_ns) : 0,
                        r->end_ns ? 100.0 * s(t.paid_ns) / s(r->end_ns) : 0,
                        (unsigned long long)t.handoffs, t.n_waits,
                        s(share_of(t.waits, t.n_waits, 500)), s(share_of(t.waits, t.n_waits, 990)),
                        s(share_of(t.waits, t.n_waits, 1000)));
                free(t.waits);
        }
}

void report_clients(FILE *f, struct model_result *r)
{
        fprintf(f, "\n%-20s %6s %12s %12s %12s %9s %10s %10s %8s %10s %10s %10s\n", "client",
                "number", "arrived s", "ended s", "gpu time s", "hand-offs", "in GB", "out GB",
                "waits", "p50 s", "p99 s", "max s");
        for (unsigned i = 0; i < r->n_clients; i++) {
                struct model_client *c = &r->clients[i];

                fprintf(f, "%-20s %6u %12.1f ", c->job->name, i, s(c->arrived_ns));
                if (c->refused)
                        fprintf(f, "%12s ", "refused");
                else if (c->ended_ns)
                        fprintf(f, "%12.1f ", s(c->ended_ns));
                else
                        fprintf(f, "%12s ", "-");
                fprintf(f, "%12.1f %9llu %10.1f %10.1f %8u %10.3f %10.3f %10.3f\n", s(c->gpu_ns),
                        (unsigned long long)c->handoffs, gb(c->in_bytes), gb(c->out_bytes),
                        c->n_waits, s(model_wait(c, 500)), s(model_wait(c, 990)),
                        s(model_wait(c, 1000)));
        }
}
