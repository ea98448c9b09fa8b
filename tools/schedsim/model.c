/* model.c: owns simulated time: each program's next step, and the use of the bus. Must never decide
 * which program runs or gives way: the scheduler alone decides, and only through sched.h. */
#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "plan.h"

#define NEVER UINT64_MAX

enum what { NOTHING, ARRIVE, THOUGHT, DRAIN, MOVE };

/* One simulated program. */
struct program {
        struct model_client *out;
        struct plan plan;
        sched_client id;
        bool here, leaving;

        bool working;     /* in a GPU phase */
        bool active;      /* computing now: in model.active */
        uint64_t left_ns; /* rest of the GPU phase, while the program does not compute */
        double end_at;    /* value of model.progress at its end, while the program computes */
        uint64_t waits_since_ns;
        bool waits;

        uint64_t lease;
        bool draining, idle;

        uint64_t allocated, backed, evicted; /* evicted: bytes whose contents are in host memory */
        uint64_t commit, limit, commit_asked;
        uint32_t sequence, request_sequence;
        bool has_context;

        bool moving, moving_out;
        uint64_t move_bytes;

        /* times of the program's next events, besides the end of a GPU phase */
        uint64_t due_ns[MOVE + 1];
        unsigned place; /* index in the heap */
};

struct model {
        const struct workload *w;
        struct sched *s;
        struct model_result *result;
        bool check;
        uint64_t now_ns;
        struct program *programs;
        unsigned n;
        unsigned *by_slot; /* the program of each client of the scheduler */

        unsigned *heap, n_heap; /* heap: programs, by their earliest due_ns */
        unsigned *active, n_active;
        unsigned n_waiting, n_moving;
        double progress,      /* of each active program, in ns of GPU time */
                demand;       /* sum of the active programs' shares of the GPU */
        uint64_t progress_ns; /* when progress was last updated */

        uint64_t in_free_ns, out_free_ns; /* when each direction of the bus is free again */

        /* Actions of the scheduler to be performed; performing them may add more. */
        struct sched_action *todo;
        unsigned n_todo, size_todo;
};

/* ---- due times ---- */

static uint64_t due(const struct program *p)
{
        uint64_t first = NEVER;

        for (unsigned i = ARRIVE; i <= MOVE; i++)
                first = MIN(first, p->due_ns[i]);
        return first;
}

static bool heap_before(const struct model *m, unsigned a, unsigned b)
{
        return due(&m->programs[m->heap[a]]) < due(&m->programs[m->heap[b]]);
}

static void heap_swap(struct model *m, unsigned a, unsigned b)
{
        unsigned tmp = m->heap[a];

        m->heap[a] = m->heap[b];
        m->heap[b] = tmp;
        m->programs[m->heap[a]].place = a;
        m->programs[m->heap[b]].place = b;
}

/* Restores the heap after a change of p's due times. */
static void heap_move(struct model *m, const struct program *p)
{
        unsigned i = p->place;

        while (i && heap_before(m, i, (i - 1) / 2)) {
                heap_swap(m, i, (i - 1) / 2);
                i = (i - 1) / 2;
        }
        for (;;) {
                unsigned first = i, l = 2 * i + 1, r = l + 1;

                if (l < m->n_heap && heap_before(m, l, first))
                        first = l;
                if (r < m->n_heap && heap_before(m, r, first))
                        first = r;
                if (first == i)
                        return;
                heap_swap(m, i, first);
                i = first;
        }
}

static void set_due(struct model *m, struct program *p, enum what what, uint64_t ns)
{
        p->due_ns[what] = ns;
        heap_move(m, p);
}

/* ---- computing: programs progress alike, and more slowly if they need more than the GPU ---- */

static double pace(const struct model *m)
{
        return m->demand > 1 ? 1 / m->demand : 1;
}

static void bring_up_to_date(struct model *m)
{
        uint64_t ns = m->now_ns - m->progress_ns;

        if (m->n_active) {
                m->progress += (double)ns * pace(m);
                m->result->busy_ns += ns;
        } else if (m->n_waiting) {
                m->result->lost_ns += ns;
                m->result->wasted_ns += m->n_moving ? 0 : ns;
        }
        m->progress_ns = m->now_ns;
}

static void count_demand(struct model *m)
{
        m->demand = 0;
        for (unsigned i = 0; i < m->n_active; i++)
                m->demand += m->programs[m->active[i]].out->job->busy_permille / 1000.0;
}

static void start_computing(struct model *m, struct program *p)
{
        bring_up_to_date(m);
        p->active = true;
        p->end_at = m->progress + (double)p->left_ns;
        m->active[m->n_active++] = (unsigned)(p - m->programs);
        count_demand(m);
}

static void stop_computing(struct model *m, struct program *p)
{
        unsigned i = 0;
        uint64_t left;

        if (!p->active)
                return;
        bring_up_to_date(m);
        p->active = false;
        left = p->end_at > m->progress ? (uint64_t)(p->end_at - m->progress) : 0;
        p->out->gpu_ns += p->left_ns - MIN(left, p->left_ns);
        p->left_ns = MIN(left, p->left_ns);
        while (&m->programs[m->active[i]] != p)
                i++;
        m->active[i] = m->active[--m->n_active];
        count_demand(m);
}

/* Returns when the next GPU phase ends, and in *ret_p whose phase it is. */
static uint64_t next_end(const struct model *m, struct program **ret_p)
{
        struct program *first = NULL;

        for (unsigned i = 0; i < m->n_active; i++) {
                struct program *p = &m->programs[m->active[i]];

                if (!first || p->end_at < first->end_at)
                        first = p;
        }
        *ret_p = first;
        if (!first)
                return NEVER;
        if (first->end_at <= m->progress)
                return MAX(m->progress_ns, m->now_ns);
        return m->progress_ns + (uint64_t)ceil((first->end_at - m->progress) / pace(m));
}

/* ---- messages to the scheduler ---- */

static void take_actions(struct model *m, struct sched_actions *out)
{
        for (;;) {
                if (m->n_todo + out->n > m->size_todo) {
                        m->size_todo = 2 * m->size_todo + out->n;
                        m->todo = reallocarray(m->todo, m->size_todo, sizeof(*m->todo));
                        if (!m->todo)
                                abort();
                }
                memcpy(m->todo + m->n_todo, out->list, out->n * sizeof(*m->todo));
                m->n_todo += out->n;
                m->result->events++;
                if (m->check && !m->result->broken)
                        m->result->broken = sched_check(m->s, m->now_ns);
                out->n = 0;
                if (!out->more)
                        return;
                sched_pump(m->s, m->now_ns, out);
        }
}

/* Returns an empty list. It is static, because it is large and only one is used at a time. */
static struct sched_actions *no_actions(void)
{
        static struct sched_actions out;

        out.n = 0;
        out.more = false;
        return &out;
}

static struct sched_usage usage_of(const struct model *m, const struct program *p)
{
        return (struct sched_usage){.allocated = p->allocated,
                                    .backed = p->backed,
                                    .unevictable = p->has_context ? m->w->context : 0,
                                    .moved_in = p->out->in_bytes,
                                    .moved_out = p->out->out_bytes};
}

static void tell_usage(struct model *m, struct program *p)
{
        struct sched_actions *out = no_actions();
        const struct sched_usage u = usage_of(m, p);

        (void)sched_client_usage(m->s, p->id, 0, &u, p->sequence, 0, m->now_ns, out);
        take_actions(m, out);
}

static void tell_request(struct model *m, struct program *p, uint64_t commit)
{
        struct sched_actions *out = no_actions();
        const struct sched_request request = {
                .commit = commit,
                .run = p->working && (!p->lease || p->allocated > p->limit) && !p->draining,
                .need = p->allocated,
                .sequence = ++p->request_sequence,
        };

        (void)sched_client_request(m->s, p->id, 0, &request, m->now_ns, out);
        take_actions(m, out);
}

static void tell_idle(struct model *m, struct program *p, bool idle)
{
        struct sched_actions *out = no_actions();

        p->idle = idle;
        (void)sched_client_idle(m->s, p->id, p->lease, idle, m->now_ns, out);
        take_actions(m, out);
}

static void tell_drained(struct model *m, struct program *p)
{
        struct sched_actions *out = no_actions();
        uint64_t lease = p->lease;

        p->draining = p->idle = false;
        p->lease = 0;
        p->out->handoffs++;
        (void)sched_client_drained(m->s, p->id, lease, m->now_ns, out);
        take_actions(m, out);
}

/* ---- waiting ---- */

static void begin_wait(struct model *m, struct program *p)
{
        if (!p->waits) {
                bring_up_to_date(m);
                m->n_waiting++;
                p->waits = true;
                p->waits_since_ns = m->now_ns;
        }
}

static void end_wait(struct model *m, struct program *p)
{
        if (!p->waits)
                return;
        bring_up_to_date(m);
        m->n_waiting--;
        p->waits = false;
        result_waited(p->out, m->now_ns - p->waits_since_ns);
}

/* ---- memory ---- */

static void start_moving(struct model *m, struct program *p, bool outwards, uint64_t bytes)
{
        uint64_t *free_ns = outwards ? &m->out_free_ns : &m->in_free_ns;
        uint64_t rate = outwards ? m->w->out_rate : m->w->in_rate;

        bring_up_to_date(m);
        m->n_moving++;
        p->moving = true;
        p->moving_out = outwards;
        p->move_bytes = bytes;
        *free_ns = MAX(*free_ns, m->now_ns) + (uint64_t)((double)bytes / (double)rate * 1e9) + 1;
        set_due(m, p, MOVE, *free_ns);
}

static void go_on(struct model *m, struct program *p);

static void moved(struct model *m, struct program *p)
{
        bring_up_to_date(m);
        m->n_moving--;
        p->moving = false;
        p->due_ns[MOVE] = NEVER;
        heap_move(m, p);
        if (p->moving_out) {
                p->backed -= p->move_bytes;
                p->evicted += p->move_bytes;
                p->out->out_bytes += p->move_bytes;
        } else {
                p->backed += p->move_bytes;
                p->evicted -= p->move_bytes;
                p->out->in_bytes += p->move_bytes;
        }
        tell_usage(m, p);
        go_on(m, p);
}

/* Backs memory that was never evicted: it needs no copy, so it is backed at once. */
static bool back_fresh(struct program *p)
{
        uint64_t fresh = p->allocated - p->backed - p->evicted;
        uint64_t bytes = MIN(fresh, sub_sat(p->limit, p->backed + p->evicted));

        p->backed += bytes;
        return bytes != 0;
}

/* Does for p what is possible now: backs memory, moves memory, computes. */
static void go_on(struct model *m, struct program *p)
{
        uint64_t bytes;

        if (!p->here || p->leaving || p->moving)
                return;
        if (!p->draining && p->backed <= p->limit && back_fresh(p))
                tell_usage(m, p);
        if (!p->lease && p->backed > p->limit) {
                start_moving(m, p, true, MIN(p->backed, m->w->extent));
                return;
        }
        bytes = MIN(p->evicted, m->w->extent);
        if (bytes && !p->draining && p->backed + bytes <= p->limit) {
                start_moving(m, p, false, bytes);
                return;
        }
        if (p->working && p->lease && !p->draining && !p->active && p->backed == p->allocated) {
                end_wait(m, p);
                result_begun(p->out, m->now_ns);
                start_computing(m, p);
        }
}

/* ---- phases ---- */

static void leave(struct model *m, struct program *p)
{
        struct sched_actions *out = no_actions();
        struct sched_account_view v;

        stop_computing(m, p);
        bring_up_to_date(m);
        p->leaving = true;
        m->n_waiting -= p->waits;
        m->n_moving -= p->moving;
        p->waits = p->moving = false;
        for (unsigned i = ARRIVE; i <= MOVE; i++)
                p->due_ns[i] = NEVER;
        heap_move(m, p);
        p->out->ended_ns = m->now_ns;
        if (sched_account_view(m->s, p->id, 0, &v) == 0)
                p->out->paid_ns = v.paid_ns;
        sched_client_gone(m->s, p->id, m->now_ns, out);
        p->here = false;
        take_actions(m, out);
}

static void next_phase(struct model *m, struct program *p);

static void set_memory(struct model *m, struct program *p, uint64_t bytes)
{
        uint64_t freed;

        if (bytes <= p->allocated) {
                /* Memory on the host is freed first. */
                freed = p->allocated - bytes;
                p->evicted -= MIN(p->evicted, freed);
                p->allocated = bytes;
                p->backed = MIN(p->backed, bytes - p->evicted);
                tell_usage(m, p);
                next_phase(m, p);
        } else if (bytes <= p->commit) {
                p->allocated = bytes;
                tell_usage(m, p);
                next_phase(m, p);
        } else {
                p->commit_asked = bytes;
                tell_request(m, p, bytes);
        }
}

static void next_phase(struct model *m, struct program *p)
{
        uint64_t ns;
        const struct phase *f = plan_next(&p->plan, m->now_ns, &ns);

        if (!f) {
                leave(m, p);
                return;
        }
        switch (f->kind) {
        case PHASE_THINK:
                if (p->lease && !p->draining)
                        tell_idle(m, p, true);
                set_due(m, p, THOUGHT, m->now_ns + ns);
                break;
        case PHASE_MEMORY:
                set_memory(m, p, f->bytes);
                break;
        case PHASE_GPU:
                p->working = true;
                p->left_ns = ns;
                result_wanted(p->out, m->now_ns, ns);
                if (!p->lease || p->idle || p->draining) /* otherwise it goes on without asking */
                        begin_wait(m, p);
                if (p->lease && p->idle && !p->draining)
                        tell_idle(m, p, false);
                if (!p->lease || p->allocated > p->limit)
                        tell_request(m, p, 0);
                go_on(m, p);
                break;
        }
}

static void end_gpu_phase(struct model *m, struct program *p)
{
        stop_computing(m, p);
        p->out->gpu_ns += p->left_ns; /* the rest that rounding left */
        p->left_ns = 0;
        p->working = false;
        result_ended(p->out, m->now_ns);
        next_phase(m, p);
}

static void arrive(struct model *m, struct program *p)
{
        struct sched_actions *out = no_actions();
        const struct sched_attach a = {.unevictable_requested = m->w->context,
                                       .sequence = ++p->request_sequence};
        const struct sched_origin origin = {.uid = p->out->job->uid,
                                            .class_number = p->out->job->class_number,
                                            .share = p->out->job->share};

        set_due(m, p, ARRIVE, NEVER);
        p->out->arrived_ns = m->now_ns;
        if (sched_client_add(m->s, origin, p->out->job->priority, m->now_ns, &p->id) < 0)
                abort(); /* impossible: the scheduler takes as many clients as there are programs */
        p->here = true;
        m->by_slot[(uint32_t)p->id] = (unsigned)(p - m->programs);
        (void)sched_client_attach(m->s, p->id, 0, &a, m->now_ns, out);
        take_actions(m, out);
}

/* Starts a program once it has its context: allocates its memory and begins its first phase. */
static void begin(struct model *m, struct program *p)
{
        p->has_context = true;
        if (p->out->job->memory) {
                set_memory(m, p, p->out->job->memory);
        } else {
                next_phase(m, p);
        }
}

/* ---- actions of the scheduler ---- */

static void on_limit(struct model *m, struct program *p, const struct sched_action *a)
{
        p->sequence = a->limit.sequence;
        p->limit = a->limit.backed;
        p->commit = a->limit.commit;
        tell_usage(m, p);
        if (!p->has_context && a->limit.unevictable >= m->w->context) {
                begin(m, p);
        } else if (p->commit_asked && p->commit >= p->commit_asked) {
                p->allocated = p->commit_asked;
                p->commit_asked = 0;
                (void)back_fresh(p);
                tell_usage(m, p);
                next_phase(m, p);
        } else {
                go_on(m, p);
        }
}

static void on_revoke(struct model *m, struct program *p, const struct sched_action *a)
{
        uint64_t kernel = p->out->job->kernel_ns;

        if (a->lease.lease != p->lease)
                return;
        p->draining = true;
        if (!p->active)
                kernel = 0;
        set_due(m, p, DRAIN,
                m->now_ns + (uint64_t)((double)kernel * plan_uniform(&p->plan.drains)));
}

static void drained(struct model *m, struct program *p)
{
        set_due(m, p, DRAIN, NEVER);
        if (!p->draining)
                return;
        stop_computing(m, p);
        tell_drained(m, p);
        if (p->working) {
                begin_wait(m, p);
                tell_request(m, p, 0);
        }
        go_on(m, p);
}

static void perform(struct model *m, const struct sched_action *a)
{
        struct program *p = &m->programs[m->by_slot[(uint32_t)a->client]];

        if (!p->here || p->id != a->client || p->leaving)
                return;
        switch (a->type) {
        case SCHED_DO_LIMIT:
                on_limit(m, p, a);
                break;
        case SCHED_DO_GRANT:
                p->lease = a->lease.lease;
                p->idle = false;
                if (!p->working)
                        tell_idle(m, p, true);
                go_on(m, p);
                break;
        case SCHED_DO_REVOKE:
                on_revoke(m, p, a);
                break;
        case SCHED_DO_REFUSE:
                p->out->refused = true;
                leave(m, p);
                break;
        case SCHED_DO_CONTESTED:
        case SCHED_DO_SLICE:
        case SCHED_DO_OVERDUE:
        case SCHED_DO_EXPORTED:
        case SCHED_DO_SPARE:
        case SCHED_DO_PROMPT:
        case SCHED_DO_PREEMPT:
                break;
        }
}

/* Performs the actions in order; the actions that they cause are appended to the list. */
static void perform_all(struct model *m)
{
        for (unsigned i = 0; i < m->n_todo; i++) {
                const struct sched_action a = m->todo[i]; /* copied, because the list may move */

                perform(m, &a);
        }
        m->n_todo = 0;
}

/* ---- time ---- */

static void happen(struct model *m, struct program *p)
{
        enum what what = NOTHING;
        uint64_t first = due(p);

        for (unsigned i = ARRIVE; i <= MOVE && what == NOTHING; i++)
                if (p->due_ns[i] == first)
                        what = (enum what)i;
        switch (what) {
        case ARRIVE:
                arrive(m, p);
                break;
        case THOUGHT:
                set_due(m, p, THOUGHT, NEVER);
                next_phase(m, p);
                break;
        case DRAIN:
                drained(m, p);
                break;
        case MOVE:
                moved(m, p);
                break;
        case NOTHING:
                break;
        }
}

static bool step(struct model *m)
{
        struct program *ends, *p = m->n_heap ? &m->programs[m->heap[0]] : NULL;
        uint64_t at_heap = p ? due(p) : NEVER, at_sched = sched_next_ns(m->s);
        uint64_t at_end = next_end(m, &ends), next = MIN(MIN(at_heap, at_sched), at_end);

        if (next == NEVER || (m->w->until_ns && next > m->w->until_ns))
                return false;
        m->now_ns = MAX(m->now_ns, next);
        if (at_end == next) {
                end_gpu_phase(m, ends);
        } else if (at_heap == next) {
                happen(m, p);
        } else {
                struct sched_actions *out = no_actions();

                sched_tick(m->s, m->now_ns, out);
                take_actions(m, out);
        }
        perform_all(m);
        return !m->result->broken;
}

/* ---- making a model ---- */

static void place_programs(struct model *m, const struct plan *plans)
{
        for (unsigned k = 0; k < m->n; k++) {
                struct program *p = &m->programs[k];

                p->plan = plans[k];
                p->out = &m->result->clients[k];
                p->out->job = p->plan.job;
                for (unsigned what = ARRIVE; what <= MOVE; what++)
                        p->due_ns[what] = NEVER;
                p->due_ns[ARRIVE] = p->plan.arrives_ns;
                p->place = m->n_heap;
                m->heap[m->n_heap++] = k;
                heap_move(m, p);
        }
}

static void finish(struct model *m)
{
        struct sched_gpu_view g;
        struct sched_account_view v;

        bring_up_to_date(m);
        m->result->end_ns = m->now_ns;
        if (sched_gpu_view(m->s, 0, &g) == 0)
                m->result->handoffs = g.handoffs;
        for (unsigned i = 0; i < m->n; i++) {
                struct program *p = &m->programs[i];

                stop_computing(m, p);
                if (p->here && sched_account_view(m->s, p->id, 0, &v) == 0)
                        p->out->paid_ns = v.paid_ns;
                m->result->in_bytes += p->out->in_bytes;
                m->result->out_bytes += p->out->out_bytes;
        }
}

int model_run(const struct workload *w, bool check, struct model_result *ret)
{
        struct model m = {.w = w, .result = ret, .check = check, .n = w->clients};
        struct plan *plans = calloc(w->clients, sizeof(*plans));
        int r = -ENOMEM;

        *ret = (struct model_result){.n_clients = w->clients,
                                     .system = "the scheduler's decisions"};
        ret->clients = calloc(w->clients, sizeof(*ret->clients));
        m.programs = calloc(w->clients, sizeof(*m.programs));
        m.heap = calloc(w->clients, sizeof(*m.heap));
        m.active = calloc(w->clients, sizeof(*m.active));
        m.by_slot = calloc(w->clients, sizeof(*m.by_slot));
        m.s = sched_new(&w->config);
        if (plans && ret->clients && m.programs && m.heap && m.active && m.by_slot && m.s &&
            sched_gpu_add(m.s, 0, w->card) == 0) {
                sched_gpu_bus(m.s, 0, MIN(w->in_rate, w->out_rate));
                plan_all(w, plans);
                place_programs(&m, plans);
                while (step(&m))
                        ;
                finish(&m);
                r = 0;
        }
        sched_free(m.s);
        free(plans);
        free(m.programs);
        free(m.heap);
        free(m.active);
        free(m.by_slot);
        free(m.todo);
        if (r < 0)
                model_free(ret);
        return r;
}
