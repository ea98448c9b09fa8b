/* sched_world.c: owns the model of the clients, the cards and the messages between them.
 * Must never look into the scheduler's state but through sched.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sched_world.h"

#define NEVER UINT64_MAX

enum message_type {
        UP_USAGE,
        UP_WANT,
        UP_IDLE,
        UP_DRAINED,
        UP_DRAIN_FAILED,
        UP_SHORT,
        UP_ATTACH,
        UP_GARBAGE,
        DOWN_ACTION,
};

struct message {
        uint64_t at_ns;
        enum message_type type;
        unsigned gpu;
        struct sched_usage usage;
        uint32_t limit_sequence;
        struct sched_want want;
        struct sched_attach attach;
        uint64_t lease, bytes;
        bool idle;
        struct sched_action action;
};

/* First in, first out, as a socket is. */
struct queue {
        struct message *list;
        unsigned first, n, size;
        uint64_t last_ns;
};

struct on_gpu {
        bool used;
        uint64_t allocated, backed, fixed;     /* the truth */
        uint64_t commit, limit, fixed_allowed; /* as last told */
        uint32_t limit_sequence;
        uint64_t commit_asked, fixed_asked; /* 0: no question open */
        uint64_t commit_exact;              /* what the program really wants */
        uint32_t commit_sequence, fixed_sequence;
        uint64_t asked_ns;
        bool want_sent;
        uint64_t want_need;
        uint64_t need_delivered; /* what the daemon knows must be backed; 0 once granted */
};

struct process {
        bool alive, connected, attached, stopped, hostile;
        sched_client id;
        int priority;
        struct on_gpu gpu[WORLD_GPUS_MAX];
        struct queue up, down;

        bool wants_run; /* threads stand at the gate, or work is in flight */
        bool idle;
        uint64_t lease;
        bool draining;
        bool stubborn; /* its drains fail */

        uint64_t think_ns, drain_ns, move_ns, continue_ns, reconnect_ns, gone_ns;
        uint64_t excused_wait_ns, waited_ns;
        uint32_t sequence;
};

struct world {
        struct world_options o;
        uint64_t random, now_ns;
        struct sched *s;
        bool restarted_once, traced;
        uint64_t restart_until_ns;
        uint64_t foreign[WORLD_GPUS_MAX];
        uint64_t foreign_seen_ns; /* when the daemon learns of it */
        bool foreign_pending, foreign_ever;
        struct process p[WORLD_CLIENTS_MAX];
        uint64_t fate_ns;
        uint64_t calm_ns; /* how long nothing extraordinary has been going on */
        enum sched_mode mode;
        struct world_counts counts;
        const char *broken;
        char text[256];
};

/* ---- chance ---- */

static uint64_t next_random(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

static uint64_t below(struct world *w, uint64_t n)
{
        return n ? next_random(&w->random) % n : 0;
}

static bool chance(struct world *w, unsigned permille)
{
        return below(w, 1000) < permille;
}

static void fail(struct world *w, const char *text, unsigned process)
{
        if (w->broken)
                return;
        if (w->traced)
                fprintf(stderr, "%s\n", text);
        (void)snprintf(w->text, sizeof(w->text), "%s (process %u at %.6f s)", text, process,
                       (double)w->now_ns / 1e9);
        w->broken = w->text;
}

static unsigned number(const struct world *w, const struct process *p)
{
        return (unsigned)(p - w->p);
}

/* ---- messages ---- */

/* SCHED_TRACE=1 tells what happens, on stderr. */
static void trace(struct world *w, const struct process *p, const char *what,
                  const struct message *m)
{
        static const char *const names[] = {"USAGE", "WANT",   "IDLE",    "DRAINED", "DRAIN_FAILED",
                                            "SHORT", "ATTACH", "GARBAGE", "ACTION"};
        static const char *const actions[] = {"LIMIT",  "GRANT",     "REVOKE",
                                              "REFUSE", "CONTESTED", "OVERDUE"};

        if (!w->traced)
                return;
        fprintf(stderr, "%10.6f %s %s", (double)w->now_ns / 1e9, what,
                m ? m->type == DOWN_ACTION ? actions[m->action.type] : names[m->type] : "");
        if (p) {
                fprintf(stderr, " p%u lease %llu%s%s", number(w, p), (unsigned long long)p->lease,
                        p->wants_run ? " wants" : "", p->draining ? " draining" : "");
                for (unsigned i = 0; i < w->o.gpus; i++)
                        if (p->gpu[i].used)
                                fprintf(stderr, " [%u: %llu/%llu limit %llu commit %llu]", i,
                                        (unsigned long long)p->gpu[i].backed >> 20,
                                        (unsigned long long)p->gpu[i].allocated >> 20,
                                        (unsigned long long)p->gpu[i].limit >> 20,
                                        (unsigned long long)p->gpu[i].commit >> 20);
        }
        if (m && m->type == UP_USAGE)
                fprintf(stderr, " usage(%u: %llu/%llu #%u)", m->gpu,
                        (unsigned long long)m->usage.backed >> 20,
                        (unsigned long long)m->usage.allocated >> 20, m->limit_sequence);
        if (m && m->type == UP_WANT)
                fprintf(stderr, " want(%u: commit %llu fixed %llu need %llu%s)", m->gpu,
                        (unsigned long long)m->want.commit >> 20,
                        (unsigned long long)m->want.fixed >> 20,
                        (unsigned long long)m->want.need >> 20, m->want.run ? " run" : "");
        if (m && m->type == DOWN_ACTION && m->action.type == SCHED_DO_LIMIT)
                fprintf(stderr, " limit(%u: backed %llu commit %llu fixed %llu #%u)", m->action.gpu,
                        (unsigned long long)m->action.limit.backed >> 20,
                        (unsigned long long)m->action.limit.commit >> 20,
                        (unsigned long long)m->action.limit.fixed >> 20, m->action.limit.sequence);
        fprintf(stderr, "\n");
}

static void push(struct world *w, struct queue *q, struct message *m)
{
        /* Mostly quick, sometimes not. */
        uint64_t delay = chance(w, 50) ? below(w, 200 * NSEC_PER_MSEC) : below(w, NSEC_PER_MSEC);

        q->last_ns = MAX(q->last_ns, w->now_ns + delay);
        m->at_ns = q->last_ns;
        if (q->first + q->n == q->size) {
                if (q->first > q->n) {
                        memmove(q->list, q->list + q->first, q->n * sizeof(*q->list));
                        q->first = 0;
                } else {
                        q->size = q->size ? 2 * q->size : 16;
                        q->list = realloc(q->list, q->size * sizeof(*q->list));
                        if (!q->list)
                                abort();
                }
        }
        q->list[q->first + q->n++] = *m;
}

static void drop_messages(struct queue *q)
{
        q->first = q->n = 0;
}

static void send_usage(struct world *w, struct process *p, unsigned gpu)
{
        struct on_gpu *g = &p->gpu[gpu];
        struct message m = {.type = UP_USAGE, .gpu = gpu};

        if (!p->connected)
                return;
        m.usage = (struct sched_usage){
                .allocated = g->allocated, .backed = g->backed, .fixed = g->fixed};
        m.limit_sequence = g->limit_sequence;
        push(w, &p->up, &m);
}

static void send_want(struct world *w, struct process *p, unsigned gpu, uint64_t commit,
                      uint64_t fixed)
{
        struct on_gpu *g = &p->gpu[gpu];
        struct message m = {.type = UP_WANT, .gpu = gpu};
        bool lacks = !p->lease || g->allocated > g->limit;

        m.want = (struct sched_want){.commit = commit,
                                     .fixed = fixed,
                                     .need = g->allocated,
                                     .run = p->wants_run && lacks,
                                     .sequence = ++p->sequence};
        g->want_sent = m.want.run;
        g->want_need = m.want.need;
        push(w, &p->up, &m);
}

static void send_lease(struct world *w, struct process *p, enum message_type type, uint64_t lease)
{
        struct message m = {.type = type, .lease = lease, .idle = p->idle};

        if (p->connected)
                push(w, &p->up, &m);
}

/* ---- the card ---- */

static uint64_t really_free(const struct world *w, unsigned gpu)
{
        uint64_t used = w->foreign[gpu];

        for (unsigned i = 0; i < w->o.clients; i++)
                used += w->p[i].gpu[gpu].backed + w->p[i].gpu[gpu].fixed;
        return used >= w->o.total_bytes ? 0 : w->o.total_bytes - used;
}

/* ---- the library ---- */

static bool all_backed(const struct process *p)
{
        for (unsigned i = 0; i < WORLD_GPUS_MAX; i++)
                if (p->gpu[i].allocated != p->gpu[i].backed)
                        return false;
        return true;
}

static bool runs(const struct process *p)
{
        return p->alive && !p->stopped && p->lease && !p->draining && all_backed(p);
}

static uint64_t extent(const struct world *w)
{
        return w->o.total_bytes / 32;
}

/* Back more, up to bytes; a create that fails is reported. */
static bool back(struct world *w, struct process *p, unsigned gpu, uint64_t bytes)
{
        struct on_gpu *g = &p->gpu[gpu];

        if (bytes > really_free(w, gpu)) {
                struct message m = {.type = UP_SHORT, .gpu = gpu, .bytes = bytes};

                w->counts.shorts++;
                push(w, &p->up, &m);
                return false;
        }
        g->backed += bytes;
        send_usage(w, p, gpu);
        return true;
}

static void start_moving(struct world *w, struct process *p)
{
        if (p->move_ns == NEVER)
                p->move_ns = w->now_ns + NSEC_PER_MSEC + below(w, 5 * NSEC_PER_MSEC);
}

/* What the library does whenever something has changed. */
static void agent(struct world *w, struct process *p)
{
        bool held = p->lease != 0;

        if (!p->alive || !p->connected || !p->attached || p->stopped || p->hostile)
                return;
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];
                uint64_t lacks;

                if (!g->used)
                        continue;
                lacks = g->allocated - g->backed;
                if (!held && (g->backed > g->limit || (lacks && g->backed < g->limit)))
                        start_moving(w, p);
                if (held && !p->draining && lacks && g->backed < g->limit)
                        start_moving(w, p);
                if (!p->wants_run || p->draining)
                        continue;
                if (held && g->allocated <= g->limit)
                        g->want_sent = false;
                else if (!g->want_sent || g->want_need != g->allocated)
                        send_want(w, p, i, 0, 0);
        }
}

static void move(struct world *w, struct process *p)
{
        p->move_ns = NEVER;
        if (!p->connected || p->draining)
                return;
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];
                uint64_t bytes;

                if (!p->lease && g->backed > g->limit) {
                        bytes = MIN(g->backed - g->limit, extent(w));
                        g->backed -= bytes;
                        send_usage(w, p, i);
                        break;
                }
                if (g->backed < g->limit && g->backed < g->allocated) {
                        bytes = MIN(g->allocated, g->limit) - g->backed;
                        bytes = MIN(bytes, extent(w));
                        w->counts.restores++;
                        if (!back(w, p, i, bytes)) {
                                p->move_ns = w->now_ns + 100 * NSEC_PER_MSEC;
                                return;
                        }
                        break;
                }
        }
        agent(w, p);
}

static void drained(struct world *w, struct process *p)
{
        uint64_t lease = p->lease;

        p->drain_ns = NEVER;
        if (!p->draining)
                return;
        p->draining = false;
        if (p->stubborn || (w->o.accidents && chance(w, 20))) {
                w->counts.drain_failures++;
                send_lease(w, p, UP_DRAIN_FAILED, lease);
        } else {
                p->lease = 0;
                p->idle = false;
                for (unsigned i = 0; i < w->o.gpus; i++)
                        p->gpu[i].want_sent = false;
                send_lease(w, p, UP_DRAINED, lease);
        }
        agent(w, p);
}

static void on_limit(struct world *w, struct process *p, const struct sched_action *a)
{
        struct on_gpu *g = &p->gpu[a->gpu];

        if (a->limit.sequence != g->limit_sequence + 1)
                fail(w, "a LIMIT came out of sequence", number(w, p));
        g->limit_sequence = a->limit.sequence;
        g->commit = a->limit.commit;
        g->limit = a->limit.backed;
        g->fixed_allowed = a->limit.fixed;
        send_usage(w, p, a->gpu);
        if (g->commit_asked && g->commit >= g->commit_asked) {
                g->allocated = g->commit_exact <= g->commit && g->commit_exact > g->allocated
                                       ? g->commit_exact
                                       : g->allocated;
                g->commit_asked = 0;
        }
        if (g->fixed_asked && g->fixed_allowed >= g->fixed_asked) {
                /* The card must have them: others were evicted for it. */
                if (g->fixed_asked - g->fixed > really_free(w, a->gpu) && !w->foreign_ever)
                        fail(w, "fixed bytes were allowed that the card does not have",
                             number(w, p));
                else if (g->fixed_asked - g->fixed <= really_free(w, a->gpu))
                        g->fixed = g->fixed_asked;
                g->fixed_asked = 0;
                w->counts.fixed_growth++;
                send_usage(w, p, a->gpu);
        }
}

static void on_refuse(struct world *w, struct process *p, const struct sched_action *a)
{
        struct on_gpu *g = &p->gpu[a->gpu];

        w->counts.refusals++;
        if (a->refuse.code == -ENOMEM && g->commit_asked && a->refuse.of == g->commit_sequence) {
                /* Refused a block: once more for the exact bytes. */
                if (g->commit_asked > g->commit_exact) {
                        g->commit_asked = g->commit_exact;
                        send_want(w, p, a->gpu, g->commit_exact, g->fixed_asked);
                        g->commit_sequence = p->sequence;
                        if (g->fixed_asked)
                                g->fixed_sequence = p->sequence;
                } else {
                        g->commit_asked = 0;
                }
        } else if (a->refuse.code == -ENOSPC && a->refuse.of == g->fixed_sequence) {
                g->fixed_asked = 0;
        }
}

static void on_grant(struct world *w, struct process *p, const struct sched_action *a)
{
        if (p->lease && !w->restarted_once && !w->counts.returns)
                fail(w, "a second lease", number(w, p));
        p->lease = a->lease.lease;
        p->idle = false;
        w->counts.grants++;
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];

                g->want_sent = false;
        }
        if (!p->wants_run) {
                p->idle = true;
                send_lease(w, p, UP_IDLE, p->lease);
        }
}

static void receive(struct world *w, struct process *p, const struct sched_action *a)
{
        if (p->hostile)
                return;
        switch (a->type) {
        case SCHED_DO_LIMIT:
                on_limit(w, p, a);
                break;
        case SCHED_DO_GRANT:
                on_grant(w, p, a);
                break;
        case SCHED_DO_REVOKE:
                w->counts.revokes++;
                if (a->lease.lease == p->lease && p->lease) {
                        p->draining = true;
                        p->drain_ns = w->now_ns + below(w, 50 * NSEC_PER_MSEC);
                } else {
                        fail(w, "REVOKE of another lease", number(w, p));
                }
                break;
        case SCHED_DO_REFUSE:
                on_refuse(w, p, a);
                break;
        case SCHED_DO_CONTESTED:
        case SCHED_DO_OVERDUE:
                break;
        }
        agent(w, p);
}

/* ---- the daemon ---- */

static struct process *by_id(struct world *w, sched_client id)
{
        for (unsigned i = 0; i < w->o.clients; i++)
                if (w->p[i].id == id)
                        return &w->p[i];
        return NULL;
}

/* Invariant 2, by what is really there at the moment the daemon decides. */
static void check_grant(struct world *w, struct process *p)
{
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];

                if (g->backed < MIN(g->need_delivered, g->allocated) && !p->hostile)
                        fail(w, "granted with memory that is not resident", number(w, p));
                g->need_delivered = 0;
        }
}

static void perform(struct world *w, struct sched_actions *out)
{
        for (;;) {
                for (unsigned i = 0; i < out->n; i++) {
                        struct message m = {.type = DOWN_ACTION, .action = out->list[i]};
                        struct process *p = by_id(w, out->list[i].client);

                        if (p && out->list[i].type == SCHED_DO_GRANT)
                                check_grant(w, p);
                        if (out->list[i].type == SCHED_DO_OVERDUE)
                                w->counts.overdue++;
                        else if (p && p->connected)
                                push(w, &p->down, &m);
                        else if (!p)
                                fail(w, "an action for a client that is gone", 0);
                }
                out->n = 0;
                if (!out->more)
                        return;
                sched_pump(w->s, w->now_ns, out);
        }
}

static void garbage(struct world *w, struct process *p, struct sched_actions *out)
{
        uint64_t huge[] = {0,
                           1,
                           w->o.total_bytes,
                           UINT64_MAX,
                           UINT64_MAX - 1,
                           UINT64_MAX / 2,
                           below(w, w->o.total_bytes)};
        unsigned gpu = (unsigned)below(w, 18);

#define ANY huge[below(w, ARRAY_SIZE(huge))]
        struct sched_usage u = {ANY, ANY, ANY, ANY, ANY, ANY, ANY};
        struct sched_want want = {ANY, ANY, ANY, chance(w, 500), (uint32_t)ANY};
        struct sched_attach at = {.usage = u,
                                  .fixed_wanted = ANY,
                                  .running = chance(w, 300),
                                  .run = chance(w, 500),
                                  .idle = chance(w, 500)};
        uint64_t lease = chance(w, 500) ? ANY : w->counts.grants;

        switch (below(w, 8)) {
        case 0:
                (void)sched_client_attach(w->s, p->id, gpu, &at, w->now_ns, out);
                break;
        case 1:
        case 2:
                (void)sched_client_usage(w->s, p->id, gpu, &u, (uint32_t)below(w, 10), 0, w->now_ns,
                                         out);
                break;
        case 3:
        case 4:
                (void)sched_client_want(w->s, p->id, gpu, &want, w->now_ns, out);
                break;
        case 5:
                (void)sched_client_idle(w->s, p->id, lease, chance(w, 500), w->now_ns, out);
                break;
        case 6:
                (void)sched_client_drained(w->s, p->id, lease, w->now_ns, out);
                break;
        case 7:
                (void)sched_client_drain_failed(w->s, p->id, lease, ANY, w->now_ns, out);
                break;
        }
#undef ANY
}

static void deliver_up(struct world *w, struct process *p, const struct message *m)
{
        struct sched_actions out = {0};
        int r = 0;

        switch (m->type) {
        case UP_USAGE:
                r = sched_client_usage(w->s, p->id, m->gpu, &m->usage, m->limit_sequence, 0,
                                       w->now_ns, &out);
                break;
        case UP_WANT:
                p->gpu[m->gpu].need_delivered = m->want.run ? m->want.need : 0;
                r = sched_client_want(w->s, p->id, m->gpu, &m->want, w->now_ns, &out);
                break;
        case UP_IDLE:
                r = sched_client_idle(w->s, p->id, m->lease, m->idle, w->now_ns, &out);
                break;
        case UP_DRAINED:
                r = sched_client_drained(w->s, p->id, m->lease, w->now_ns, &out);
                break;
        case UP_DRAIN_FAILED:
                r = sched_client_drain_failed(w->s, p->id, m->lease, NSEC_PER_SEC, w->now_ns, &out);
                break;
        case UP_SHORT:
                r = sched_client_short(w->s, p->id, m->gpu, m->bytes, w->now_ns, &out);
                break;
        case UP_ATTACH:
                r = sched_client_attach(w->s, p->id, m->gpu, &m->attach, w->now_ns, &out);
                break;
        case UP_GARBAGE:
                garbage(w, p, &out);
                break;
        case DOWN_ACTION:
                break;
        }
        if (r < 0)
                fail(w, "an honest message was rejected", number(w, p));
        perform(w, &out);
}

static void new_daemon(struct world *w, bool restart)
{
        struct sched_config c = w->o.config;

        sched_free(w->s);
        c.restart_grace_ns = restart ? 2 * NSEC_PER_SEC : 0;
        c.mode = w->mode = SCHED_MODE_AUTO;
        w->s = sched_new(&c);
        if (!w->s)
                abort();
        for (unsigned i = 0; i < w->o.gpus; i++)
                if (sched_gpu_add(w->s, i, w->o.total_bytes) < 0)
                        abort();
        w->restart_until_ns = w->now_ns + c.restart_grace_ns;
}

/* ---- processes ---- */

static void connect_process(struct world *w, struct process *p)
{
        bool open = runs(p);
        sched_client id = 0;

        if (sched_client_add(w->s, number(w, p), p->priority, w->now_ns, &id) < 0)
                fail(w, "no room for a client", number(w, p));
        else if (p->id && sched_client_returned(w->s, id, p->id) < 0)
                fail(w, "a process may not return", number(w, p));
        p->id = id;
        p->connected = p->attached = true;
        p->reconnect_ns = NEVER;
        if (!open) {
                p->lease = 0;
                p->idle = false;
        }
        p->draining = false;
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];
                struct message m = {.type = UP_ATTACH, .gpu = i};

                if (!g->used)
                        continue;
                m.attach = (struct sched_attach){
                        .usage = {.allocated = g->allocated,
                                  .backed = g->backed,
                                  .fixed = g->fixed},
                        .running = open,
                        .run = p->wants_run && !open,
                        .idle = open && p->idle,
                        .sequence = ++p->sequence,
                };
                if (!g->fixed && !g->fixed_asked) {
                        g->fixed_asked = w->o.total_bytes / 128 + below(w, w->o.total_bytes / 64);
                        g->asked_ns = w->now_ns;
                        m.attach.fixed_wanted = g->fixed_asked;
                        g->fixed_sequence = p->sequence;
                }
                g->limit_sequence = 0;
                /* what another connection allowed means nothing */
                g->commit = g->allocated;
                g->limit = g->backed;
                g->fixed_allowed = g->fixed;
                g->want_sent = false;
                g->need_delivered = 0;
                push(w, &p->up, &m);
        }
        if (p->hostile) {
                struct message m = {.type = UP_GARBAGE};

                push(w, &p->up, &m);
        }
        agent(w, p);
}

static void disconnect(struct world *w, struct process *p)
{
        struct sched_actions out = {0};

        drop_messages(&p->up);
        drop_messages(&p->down);
        for (unsigned i = 0; i < w->o.gpus; i++)
                p->gpu[i].commit_asked = p->gpu[i].fixed_asked = 0;
        p->connected = p->attached = false;
        p->move_ns = NEVER;
        if (p->draining) { /* the daemon that asked is away: the gate opens again */
                p->draining = false;
                p->drain_ns = NEVER;
        }
        if (p->id) {
                sched_client_lost(w->s, p->id, w->now_ns, &out);
                perform(w, &out);
        }
}

static void start_process(struct world *w, struct process *p)
{
        struct queue up = p->up, down = p->down;

        drop_messages(&up);
        drop_messages(&down);
        *p = (struct process){
                .alive = true,
                .up = up,
                .down = down,
                .priority = w->o.priorities ? (int)below(w, 3) : 0,
                .think_ns = w->now_ns + below(w, NSEC_PER_SEC),
                .drain_ns = NEVER,
                .move_ns = NEVER,
                .continue_ns = NEVER,
                .reconnect_ns = NEVER,
                .gone_ns = NEVER,
                .hostile = w->o.hostile && p == &w->p[0],
        };
        p->gpu[below(w, w->o.gpus)].used = true;
        if (chance(w, 300))
                p->gpu[below(w, w->o.gpus)].used = true;
        connect_process(w, p);
}

static void kill_process(struct world *w, struct process *p)
{
        w->counts.deaths++;
        p->alive = p->stopped = false;
        p->think_ns = p->drain_ns = p->continue_ns = p->reconnect_ns = NEVER;
        if (p->connected || p->id)
                disconnect(w, p);
        p->move_ns = NEVER;
        p->gone_ns = w->now_ns + below(w, 3 * NSEC_PER_SEC);
}

static void bury(struct world *w, struct process *p)
{
        struct sched_actions out = {0};
        sched_client id = p->id;

        p->gone_ns = NEVER;
        for (unsigned i = 0; i < w->o.gpus; i++)
                p->gpu[i] = (struct on_gpu){0};
        p->id = 0;
        if (id) {
                sched_client_gone(w->s, id, w->now_ns, &out);
                perform(w, &out);
        }
        p->reconnect_ns = w->now_ns + below(w, 5 * NSEC_PER_SEC); /* another one is started */
}

static unsigned some_gpu(struct world *w, const struct process *p)
{
        for (;;) {
                unsigned i = (unsigned)below(w, w->o.gpus);

                if (p->gpu[i].used)
                        return i;
        }
}

static void allocate(struct world *w, struct process *p)
{
        unsigned i = some_gpu(w, p);
        struct on_gpu *g = &p->gpu[i];
        uint64_t bytes = 1 + below(w, chance(w, 200) ? w->o.total_bytes : w->o.total_bytes / 8);
        uint64_t block = w->o.total_bytes / 64;

        if (!p->connected || g->commit_asked || g->allocated > w->o.total_bytes * 8 / 10)
                return;
        if (g->allocated + bytes <= g->commit) {
                g->allocated += bytes;
                send_usage(w, p, i);
                return;
        }
        g->commit_exact = g->allocated + bytes;
        g->commit_asked = (g->commit_exact + block - 1) / block * block;
        g->asked_ns = w->now_ns;
        send_want(w, p, i, g->commit_asked, g->fixed_asked);
        g->commit_sequence = p->sequence;
        if (g->fixed_asked)
                g->fixed_sequence = p->sequence;
}

static void release(struct world *w, struct process *p)
{
        unsigned i = some_gpu(w, p);
        struct on_gpu *g = &p->gpu[i];
        uint64_t bytes = below(w, g->allocated + 1);

        if (!p->connected)
                return;
        /* freed from what is not backed first, so that some of either kind is */
        g->allocated -= bytes;
        g->backed = MIN(g->backed, g->allocated);
        send_usage(w, p, i);
        if (g->commit > g->allocated + w->o.total_bytes / 8 && !g->commit_asked && chance(w, 300))
                send_want(w, p, i, g->allocated + 1, g->fixed_asked);
}

static void grow_fixed(struct world *w, struct process *p)
{
        unsigned i = some_gpu(w, p);
        struct on_gpu *g = &p->gpu[i];

        if (!p->connected || g->fixed_asked || !g->fixed)
                return;
        g->fixed_asked = g->fixed + 1 + below(w, w->o.total_bytes / (chance(w, 100) ? 4 : 64));
        g->asked_ns = w->now_ns;
        send_want(w, p, i, g->commit_asked, g->fixed_asked);
        g->fixed_sequence = p->sequence;
        if (g->commit_asked)
                g->commit_sequence = p->sequence;
}

/* The program: works, grows, frees, rests. */
static void think(struct world *w, struct process *p)
{
        p->think_ns = w->now_ns + below(w, chance(w, 100) ? 3 * NSEC_PER_SEC : 100 * NSEC_PER_MSEC);
        if (p->hostile) {
                struct message m = {.type = UP_GARBAGE};

                if (p->connected)
                        push(w, &p->up, &m);
                return;
        }
        switch (below(w, 8)) {
        case 0:
        case 1:
                allocate(w, p);
                break;
        case 2:
                if (!p->wants_run || runs(p))
                        release(w, p);
                break;
        case 3:
                if (chance(w, 200))
                        grow_fixed(w, p);
                break;
        case 4:
        case 5:
                if (!p->wants_run) {
                        p->wants_run = true;
                        p->waited_ns = 0;
                        if (p->lease && p->idle) {
                                p->idle = false;
                                send_lease(w, p, UP_IDLE, p->lease);
                        }
                }
                break;
        case 6:
                if (p->wants_run && runs(p)) {
                        p->wants_run = false;
                        p->idle = true;
                        send_lease(w, p, UP_IDLE, p->lease);
                }
                break;
        default:
                break;
        }
        agent(w, p);
}

/* ---- fate ---- */

static void restart_daemon(struct world *w)
{
        w->counts.restarts++;
        w->restarted_once = true;
        for (unsigned i = 0; i < w->o.clients; i++)
                w->p[i].id = 0;
        new_daemon(w, true);
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *p = &w->p[i];

                if (!p->alive)
                        continue;
                disconnect(w, p);
                p->reconnect_ns = w->now_ns + 50 * NSEC_PER_MSEC + below(w, 950 * NSEC_PER_MSEC);
        }
        w->foreign_pending = true;
        w->foreign_seen_ns = w->now_ns;
}

static void change_foreign(struct world *w)
{
        unsigned gpu = (unsigned)below(w, w->o.gpus);
        uint64_t others = w->foreign[gpu], bytes = 0;

        w->foreign[gpu] = 0;
        if (!others)
                bytes = below(w, w->o.total_bytes / 4);
        w->foreign[gpu] = MIN(bytes, really_free(w, gpu));
        w->foreign_ever |= w->foreign[gpu] != 0;
        w->foreign_pending = true;
        w->foreign_seen_ns = w->now_ns + below(w, NSEC_PER_SEC);
}

static void change_mode(struct world *w)
{
        struct sched_actions out = {0};
        enum sched_mode mode = (enum sched_mode)below(w, 3);
        int r = sched_set_mode(w->s, mode, w->now_ns, &out);

        if (r == 0)
                w->mode = mode;
        else if (r != -EBUSY || mode != SCHED_MODE_OFF)
                fail(w, "a mode was refused", 0);
        perform(w, &out);
}

static void fate(struct world *w)
{
        struct process *p = &w->p[below(w, w->o.clients)];

        w->fate_ns = w->now_ns + below(w, 4 * NSEC_PER_SEC);
        if (w->o.foreigners && chance(w, 300))
                change_foreign(w);
        if (w->o.modes && chance(w, 200))
                change_mode(w);
        if (!w->o.accidents || !p->alive)
                return;
        switch (below(w, 12)) {
        case 0:
                kill_process(w, p);
                break;
        case 1:
                if (p->connected) {
                        w->counts.returns++;
                        disconnect(w, p);
                        p->reconnect_ns = w->now_ns + below(w, NSEC_PER_SEC);
                }
                break;
        case 2:
                p->stopped = true;
                p->continue_ns = w->now_ns + below(w, 20 * NSEC_PER_SEC);
                break;
        case 3:
                p->stubborn = !p->stubborn;
                break;
        case 4:
                if (chance(w, 300))
                        restart_daemon(w);
                break;
        default:
                break;
        }
}

/* ---- what must hold ---- */

static uint64_t headroom(const struct world *w)
{
        return MIN(512 * MIB, w->o.total_bytes / 100 * 3);
}

static void check_cards(struct world *w)
{
        for (unsigned i = 0; i < w->o.gpus; i++) {
                if (!w->foreign_ever && !w->o.hostile && really_free(w, i) < headroom(w))
                        fail(w, "more is really backed than the card has", 0);
        }
}

static bool extraordinary(const struct world *w)
{
        if (w->mode == SCHED_MODE_OFF || w->now_ns < w->restart_until_ns)
                return true;
        for (unsigned i = 0; i < w->o.gpus; i++)
                if (w->foreign[i])
                        return true;
        for (unsigned i = 0; i < w->o.clients; i++) {
                const struct process *p = &w->p[i];

                if (p->stopped || p->stubborn || (!p->alive && p->id) ||
                    (p->alive && !p->connected))
                        return true;
        }
        return w->foreign_pending || w->o.hostile;
}

static uint64_t wait_limit(const struct world *w)
{
        return w->o.clients * (w->o.config.quantum_max_ns + 2 * NSEC_PER_SEC) * 3 +
               20 * NSEC_PER_SEC;
}

static void check_waits(struct world *w, uint64_t passed_ns)
{
        int highest = INT32_MIN;

        w->calm_ns = extraordinary(w) ? 0 : w->calm_ns + passed_ns;
        if (w->calm_ns < 15 * NSEC_PER_SEC) /* until what happened before is over */
                passed_ns = 0;
        for (unsigned i = 0; i < w->o.clients; i++)
                if (w->p[i].alive && w->p[i].wants_run)
                        highest = MAX(highest, w->p[i].priority);
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *p = &w->p[i];
                bool waits = p->wants_run && !runs(p);

                for (unsigned g = 0; g < w->o.gpus; g++)
                        waits |= p->gpu[g].commit_asked || p->gpu[g].fixed_asked;
                if (!p->alive || !waits || p->priority < highest) {
                        p->waited_ns = 0;
                        continue;
                }
                p->waited_ns += passed_ns;
                w->counts.longest_wait_ns = MAX(w->counts.longest_wait_ns, p->waited_ns);
                if (p->waited_ns > wait_limit(w))
                        fail(w, "waits longer than all turns before it can last", i);
        }
}

/* ---- time ---- */

static uint64_t queue_next(const struct queue *q)
{
        return q->n ? q->list[q->first].at_ns : NEVER;
}

static struct message take(struct queue *q)
{
        q->n--;
        return q->list[q->first++];
}

enum what { DAEMON, FATE, FOREIGN, UP, DOWN, THINK, DRAIN, MOVE, CONTINUE, RECONNECT, GONE };

static void consider(uint64_t at, enum what what, struct process *p, uint64_t *best,
                     enum what *best_what, struct process **best_p)
{
        if (at < *best) {
                *best = at;
                *best_what = what;
                *best_p = p;
        }
}

static void happen(struct world *w, enum what what, struct process *p)
{
        struct sched_actions out = {0};
        struct message m;

        switch (what) {
        case DAEMON:
                sched_tick(w->s, w->now_ns, &out);
                perform(w, &out);
                break;
        case FATE:
                trace(w, NULL, "fate", NULL);
                fate(w);
                break;
        case FOREIGN:
                w->foreign_pending = false;
                for (unsigned i = 0; i < w->o.gpus; i++) {
                        sched_gpu_foreign(w->s, i, w->foreign[i], w->now_ns, &out);
                        perform(w, &out);
                }
                break;
        case UP:
                m = take(&p->up);
                trace(w, p, "->", &m);
                deliver_up(w, p, &m);
                break;
        case DOWN:
                m = take(&p->down);
                trace(w, p, "<-", &m);
                receive(w, p, &m.action);
                break;
        case THINK:
                think(w, p);
                break;
        case DRAIN:
                drained(w, p);
                break;
        case MOVE:
                move(w, p);
                break;
        case CONTINUE:
                p->stopped = false;
                p->continue_ns = NEVER;
                agent(w, p);
                break;
        case RECONNECT:
                p->reconnect_ns = NEVER;
                if (p->alive) {
                        connect_process(w, p);
                        if (w->counts.restarts)
                                w->foreign_pending = true;
                } else {
                        start_process(w, p);
                }
                break;
        case GONE:
                bury(w, p);
                break;
        }
}

const char *world_step(struct world *w)
{
        uint64_t best = NEVER, before = w->now_ns;
        enum what what = DAEMON;
        struct process *who = NULL;
        const char *broken;

        consider(sched_next_ns(w->s), DAEMON, NULL, &best, &what, &who);
        consider(w->fate_ns, FATE, NULL, &best, &what, &who);
        if (w->foreign_pending)
                consider(w->foreign_seen_ns, FOREIGN, NULL, &best, &what, &who);
        for (unsigned i = 0; i < w->o.clients; i++) {
                struct process *p = &w->p[i];

                consider(queue_next(&p->up), UP, p, &best, &what, &who);
                consider(p->reconnect_ns, RECONNECT, p, &best, &what, &who);
                consider(p->gone_ns, GONE, p, &best, &what, &who);
                consider(p->continue_ns, CONTINUE, p, &best, &what, &who);
                if (p->stopped)
                        continue;
                consider(queue_next(&p->down), DOWN, p, &best, &what, &who);
                consider(p->think_ns, THINK, p, &best, &what, &who);
                consider(p->drain_ns, DRAIN, p, &best, &what, &who);
                consider(p->move_ns, MOVE, p, &best, &what, &who);
        }
        w->now_ns = MAX(w->now_ns, best);
        w->counts.steps++;
        happen(w, what, who);

        broken = sched_check(w->s, w->now_ns);
        if (broken)
                fail(w, broken, who ? number(w, who) : 99);
        check_cards(w);
        check_waits(w, w->now_ns - before);
        return w->broken;
}

/* ---- making one ---- */

void world_options_random(uint64_t seed, struct world_options *ret)
{
        uint64_t r = seed * 0x2545f4914f6cdd1d + 1;

        *ret = (struct world_options){
                .seed = seed,
                .clients = 2 + (unsigned)(next_random(&r) % (WORLD_CLIENTS_MAX - 1)),
                .gpus = 1 + (unsigned)(next_random(&r) % WORLD_GPUS_MAX),
                .total_bytes = (next_random(&r) % 2 ? UINT64_C(1) : UINT64_C(140)) << 30,
                .accidents = next_random(&r) % 2,
                .foreigners = next_random(&r) % 4 == 0,
                .priorities = next_random(&r) % 4 == 0,
                .modes = next_random(&r) % 4 == 0,
                .hostile = next_random(&r) % 8 == 0,
        };
        sched_config_default(&ret->config);
        ret->config.clients_max = 4 * WORLD_CLIENTS_MAX; /* with former records */
        ret->config.quantum_ns = next_random(&r) % 2 ? NSEC_PER_SEC : 0;
        ret->config.quantum_max_ns = 3 * NSEC_PER_SEC;
        ret->config.grace_ns = 2 * NSEC_PER_SEC;
        ret->config.patience_ns = 500 * NSEC_PER_MSEC;
        ret->config.idle_release_ns = next_random(&r) % 4 ? 0 : 300 * NSEC_PER_MSEC;
        ret->config.host_budget_bytes =
                next_random(&r) % 2 ? ret->total_bytes * 4 : ret->total_bytes / 2;
}

struct world *world_new(const struct world_options *o)
{
        struct world *w = calloc(1, sizeof(*w));

        if (!w)
                return NULL;
        w->o = *o;
        w->random = o->seed;
        w->traced = getenv("SCHED_TRACE") != NULL;
        w->now_ns = NSEC_PER_SEC;
        new_daemon(w, false);
        for (unsigned i = 0; i < o->clients; i++)
                start_process(w, &w->p[i]);
        return w;
}

void world_free(struct world *w)
{
        if (!w)
                return;
        sched_free(w->s);
        for (unsigned i = 0; i < WORLD_CLIENTS_MAX; i++) {
                free(w->p[i].up.list);
                free(w->p[i].down.list);
        }
        free(w);
}

void world_counts(const struct world *w, struct world_counts *ret)
{
        *ret = w->counts;
}
