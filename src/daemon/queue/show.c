/* show.c: owns what people are told of the queue. Must never name a job to users who may not know
 * it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/queue/state.h"
#include "daemon/queue/submit.h"

const char *submission_name(const struct submission *m, const struct peer *viewer)
{
        return peer_may_know(viewer, &m->peer, m->all->server->config->names)
                       ? m->wish.name
                       : "another user's job";
}

static const char *name_for(const struct submits *all, uint32_t id, const struct peer *viewer)
{
        const struct submission *m = submission_find(all, id);

        return m ? submission_name(m, viewer) : NULL;
}

json_t *submit_number(double n)
{
        return isfinite(n) ? json_real(n) : json_null();
}

static uint32_t partner_of(const struct submits *all, const struct queue_job *j)
{
        const struct queue_gpu *g = j->gpu >= 0 ? queue_gpu(all->queue, (unsigned)j->gpu) : NULL;

        return g ? (g->jobs[0] == j->id ? g->jobs[1] : g->jobs[0]) : 0;
}

/* Returns the way in which the jobs of a GPU run now. */
static enum way way_on(const struct submits *all, unsigned gpu)
{
        return queue_takes_turns(all->queue, gpu) ? WAY_TURNS : queue_gpu(all->queue, gpu)->way;
}

void submit_count(const struct submits *all, struct server_jobs *ret)
{
        *ret = (struct server_jobs){0};
        for (const struct queue_job *j = NULL; (j = queue_next(all->queue, j));) {
                ret->waiting += j->gpu < 0;
                ret->running += j->gpu >= 0;
                ret->below += j->below_ns != 0;
        }
        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++) {
                const struct queue_gpu *g = queue_gpu(all->queue, i);

                if (g->jobs[0] && g->jobs[1])
                        ret->pairs[way_on(all, i)]++;
        }
}

static json_t *job_json(struct submits *all, const struct queue_job *j, const struct peer *viewer,
                        uint64_t now_ns)
{
        const struct submission *m = submission_find(all, j->id);
        const bool runs = j->gpu >= 0;
        const uint32_t beside = partner_of(all, j);
        char why[SUBMIT_SAID_MAX] = "";
        enum peer_knowledge knows;
        bool named;

        if (!m)
                return NULL;
        knows = peer_may_know(viewer, &m->peer, all->server->config->names);
        named = knows != PEER_KNOWS_NOTHING;
        if (!runs && knows == PEER_KNOWS_ALL)
                submit_reason(m, why);
        return json_pack("{si so so so ss so sf sb so so ss? so so so sf ss?}", "id", (int)j->id,
                         "pid", m->peer.pid > 0 ? json_integer(m->peer.pid) : json_null(), "uid",
                         named ? json_integer(m->peer.uid) : json_null(), "name",
                         named ? json_string(j->wish.name) : json_null(), "state",
                         runs ? "running" : "waiting", "place",
                         runs ? json_null() : json_integer(queue_place(all->queue, j)), "bound",
                         j->wish.bound, "measured", j->wish.measured, "gpu",
                         runs ? json_integer(j->gpu) : json_null(), "beside",
                         beside ? json_integer(beside) : json_null(), "way",
                         runs ? way_names[way_on(all, (unsigned)j->gpu)] : NULL, "predicted",
                         runs ? submit_number(j->predicted) : json_null(), "observed",
                         runs ? submit_number(j->observed) : json_null(), "below_bound_s",
                         j->below_ns ? json_real((double)(now_ns - j->below_ns) / 1e9)
                                     : json_null(),
                         "since_s", (double)(now_ns - (runs ? j->began_ns : j->came_ns)) / 1e9,
                         "why", *why ? why : NULL);
}

json_t *submit_json(struct server *s, const struct peer *viewer)
{
        struct submits *all = s->submits;
        const uint64_t now_ns = clock_now_ns();
        json_t *list = json_array();

        for (const struct queue_job *j = NULL; all && (j = queue_next(all->queue, j));) {
                json_t *one = job_json(all, j, viewer, now_ns);

                if (one)
                        (void)json_array_append_new(list, one);
        }
        return list;
}

/* Appends what one GPU is busy with. Returns whether a job may still join there. */
static bool add_gpu(const struct submission *m, unsigned gpu, char *text, size_t n)
{
        const struct queue_gpu *g = queue_gpu(m->all->queue, gpu);
        const char *first = name_for(m->all, g->jobs[0] ? g->jobs[0] : g->jobs[1], &m->peer);
        const char *second =
                g->jobs[0] && g->jobs[1] ? name_for(m->all, g->jobs[1], &m->peer) : NULL;
        const size_t used = strlen(text);
        const char *comma = used ? ", " : "";

        if (g->taken && !first)
                (void)snprintf(text + used, n - used,
                               "%sGPU %u has programs that were not submitted", comma, gpu);
        else if (second)
                (void)snprintf(text + used, n - used, "%sGPU %u has %s and %s", comma, gpu, first,
                               second);
        else if (first)
                (void)snprintf(text + used, n - used, "%sGPU %u has %s", comma, gpu, first);
        return first && !second && !g->taken;
}

static bool has_common_way(const struct queue *q, const struct queue_job *j,
                           const struct queue_gpu *g)
{
        const struct queue_job *there = queue_find(q, g->jobs[0] ? g->jobs[0] : g->jobs[1]);

        return there && queue_common_ways(j, there);
}

void submit_reason(const struct submission *m, char ret[static SUBMIT_SAID_MAX])
{
        const struct queue *q = m->all->queue;
        const struct queue_job *j = queue_find(q, m->id);
        char gpus[SUBMIT_SAID_MAX - 160] = "";
        const char *so = "";
        unsigned present = 0;
        bool open = false, common = false;

        if (!j)
                return;
        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++)
                if (queue_gpu(q, i)->present) {
                        present++;
                        if (!add_gpu(m, i, gpus, sizeof(gpus)))
                                continue;
                        open = true;
                        common |= has_common_way(q, j, queue_gpu(q, i));
                }
        if (j->reserved >= 0)
                so = "; it has waited long, and gets the next GPU alone";
        else if (open && !j->wish.measured)
                so = "; without a job file it runs alone";
        else if (open && !matcher_runs(m->all->matcher))
                so = "; nothing says which jobs go well together, so it waits for a GPU of its own";
        else if (open && !common)
                so = "; no job there can get a partner in a way that this one allows";
        else if (open)
                so = "; beside no job would both keep their bounds";
        if (present == 0)
                (void)snprintf(ret, SUBMIT_SAID_MAX, "place %u: no GPU is known here",
                               queue_place(q, j));
        else
                (void)snprintf(ret, SUBMIT_SAID_MAX, "place %u: %s%s", queue_place(q, j),
                               *gpus ? gpus : "a GPU is free, and is being given out", so);
}
