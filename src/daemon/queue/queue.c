/* queue.c: owns the jobs that were submitted and the choice of those that start. Must never start a
 * job twice, nor make a pair in which a job is predicted to miss its bound.
 * Why: docs/decisions.md, "A submitted job that starts alone runs outside of MPS". */
#include "daemon/queue/queue.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/macros.h"
#include "base/precondition.h"

#define SMOOTHING    0.2 /* weight of a new observation: about five seconds of them count */
#define RATIO_MEMORY 30u /* observations after which an old one fades */
#define RATIO_LEAST  0.1
#define RATIO_MOST   2.0

/* The mean of observed / predicted of one job beside another. Jobs are known by user and name, so
 * that a job that comes again is predicted better. */
struct known {
        uint64_t job, beside; /* beside 0: any */
        enum way way;
        double mean;
        unsigned n;
        uint64_t used; /* 0: the record is free */
};

struct queue {
        struct queue_job jobs[QUEUE_JOBS_MAX];
        struct queue_gpu gpus[QUEUE_GPUS_MAX];
        struct known known[QUEUE_KNOWN];
        uint64_t orders, uses;
        uint32_t ids;
        double host_bytes;
};

struct queue *queue_new(void)
{
        return calloc(1, sizeof(struct queue));
}

void queue_free(struct queue *q)
{
        free(q);
}

/* ---- looking ---- */

static struct queue_job *find(struct queue *q, uint32_t id)
{
        for (unsigned i = 0; id && i < QUEUE_JOBS_MAX; i++)
                if (q->jobs[i].id == id)
                        return &q->jobs[i];
        return NULL;
}

const struct queue_job *queue_find(const struct queue *q, uint32_t id)
{
        return find((struct queue *)q, id);
}

const struct queue_job *queue_next(const struct queue *q, const struct queue_job *after)
{
        const struct queue_job *next = NULL;

        for (const struct queue_job *j = q->jobs; j < q->jobs + QUEUE_JOBS_MAX; j++)
                if (j->id && (!after || j->order > after->order) &&
                    (!next || j->order < next->order))
                        next = j;
        return next;
}

const struct queue_gpu *queue_gpu(const struct queue *q, unsigned gpu)
{
        return &q->gpus[gpu];
}

static bool waits(const struct queue_job *j)
{
        return j->id && j->gpu < 0;
}

static unsigned waiting(const struct queue *q)
{
        unsigned n = 0;

        for (unsigned i = 0; i < QUEUE_JOBS_MAX; i++)
                n += waits(&q->jobs[i]);
        return n;
}

unsigned queue_place(const struct queue *q, const struct queue_job *job)
{
        unsigned place = 1;

        for (unsigned i = 0; i < QUEUE_JOBS_MAX; i++)
                place += waits(&q->jobs[i]) && q->jobs[i].order < job->order;
        return place;
}

static bool is_old(const struct queue_job *j, uint64_t now_ns)
{
        return waits(j) && now_ns - j->came_ns >= QUEUE_OLD_NS;
}

/* Returns the waiting job that keeps this GPU closed, or NULL. */
static struct queue_job *keeper(const struct queue *q, unsigned gpu)
{
        for (unsigned i = 0; i < QUEUE_JOBS_MAX; i++)
                if (waits(&q->jobs[i]) && q->jobs[i].reserved == (int)gpu)
                        return (struct queue_job *)&q->jobs[i];
        return NULL;
}

static bool is_free(const struct queue_gpu *g)
{
        return g->present && !g->taken && !g->jobs[0] && !g->jobs[1];
}

/* Returns the job that is alone on this GPU, or 0. */
static uint32_t single(const struct queue_gpu *g)
{
        return g->jobs[0] && g->jobs[1] ? 0 : g->jobs[0] | g->jobs[1];
}

unsigned queue_free_gpus(const struct queue *q)
{
        unsigned n = 0;

        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++)
                n += is_free(&q->gpus[i]) && !keeper(q, i);
        return n;
}

unsigned queue_ways(const struct queue_job *job)
{
        if (job->gpu < 0)
                return job->wish.ways;
        return job->wish.ways & (job->shared ? 1u << WAY_SHARED : ~(1u << WAY_SHARED));
}

unsigned queue_common_ways(const struct queue_job *a, const struct queue_job *b)
{
        const unsigned ways = queue_ways(a) & queue_ways(b);

        return a->wish.user == b->wish.user ? ways : ways & ~(1u << WAY_SHARED);
}

bool queue_is_open(const struct queue *q, const struct queue_job *job)
{
        const struct queue_gpu *g;

        if (!job->id || job->gpu < 0 || !job->wish.measured)
                return false;
        g = &q->gpus[job->gpu];
        return g->present && !g->taken && single(g) == job->id && !keeper(q, (unsigned)job->gpu);
}

double queue_host_left(const struct queue *q)
{
        double left = q->host_bytes;

        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++)
                if (q->gpus[i].jobs[0] && q->gpus[i].jobs[1])
                        left -= q->gpus[i].host_bytes;
        return MAX(left, 0.0);
}

/* ---- what was learned ---- */

uint64_t queue_key(const struct queue_job *j)
{
        return hash_add(hash_add(HASH_BASIS, &j->wish.user, sizeof(j->wish.user)), j->wish.name,
                        strlen(j->wish.name));
}

static struct known *known(const struct queue *q, uint64_t job, uint64_t beside, enum way way)
{
        for (unsigned i = 0; i < QUEUE_KNOWN; i++) {
                const struct known *k = &q->known[i];

                if (k->used && k->job == job && k->beside == beside && k->way == way)
                        return (struct known *)k;
        }
        return NULL;
}

double queue_ratio(const struct queue *q, const struct queue_job *a, const struct queue_job *b,
                   enum way way)
{
        const struct known *k = known(q, queue_key(a), queue_key(b), way);

        if (!k)
                k = known(q, queue_key(a), 0, way);
        return k ? k->mean : 1;
}

bool queue_known(const struct queue *q, unsigned i, struct queue_ratio_row *ret)
{
        const struct known *k = &q->known[i];

        *ret = (struct queue_ratio_row){k->job, k->beside, k->way, k->mean};
        return k->used > 0;
}

/* Adds an observation. In a full table it replaces the entry that was observed longest ago. */
static void learn(struct queue *q, uint64_t job, uint64_t beside, enum way way, double ratio)
{
        struct known *k = known(q, job, beside, way);

        if (!k) {
                k = q->known;
                for (unsigned i = 0; i < QUEUE_KNOWN; i++)
                        if (q->known[i].used < k->used)
                                k = &q->known[i];
                *k = (struct known){.job = job, .beside = beside, .way = way};
        }
        k->used = ++q->uses;
        k->n = MIN(k->n + 1, RATIO_MEMORY);
        k->mean += (ratio - k->mean) / k->n;
}

/* ---- coming and going ---- */

void queue_gpu_set(struct queue *q, unsigned gpu, bool present, bool taken)
{
        PRECONDITION(gpu < QUEUE_GPUS_MAX, );
        q->gpus[gpu].present = present;
        q->gpus[gpu].taken = taken;
}

void queue_host_set(struct queue *q, double bytes)
{
        q->host_bytes = bytes;
}

int queue_come(struct queue *q, const struct queue_wish *wish, uint64_t now_ns, uint32_t *ret_id)
{
        struct queue_job *free_one = NULL;
        unsigned of_user = 0;

        for (struct queue_job *j = q->jobs; j < q->jobs + QUEUE_JOBS_MAX; j++) {
                of_user += j->id && j->wish.user == wish->user;
                if (!j->id && !free_one)
                        free_one = j;
        }
        if (of_user >= QUEUE_OF_USER)
                return -EUSERS;
        if (!free_one)
                return -ENOSPC;
        do {
                q->ids++;
        } while (q->ids == 0 || find(q, q->ids));
        *free_one = (struct queue_job){
                .id = q->ids,
                .wish = *wish,
                .came_ns = now_ns,
                .order = ++q->orders,
                .gpu = -1,
                .reserved = -1,
                .predicted = 1,
                .model = 1,
                .observed = NAN,
        };
        *ret_id = q->ids;
        return 0;
}

static void be_alone(struct queue_gpu *g, struct queue_job *j)
{
        j->predicted = j->model = j->shared ? NAN : 1;
        j->observed = NAN;
        j->below_ns = 0;
        g->way = j->shared ? WAY_SHARED : WAY_SLICED;
}

static void place(struct queue *q, struct queue_job *j, unsigned gpu, uint64_t now_ns)
{
        struct queue_gpu *g = &q->gpus[gpu];

        g->jobs[g->jobs[0] ? 1 : 0] = j->id;
        j->gpu = (int)gpu;
        j->reserved = -1;
        j->began_ns = now_ns;
        g->placed_ns = now_ns;
        g->turns = QUEUE_AS_STARTED;
        g->host_bytes = 0;
}

int queue_return(struct queue *q, const struct queue_wish *wish, unsigned gpu, enum way way,
                 uint64_t now_ns, uint32_t *ret_id)
{
        struct queue_job *j;
        struct queue_gpu *g;
        uint32_t id;
        int r;

        PRECONDITION(gpu < QUEUE_GPUS_MAX, -EINVAL);
        if (gpu >= QUEUE_GPUS_MAX || !q->gpus[gpu].present)
                return -ENODEV;
        g = &q->gpus[gpu];
        if (g->jobs[0] && g->jobs[1])
                return -EBUSY;
        r = queue_come(q, wish, now_ns, &id);
        if (r < 0)
                return r;
        j = find(q, id);
        place(q, j, gpu, now_ns);
        j->shared = way == WAY_SHARED;
        if (g->jobs[0] && g->jobs[1]) {
                for (unsigned k = 0; k < 2; k++)
                        find(q, g->jobs[k])->predicted = find(q, g->jobs[k])->model = NAN;
                g->way = way;
        } else {
                be_alone(g, j);
        }
        *ret_id = id;
        return 0;
}

void queue_leave(struct queue *q, uint32_t id)
{
        struct queue_job *j = find(q, id), *other;
        struct queue_gpu *g;

        if (!j)
                return;
        if (j->gpu >= 0) {
                g = &q->gpus[j->gpu];
                g->jobs[g->jobs[0] == id ? 0 : 1] = 0;
                other = find(q, single(g));
                if (other)
                        be_alone(g, other);
                g->turns = QUEUE_AS_STARTED;
                g->host_bytes = 0;
        }
        *j = (struct queue_job){0};
}

void queue_unmeasured(struct queue *q, uint32_t id)
{
        struct queue_job *j = find(q, id);

        if (j)
                j->wish.measured = false;
}

void queue_observe(struct queue *q, uint32_t id, double progress, uint64_t now_ns)
{
        struct queue_job *j = find(q, id);

        if (!j || j->gpu < 0 || !isfinite(progress) || progress < 0)
                return;
        progress = MIN(progress, RATIO_MOST);
        if (isnan(j->observed) || now_ns - j->observed_ns > QUEUE_STALE_NS)
                j->observed = progress;
        else
                j->observed += (progress - j->observed) * SMOOTHING;
        j->observed_ns = now_ns;
}

/* ---- starting ---- */

/* Closes a GPU for newcomers, and keeps it for this old job. It is the GPU with fewest jobs; of
 * equal ones, the one where a job started longest ago. */
static void reserve(struct queue *q, struct queue_job *j)
{
        unsigned best_jobs = 3;
        uint64_t best_ns = 0;

        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++) {
                const struct queue_gpu *g = &q->gpus[i];
                const unsigned jobs = !!g->jobs[0] + !!g->jobs[1];

                if (!g->present || g->taken || keeper(q, i))
                        continue;
                if (jobs > best_jobs || (jobs == best_jobs && g->placed_ns >= best_ns))
                        continue;
                j->reserved = (int)i;
                best_jobs = jobs;
                best_ns = g->placed_ns;
        }
}

static struct queue_job *next_waiting(struct queue *q, const struct queue_job *after)
{
        const struct queue_job *j = after;

        do {
                j = queue_next(q, j);
        } while (j && !waits(j));
        return (struct queue_job *)j;
}

static void reserve_for_old(struct queue *q, uint64_t now_ns)
{
        for (struct queue_job *j = NULL; (j = next_waiting(q, j));)
                if (is_old(j, now_ns) && (j->reserved < 0 || !q->gpus[j->reserved].present ||
                                          q->gpus[j->reserved].taken)) {
                        j->reserved = -1;
                        reserve(q, j);
                }
}

static struct queue_start start_alone(struct queue *q, struct queue_job *j, unsigned gpu,
                                      uint64_t now_ns)
{
        struct queue_gpu *g = &q->gpus[gpu];

        place(q, j, gpu, now_ns);
        j->shared = j->wish.ways == 1u << WAY_SHARED && j->wish.measured;
        be_alone(g, j);
        return (struct queue_start){j->id, 0, gpu, g->way, j->predicted};
}

static int any_free(const struct queue *q)
{
        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++)
                if (is_free(&q->gpus[i]) && !keeper(q, i))
                        return (int)i;
        return -1;
}

static double corrected(const struct queue *q, const struct queue_offer *o,
                        const struct queue_job *job, const struct queue_job *beside, unsigned k)
{
        const double p = o->progress[k] * queue_ratio(q, job, beside, o->way);

        return p > 1 ? 1 : p /* also if it is no number */;
}

/* True if the pair is allowed, whoever proposes it. */
static bool keeps_rules(const struct queue *q, const struct queue_offer *o,
                        const struct queue_job *a, const struct queue_job *b)
{
        if (!a || !b || a == b || !waits(a) || !a->wish.measured || !b->wish.measured)
                return false;
        if (o->way >= WAYS || !(queue_common_ways(a, b) & 1u << o->way))
                return false;
        if (!(corrected(q, o, a, b, 0) >= a->wish.bound) ||
            !(corrected(q, o, b, a, 1) >= b->wish.bound))
                return false;
        if (!(o->host_bytes >= 0) || o->host_bytes > queue_host_left(q))
                return false;
        return waits(b) ? any_free(q) >= 0 : queue_is_open(q, b);
}

static unsigned start_pair(struct queue *q, const struct queue_offer *o, struct queue_job *a,
                           struct queue_job *b, uint64_t now_ns, struct queue_start *ret)
{
        const bool both = waits(b);
        const unsigned gpu = both ? (unsigned)any_free(q) : (unsigned)b->gpu;
        struct queue_gpu *g = &q->gpus[gpu];
        unsigned n = 0;

        if (both) {
                place(q, b, gpu, now_ns);
                b->shared = o->way == WAY_SHARED;
        }
        place(q, a, gpu, now_ns);
        a->shared = o->way == WAY_SHARED;
        a->model = o->progress[0];
        b->model = o->progress[1];
        a->predicted = corrected(q, o, a, b, 0);
        b->predicted = corrected(q, o, b, a, 1);
        b->observed = NAN;
        b->below_ns = 0;
        g->way = o->way;
        g->host_bytes = o->host_bytes;
        ret[n++] = (struct queue_start){a->id, b->id, gpu, o->way, a->predicted};
        if (both)
                ret[n++] = (struct queue_start){b->id, a->id, gpu, o->way, b->predicted};
        return n;
}

bool queue_wants_offers(const struct queue *q)
{
        const unsigned n = waiting(q), room = queue_free_gpus(q);
        unsigned measured = 0, open = 0;

        for (unsigned i = 0; i < QUEUE_JOBS_MAX; i++) {
                measured += waits(&q->jobs[i]) && q->jobs[i].wish.measured;
                open += queue_is_open(q, &q->jobs[i]);
        }
        return n > room && measured > 0 && (open > 0 || (room > 0 && measured > 1));
}

unsigned queue_decide(struct queue *q, const struct queue_offer *offers, unsigned n,
                      bool offers_follow, uint64_t now_ns, struct queue_start *ret)
{
        unsigned started = 0;
        int gpu;

        reserve_for_old(q, now_ns);
        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++) {
                struct queue_job *j = is_free(&q->gpus[i]) ? keeper(q, i) : NULL;

                if (j)
                        ret[started++] = start_alone(q, j, i, now_ns);
        }
        for (unsigned i = 0; i < n; i++) {
                struct queue_job *a = find(q, offers[i].a), *b = find(q, offers[i].b);

                if (keeps_rules(q, &offers[i], a, b))
                        started += start_pair(q, &offers[i], a, b, now_ns, &ret[started]);
        }
        if (offers_follow && waiting(q) > queue_free_gpus(q))
                return started;
        for (struct queue_job *j = NULL; (gpu = any_free(q)) >= 0 && (j = next_waiting(q, j));)
                ret[started++] = start_alone(q, j, (unsigned)gpu, now_ns);
        return started;
}

/* ---- running ---- */

static bool is_fresh(const struct queue_job *j, uint64_t now_ns)
{
        return !isnan(j->observed) && now_ns - j->observed_ns <= QUEUE_STALE_NS;
}

static double of_bound(const struct queue_job *j)
{
        return j->observed / j->wish.bound;
}

static void compare(struct queue *q, const struct queue_job *a, const struct queue_job *b,
                    enum way way, uint64_t now_ns)
{
        double ratio;

        if (!is_fresh(a, now_ns) || !(a->model > 0))
                return;
        ratio = MIN(MAX(a->observed / a->model, RATIO_LEAST), RATIO_MOST);
        learn(q, queue_key(a), queue_key(b), way, ratio);
        learn(q, queue_key(a), 0, way, ratio);
}

static void watch_bound(struct queue_job *j, uint64_t now_ns)
{
        if (!is_fresh(j, now_ns) || j->observed >= j->wish.bound)
                j->below_ns = 0;
        else if (!j->below_ns)
                j->below_ns = now_ns;
}

static bool has_missed(const struct queue_job *j, uint64_t now_ns)
{
        return j->below_ns && now_ns - j->below_ns >= QUEUE_BELOW_NS;
}

/* Returns whether the pair goes over to turns, or back. */
static bool judge(struct queue *q, struct queue_gpu *g, uint64_t now_ns)
{
        struct queue_job *a = find(q, g->jobs[0]), *b = find(q, g->jobs[1]);
        double now;

        watch_bound(a, now_ns);
        watch_bound(b, now_ns);
        if (g->turns == QUEUE_AS_STARTED && now_ns - g->placed_ns >= QUEUE_WARM_NS) {
                compare(q, a, b, g->way, now_ns);
                compare(q, b, a, g->way, now_ns);
        }
        if (g->way == WAY_TURNS || !is_fresh(a, now_ns) || !is_fresh(b, now_ns))
                return false;
        now = MIN(of_bound(a), of_bound(b));
        if (g->turns == QUEUE_AS_STARTED && (has_missed(a, now_ns) || has_missed(b, now_ns))) {
                g->turns = QUEUE_TRIES_TURNS;
                g->turned_ns = now_ns;
                g->before = now;
                return true;
        }
        if (g->turns == QUEUE_TRIES_TURNS && now_ns - g->turned_ns >= QUEUE_TRIAL_NS &&
            now < g->before) {
                g->turns = QUEUE_KEEPS;
                return true;
        }
        return false;
}

unsigned queue_tick(struct queue *q, uint64_t now_ns, struct queue_turn ret[QUEUE_GPUS_MAX])
{
        unsigned n = 0;

        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++) {
                struct queue_gpu *g = &q->gpus[i];

                if (g->jobs[0] && g->jobs[1] && judge(q, g, now_ns))
                        ret[n++] = (struct queue_turn){i, g->turns == QUEUE_TRIES_TURNS};
        }
        return n;
}

bool queue_takes_turns(const struct queue *q, unsigned gpu)
{
        const struct queue_gpu *g = &q->gpus[gpu];

        PRECONDITION(gpu < QUEUE_GPUS_MAX, false);
        return g->jobs[0] && g->jobs[1] && (g->way == WAY_TURNS || g->turns == QUEUE_TRIES_TURNS);
}

/* ---- for tests ---- */

const char *queue_check(const struct queue *q)
{
        for (unsigned i = 0; i < QUEUE_JOBS_MAX; i++) {
                const struct queue_job *j = &q->jobs[i];
                unsigned seen = 0;

                for (unsigned g = 0; j->id && g < QUEUE_GPUS_MAX; g++)
                        seen += (q->gpus[g].jobs[0] == j->id) + (q->gpus[g].jobs[1] == j->id);
                if (j->id && seen != (j->gpu >= 0))
                        return "a job is on another number of GPUs than it says";
        }
        for (unsigned i = 0; i < QUEUE_GPUS_MAX; i++) {
                const struct queue_gpu *g = &q->gpus[i];

                for (unsigned k = 0; k < 2; k++) {
                        const struct queue_job *j = queue_find(q, g->jobs[k]);

                        if (!g->jobs[k])
                                continue;
                        if (!j || j->gpu != (int)i)
                                return "a GPU has a job that is not there";
                        if (j->shared != (g->way == WAY_SHARED))
                                return "a job is under MPS on a GPU whose way is another";
                        if (!isnan(j->predicted) && j->predicted < j->wish.bound)
                                return "a job is predicted to miss its bound";
                }
        }
        return NULL;
}
