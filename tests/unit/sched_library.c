/* sched_library.c: owns the model of the preload library: how and when a client reacts to each
 * message. Must never do what docs/protocol.md forbids a client. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched_world_internal.h"

/* ---- chance ---- */

uint64_t next_random(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

uint64_t mix(uint64_t a, uint64_t b)
{
        uint64_t state = a ^ b * 0x2545f4914f6cdd1d;

        return next_random(&state);
}

uint64_t below(struct world *w, uint64_t n)
{
        return n ? next_random(&w->random) % n : 0;
}

bool chance(struct world *w, unsigned permille)
{
        return below(w, 1000) < permille;
}

void fail(struct world *w, const char *text, unsigned process)
{
        if (w->broken)
                return;
        if (w->traced)
                fprintf(stderr, "%s\n", text);
        (void)snprintf(w->text, sizeof(w->text), "%s (process %u at %.6f s)", text, process,
                       (double)w->now_ns / 1e9);
        w->broken = w->text;
}

unsigned number(const struct world *w, const struct process *p)
{
        return (unsigned)(p - w->p);
}

/* True if p and q are the same process, or of one group. */
bool are_one(const struct world *w, const struct process *p, const struct process *q)
{
        return p == q || (w->o.group && number(w, p) / w->o.group == number(w, q) / w->o.group);
}

bool are_one_job(const struct world *w, const struct process *p, const struct process *q)
{
        return w->o.job && number(w, p) / w->o.job == number(w, q) / w->o.job;
}

/* ---- messages ---- */

/* With SCHED_TRACE=1, prints each event to stderr. */
void trace(struct world *w, const struct process *p, const char *what, const struct message *m)
{
        static const char *const names[] = {"USAGE", "REQUEST", "IDLE",   "DRAINED", "DRAIN_FAILED",
                                            "SHORT", "ATTACH",  "EXPORT", "GARBAGE", "ACTION"};
        static const char *const actions[] = {"LIMIT", "GRANT",     "REVOKE", "REFUSE", "EXPORTED",
                                              "SPARE", "CONTESTED", "SLICE",  "OVERDUE"};

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
        if (m && m->type == UP_REQUEST)
                fprintf(stderr, " want(%u: commit %llu unevictable %llu need %llu%s)", m->gpu,
                        (unsigned long long)m->request.commit >> 20,
                        (unsigned long long)m->request.unevictable >> 20,
                        (unsigned long long)m->request.need >> 20, m->request.run ? " run" : "");
        if (m && m->type == DOWN_ACTION && m->action.type == SCHED_DO_LIMIT)
                fprintf(stderr, " limit(%u: backed %llu commit %llu unevictable %llu #%u)",
                        m->action.gpu, (unsigned long long)m->action.limit.backed >> 20,
                        (unsigned long long)m->action.limit.commit >> 20,
                        (unsigned long long)m->action.limit.unevictable >> 20,
                        m->action.limit.sequence);
        fprintf(stderr, "\n");
}

void push(struct world *w, struct queue *q, const struct message *m)
{
        /* Most messages arrive quickly, some late. */
        bool slow = next_random(&q->random) % 1000 < (w->o.slow_socket ? 500 : 50);
        uint64_t delay = next_random(&q->random) % (slow ? 200 * NSEC_PER_MSEC : NSEC_PER_MSEC);

        q->last_ns = MAX(q->last_ns, w->now_ns + delay);
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
        q->list[q->first + q->n] = *m;
        q->list[q->first + q->n++].at_ns = q->last_ns;
}

void drop_messages(struct queue *q)
{
        q->first = q->n = 0;
}

void send_usage(struct world *w, struct process *p, unsigned gpu)
{
        struct on_gpu *g = &p->gpu[gpu];
        struct message m = {.type = UP_USAGE, .gpu = gpu};

        if (!p->connected)
                return;
        m.usage = (struct sched_usage){.allocated = g->allocated,
                                       .backed = g->backed,
                                       .unevictable = g->unevictable,
                                       .stays = p->cramped && !p->lease &&
                                                g->backed > MAX(g->limit, g->exported)};
        m.limit_sequence = g->limit_sequence;
        m.poisoned = p->poisoned;
        push(w, &p->up, &m);
}

void send_request(struct world *w, struct process *p, unsigned gpu, uint64_t commit,
                  uint64_t unevictable)
{
        struct on_gpu *g = &p->gpu[gpu];
        struct message m = {.type = UP_REQUEST, .gpu = gpu};
        bool lacks = !p->lease || g->allocated > g->limit;

        m.request = (struct sched_request){.commit = commit,
                                           .unevictable = unevictable,
                                           .need = g->allocated,
                                           .run = p->wants_run && !p->paused && lacks,
                                           .spare = g->spare,
                                           .spare_requested = g->spare_asked,
                                           .sequence = ++p->sequence};
        g->request_sent = m.request.run;
        g->request_need = m.request.need;
        push(w, &p->up, &m);
}

void send_export(struct world *w, struct process *p, unsigned gpu, uint64_t bytes, bool held)
{
        struct message m = {.type = UP_EXPORT,
                            .gpu = gpu,
                            .export = {.bytes = bytes, .held = held, .sequence = ++p->sequence}};

        push(w, &p->up, &m);
}

void send_lease(struct world *w, struct process *p, enum message_type type, uint64_t lease)
{
        struct message m = {
                .type = type, .lease = lease, .idle = p->idle || p->paused, .paused = p->paused};

        if (p->connected)
                push(w, &p->up, &m);
}

/* ---- the card ---- */

uint64_t really_free(const struct world *w, unsigned gpu)
{
        uint64_t used = w->foreign[gpu];

        for (unsigned i = 0; i < w->o.clients; i++)
                used += w->p[i].gpu[gpu].backed + w->p[i].gpu[gpu].unevictable;
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

bool is_open(const struct process *p)
{
        return p->alive && !p->stopped && p->lease && !p->draining && all_backed(p);
}

bool runs(const struct process *p)
{
        return is_open(p) && !p->paused;
}

uint64_t extent(const struct world *w)
{
        return MIN(128 * MIB, w->o.total_bytes / 16);
}

/* Backs so many more bytes; sends SHORT when the card has no room. */
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
        w->moved[gpu] += bytes;
        send_usage(w, p, gpu);
        return true;
}

static void start_moving(struct world *w, struct process *p)
{
        if (p->move_ns == NEVER)
                p->move_ns = w->now_ns +
                             liar_move_ns(p, NSEC_PER_MSEC + below(w, (w->o.slow_bus ? 60 : 5) *
                                                                              NSEC_PER_MSEC));
}

/* Does what the library's agent does after every change. */
void agent(struct world *w, struct process *p)
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
                lacks = MIN(lacks, extent(w));
                if (g->exported > g->backed)
                        start_moving(w, p);
                if (!held && (g->backed > g->limit || (lacks && g->backed + lacks <= g->limit)))
                        start_moving(w, p);
                if (held && !p->draining && lacks && g->backed + lacks <= g->limit)
                        start_moving(w, p);
                if (!p->wants_run || p->paused || p->draining)
                        continue;
                if (held && g->allocated <= g->limit)
                        g->request_sent = false;
                else if (!g->request_sent || g->request_need != g->allocated)
                        send_request(w, p, i, 0, 0);
        }
}

void move(struct world *w, struct process *p)
{
        p->move_ns = NEVER;
        if (!p->connected || p->draining)
                return;
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];
                uint64_t bytes;

                /* Exported memory is restored whenever the limit has room for it, even without a
                 * lease. */
                bytes = MIN(sub_sat(g->exported, g->backed), extent(w));
                if (bytes && g->backed + bytes <= g->limit) {
                        if (!back(w, p, i, bytes))
                                p->move_ns = w->now_ns + 100 * NSEC_PER_MSEC;
                        break;
                }
                if (!p->lease && g->backed > MAX(g->limit, g->exported)) {
                        if (p->cramped) {
                                send_usage(w, p, i); /* the process tries again in a second */
                                p->move_ns = w->now_ns + NSEC_PER_SEC;
                                return;
                        }
                        bytes = liar_moves(p, MIN(g->backed - g->exported, extent(w)));
                        g->backed -= bytes;
                        w->moved[i] += bytes;
                        send_usage(w, p, i);
                        break;
                }
                bytes = liar_moves(p, MIN(g->allocated - g->backed, extent(w)));
                if (bytes && g->backed + bytes <= g->limit) {
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

void drained(struct world *w, struct process *p)
{
        uint64_t lease = p->lease;

        p->drain_ns = NEVER;
        if (!p->draining)
                return;
        p->draining = false;
        if (p->stubborn || p->lie == LIE_REFUSES || (p->paused && p->parks) ||
            (w->o.accidents && chance(w, 20))) {
                w->counts.drain_failures++;
                p->failed = true;
                send_lease(w, p, UP_DRAIN_FAILED, lease);
        } else {
                p->old_lease = p->lease_known ? lease : 0;
                p->lease = 0;
                p->idle = false;
                for (unsigned i = 0; i < w->o.gpus; i++)
                        p->gpu[i].request_sent = false;
                send_lease(w, p, UP_DRAINED, lease);
        }
        agent(w, p);
}

/* A paused process with a lease reports that it is idle; without a lease it withdraws its
 * request. */
void set_paused(struct world *w, struct process *p, bool paused)
{
        p->paused = paused;
        if (p->connected && p->lease && !p->idle)
                send_lease(w, p, UP_IDLE, p->lease);
        for (unsigned i = 0; i < w->o.gpus; i++)
                if (paused && p->connected && p->gpu[i].used && p->gpu[i].request_sent)
                        send_request(w, p, i, 0, 0);
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
        g->unevictable_allowed = a->limit.unevictable;
        send_usage(w, p, a->gpu);
        if (g->commit_asked && g->commit >= g->commit_asked) {
                g->allocated = g->commit_exact <= g->commit && g->commit_exact > g->allocated
                                       ? g->commit_exact
                                       : g->allocated;
                g->commit_asked = 0;
                send_usage(w, p, a->gpu);
        }
        if (g->unevictable_asked && g->unevictable_allowed >= g->unevictable_asked) {
                /* The card must have the bytes, because the daemon made room for them. */
                if (g->unevictable_asked - g->unevictable > really_free(w, a->gpu) &&
                    !w->foreign_ever)
                        fail(w, "unevictable bytes were allowed that the card does not have",
                             number(w, p));
                else if (g->unevictable_asked - g->unevictable <= really_free(w, a->gpu)) {
                        g->spare += g->spare_asked ? g->unevictable_asked - g->unevictable : 0;
                        g->unevictable = g->unevictable_asked;
                }
                g->unevictable_asked = 0;
                g->spare_asked = false;
                w->counts.unevictable_growth++;
                send_usage(w, p, a->gpu);
        }
}

static void on_refuse(struct world *w, struct process *p, const struct sched_action *a)
{
        struct on_gpu *g = &p->gpu[a->gpu];

        w->counts.refusals++;
        if (a->refuse.code == -ENOMEM && g->commit_asked && a->refuse.of == g->commit_sequence) {
                /* The daemon refused a whole block: request the exact bytes instead. */
                if (g->commit_asked > g->commit_exact) {
                        g->commit_asked = g->commit_exact;
                        send_request(w, p, a->gpu, g->commit_exact, g->unevictable_asked);
                        g->commit_sequence = p->sequence;
                        if (g->unevictable_asked)
                                g->unevictable_sequence = p->sequence;
                } else {
                        g->commit_asked = 0;
                }
        } else if (a->refuse.code == -EBUSY && a->refuse.of == g->export_sequence) {
                g->export_asked = 0;
        } else if (a->refuse.code == -ENOSPC && a->refuse.of == g->unevictable_sequence) {
                g->unevictable_asked = 0;
                g->spare_asked = false;
        }
}

/* Some processes ignore SPARE: they stay frozen with their memory evicted. */
static void on_spare(struct world *w, struct process *p, unsigned gpu)
{
        struct on_gpu *g = &p->gpu[gpu];

        if (!g->spare || chance(w, 200))
                return;
        w->counts.spares++;
        g->unevictable -= g->spare;
        if (g->unevictable_asked)
                g->unevictable_asked -= g->spare;
        g->spare = 0;
        send_usage(w, p, gpu);
        send_request(w, p, gpu, g->commit_asked, MAX(g->unevictable, g->unevictable_asked));
        if (g->unevictable_asked)
                g->unevictable_sequence = p->sequence;
        if (g->commit_asked)
                g->commit_sequence = p->sequence;
}

static void on_exported(struct world *w, struct process *p, const struct sched_action *a)
{
        struct on_gpu *g = &p->gpu[a->gpu];

        if (a->exported != g->export_asked && g->export_asked)
                fail(w, "other bytes are exported than were asked for", number(w, p));
        if (g->limit < a->exported)
                fail(w, "bytes are exported that the limit does not cover", number(w, p));
        g->exported = a->exported;
        g->export_asked = 0;
        w->counts.exports++;
}

static void on_grant(struct world *w, struct process *p, const struct sched_action *a)
{
        if (p->lease && !w->restarted_once && !w->counts.returns)
                fail(w, "a second lease", number(w, p));
        p->lease = a->lease.lease;
        p->lease_known = true;
        p->idle = false;
        w->counts.grants++;
        for (unsigned i = 0; i < w->o.gpus; i++) {
                struct on_gpu *g = &p->gpu[i];

                g->request_sent = false;
        }
        if (!p->wants_run)
                p->idle = true;
        if (p->idle || p->paused)
                send_lease(w, p, UP_IDLE, p->lease);
}

void receive(struct world *w, struct process *p, const struct sched_action *a)
{
        if (p->hostile || liar_ignores(p))
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
                } else if (a->lease.lease != p->old_lease) { /* not the lease just given back */
                        fail(w, "REVOKE of another lease", number(w, p));
                }
                break;
        case SCHED_DO_REFUSE:
                on_refuse(w, p, a);
                break;
        case SCHED_DO_EXPORTED:
                on_exported(w, p, a);
                break;
        case SCHED_DO_SPARE:
                on_spare(w, p, a->gpu);
                break;
        case SCHED_DO_CONTESTED:
        case SCHED_DO_SLICE:
        case SCHED_DO_OVERDUE:
        case SCHED_DO_PROMPT:
        case SCHED_DO_PREEMPT:
                break;
        }
        agent(w, p);
}
