/* baseline.c: two simple rules to compare the scheduler with, on the same programs, card and bus.
 * Must never call the scheduler.
 *
 * First come, first served: a burst runs to its end. The next one in the queue begins as soon as it
 * fits beside those that run; none overtakes it. Its memory moves at the rate of the bus.
 *
 * Turns: one program at a time for 30 s, in a circle; it hands over when it is idle. A turn begins
 * with page faults, which bring in what other programs displaced. Evicting costs nothing while it
 * keeps up, and no turn waits for a kernel: both are in favour of turns. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "model.h"
#include "plan.h"

#define NEVER   UINT64_MAX
#define TURN_NS (30 * NSEC_PER_SEC)

enum state { AWAY, THINKING, WAITING, LOADING, RUNNING, GONE };

struct tenant {
        struct plan plan;
        struct model_client *out;
        enum state state;
        uint64_t at_ns;                     /* when AWAY, THINKING or LOADING ends */
        double left_ns;                     /* rest of the burst, alone on the card */
        uint64_t since_ns;                  /* WAITING, LOADING: since when it waits */
        uint64_t ticket;                    /* place in the queue */
        uint64_t used_ns;                   /* when it last ran */
        uint64_t memory, resident, evicted; /* the rest of memory has no contents yet */
};

struct baseline_model {
        const struct workload *w;
        enum baseline rule;
        struct model_result *result;
        struct tenant *tenants;
        unsigned n;
        uint64_t now_ns, in_free_ns, out_free_ns;
        uint64_t turn_ends_ns, tickets;
        unsigned contexts; /* of the programs that have come and not gone */
};

static bool admitted(const struct tenant *t)
{
        return t->state == LOADING || t->state == RUNNING;
}

/* ---- memory ---- */

/* Returns the bytes of the card besides the contexts. */
static uint64_t room(const struct baseline_model *m)
{
        return sub_sat(m->w->card, m->contexts * m->w->context);
}

/* The driver evicts by last use alone. First come, first served spares the next ones in the queue.
 */
static bool evicts_first(const struct baseline_model *m, const struct tenant *a,
                         const struct tenant *b)
{
        bool a_waits = a->state == WAITING, b_waits = b->state == WAITING;

        if (m->rule == BASELINE_FCFS && a_waits != b_waits)
                return b_waits;
        if (m->rule == BASELINE_FCFS && a_waits)
                return a->ticket > b->ticket;
        return a->used_ns < b->used_ns;
}

static struct tenant *next_victim(const struct baseline_model *m)
{
        struct tenant *first = NULL;

        for (unsigned i = 0; i < m->n; i++) {
                struct tenant *t = &m->tenants[i];

                if (!admitted(t) && t->resident && (!first || evicts_first(m, t, first)))
                        first = t;
        }
        return first;
}

/* Evicts until at most so many bytes are left on the card. Returns how many bytes it evicted. */
static uint64_t evict_down_to(struct baseline_model *m, uint64_t bytes_left)
{
        uint64_t resident = 0, evicted = 0;
        struct tenant *t;

        for (unsigned i = 0; i < m->n; i++)
                resident += m->tenants[i].resident;
        while (resident - evicted > bytes_left && (t = next_victim(m))) {
                uint64_t bytes = MIN(t->resident, resident - evicted - bytes_left);

                t->resident -= bytes;
                t->evicted += bytes;
                t->out->out_bytes += bytes;
                t->out->handoffs++;
                evicted += bytes;
        }
        return evicted;
}

static uint64_t copied_at(const struct baseline_model *m, uint64_t *free_ns, uint64_t bytes,
                          uint64_t rate)
{
        if (!bytes)
                return m->now_ns;
        *free_ns = MAX(*free_ns, m->now_ns) + (uint64_t)((double)bytes / (double)rate * 1e9);
        return *free_ns;
}

/* Gives t the card: makes all of its memory resident. */
static void admit(struct baseline_model *m, struct tenant *t)
{
        uint64_t rate = m->rule == BASELINE_TURNS ? m->w->fault_rate : m->w->in_rate;
        uint64_t out, out_ns;

        t->state = LOADING; /* so that it does not evict itself */
        out = evict_down_to(m, sub_sat(room(m), t->memory - t->resident));
        out_ns = copied_at(m, &m->out_free_ns, out, m->w->out_rate);
        t->at_ns = MAX(out_ns, copied_at(m, &m->in_free_ns, t->evicted, rate));
        t->out->in_bytes += t->evicted;
        t->resident = t->memory;
        t->evicted = 0;
}

static void set_memory(struct tenant *t, uint64_t bytes)
{
        uint64_t freed = sub_sat(t->memory, bytes);

        t->evicted -= MIN(t->evicted, freed); /* memory on the host is freed first */
        t->memory = bytes;
        t->resident = MIN(t->resident, bytes - t->evicted);
}

/* Page faults that take a whole turn would never let the program compute. */
static bool has_room(const struct baseline_model *m, const struct tenant *t)
{
        if (m->rule == BASELINE_TURNS && t->memory / (m->w->fault_rate / 1000000) >= TURN_NS / 1000)
                return false;
        return t->memory <= room(m);
}

/* ---- turns ---- */

static struct tenant *first_waiting(const struct baseline_model *m)
{
        struct tenant *first = NULL;

        for (unsigned i = 0; i < m->n; i++) {
                struct tenant *t = &m->tenants[i];

                if (t->state == WAITING && (!first || t->ticket < first->ticket))
                        first = t;
        }
        return first;
}

static bool may_begin(const struct baseline_model *m, const struct tenant *t)
{
        uint64_t bytes = t->memory;
        bool alone = true;

        for (unsigned i = 0; i < m->n; i++) {
                if (admitted(&m->tenants[i])) {
                        bytes += m->tenants[i].memory;
                        alone = false;
                }
        }
        return m->rule == BASELINE_TURNS ? alone : bytes <= room(m);
}

static void admit_all(struct baseline_model *m)
{
        struct tenant *t;

        while ((t = first_waiting(m)) && may_begin(m, t)) {
                m->turn_ends_ns = m->now_ns + TURN_NS;
                admit(m, t);
        }
}

static void queue(struct baseline_model *m, struct tenant *t)
{
        t->state = WAITING;
        t->at_ns = NEVER;
        t->since_ns = m->now_ns;
        t->ticket = ++m->tickets;
}

/* ---- phases ---- */

static void leave(struct baseline_model *m, struct tenant *t, bool refused)
{
        t->state = GONE;
        m->contexts--;
        t->at_ns = NEVER;
        t->memory = t->resident = t->evicted = 0;
        t->out->refused = refused;
        t->out->ended_ns = m->now_ns;
}

/* may_stay: the program has the card, and keeps it if it goes on computing. */
static void next_phase(struct baseline_model *m, struct tenant *t, bool may_stay)
{
        const struct phase *f;
        uint64_t ns;

        while ((f = plan_next(&t->plan, m->now_ns, &ns)) && f->kind == PHASE_MEMORY) {
                set_memory(t, f->bytes);
                if (!has_room(m, t)) {
                        leave(m, t, true);
                        return;
                }
        }
        if (!f) {
                leave(m, t, false);
        } else if (f->kind == PHASE_THINK) {
                t->state = THINKING;
                t->at_ns = m->now_ns + ns;
        } else {
                t->left_ns = (double)ns;
                result_wanted(t->out, m->now_ns, ns);
                queue(m, t);
                if (may_stay)
                        admit(m, t);
        }
}

static void arrive(struct baseline_model *m, struct tenant *t)
{
        bool fits = true;

        m->contexts++;
        t->out->arrived_ns = m->now_ns;
        t->memory = t->plan.job->memory;
        t->state = THINKING;                /* until its first phase */
        for (unsigned i = 0; i < m->n; i++) /* nobody else loses his room to its context */
                fits = fits && (m->tenants[i].state == AWAY || has_room(m, &m->tenants[i]));
        if (fits)
                next_phase(m, t, false);
        else
                leave(m, t, true);
}

static void begin_computing(struct baseline_model *m, struct tenant *t)
{
        t->state = RUNNING;
        t->at_ns = NEVER;
        result_waited(t->out, m->now_ns - t->since_ns);
        result_begun(t->out, m->now_ns);
}

/* ---- time ---- */

static double pace(const struct baseline_model *m)
{
        double demand = 0;

        for (unsigned i = 0; i < m->n; i++)
                if (m->tenants[i].state == RUNNING)
                        demand += m->tenants[i].plan.job->busy_permille / 1000.0;
        return demand > 1 ? 1 / demand : 1;
}

static bool turn_is_over(const struct baseline_model *m, const struct tenant *t)
{
        return m->rule == BASELINE_TURNS && t->state == RUNNING && m->now_ns >= m->turn_ends_ns &&
               first_waiting(m);
}

static uint64_t next_event(const struct baseline_model *m)
{
        uint64_t next = NEVER;
        double speed = pace(m);

        for (unsigned i = 0; i < m->n; i++) {
                const struct tenant *t = &m->tenants[i];

                next = MIN(next, t->at_ns);
                if (t->state != RUNNING)
                        continue;
                next = MIN(next, m->now_ns + (uint64_t)ceil(fmax(t->left_ns, 0) / speed));
                if (m->rule == BASELINE_TURNS && first_waiting(m))
                        next = MIN(next, MAX(m->now_ns, m->turn_ends_ns));
        }
        return next;
}

static void pass_time(struct baseline_model *m, uint64_t until_ns)
{
        uint64_t ns = until_ns - m->now_ns;
        double work = (double)ns * pace(m);
        bool runs = false, waits = false, moves = false;

        for (unsigned i = 0; i < m->n; i++) {
                struct tenant *t = &m->tenants[i];

                if (t->state == RUNNING) {
                        t->out->gpu_ns += (uint64_t)llround(fmin(work, t->left_ns));
                        t->left_ns = fmax(t->left_ns - work, 0);
                        runs = true;
                }
                waits = waits || t->state == WAITING || t->state == LOADING;
                moves = moves || t->state == LOADING;
        }
        m->result->busy_ns += runs ? ns : 0;
        m->result->lost_ns += !runs && waits ? ns : 0;
        m->result->wasted_ns += !runs && waits && !moves ? ns : 0;
        m->now_ns = until_ns;
}

static void happen(struct baseline_model *m, struct tenant *t)
{
        m->result->events++;
        if (t->state == RUNNING)
                t->used_ns = m->now_ns;
        if (t->state == AWAY) {
                arrive(m, t);
        } else if (t->state == THINKING) {
                next_phase(m, t, false);
        } else if (t->state == LOADING) {
                begin_computing(m, t);
        } else if (t->left_ns < 1) {
                result_ended(t->out, m->now_ns);
                next_phase(m, t, m->rule == BASELINE_TURNS);
        } else {
                queue(m, t); /* its turn is over */
        }
}

static bool step(struct baseline_model *m)
{
        uint64_t next = next_event(m);

        if (next == NEVER)
                return false;
        if (m->w->until_ns && next > m->w->until_ns) {
                pass_time(m, m->w->until_ns);
                return false;
        }
        pass_time(m, next);
        for (unsigned i = 0; i < m->n; i++) {
                struct tenant *t = &m->tenants[i];

                if (t->at_ns <= m->now_ns || (t->state == RUNNING && t->left_ns < 1) ||
                    turn_is_over(m, t))
                        happen(m, t);
        }
        admit_all(m);
        return true;
}

/* ---- making a model ---- */

static void finish(struct baseline_model *m)
{
        struct model_result *r = m->result;

        r->end_ns = m->now_ns;
        for (unsigned i = 0; i < m->n; i++) {
                r->handoffs += r->clients[i].handoffs;
                r->in_bytes += r->clients[i].in_bytes;
                r->out_bytes += r->clients[i].out_bytes;
        }
}

int baseline_run(const struct workload *w, enum baseline rule, struct model_result *ret)
{
        struct baseline_model m = {.w = w, .rule = rule, .result = ret, .n = w->clients};
        struct plan *plans = calloc(w->clients, sizeof(*plans));

        *ret = (struct model_result){.n_clients = w->clients,
                                     .system = rule == BASELINE_FCFS
                                                       ? "first come, first served"
                                                       : "exclusive turns of 30 s, page faults"};
        ret->clients = calloc(w->clients, sizeof(*ret->clients));
        m.tenants = calloc(w->clients, sizeof(*m.tenants));
        if (!plans || !ret->clients || !m.tenants) {
                free(plans);
                free(m.tenants);
                model_free(ret);
                return -ENOMEM;
        }
        plan_all(w, plans);
        for (unsigned i = 0; i < m.n; i++) {
                ret->clients[i].job = plans[i].job;
                m.tenants[i] = (struct tenant){
                        .plan = plans[i], .out = &ret->clients[i], .at_ns = plans[i].arrives_ns};
        }
        while (step(&m))
                ;
        finish(&m);
        free(plans);
        free(m.tenants);
        return 0;
}
