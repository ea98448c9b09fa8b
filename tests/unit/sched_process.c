/* sched_process.c: owns the model of the programs: they start, work, grow, rest, die and return.
 * Must never call the scheduler except to connect and to leave. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched_world_internal.h"

/* ---- processes ---- */

/* Joins the other processes of the group, lost ones too. */
static void join(struct world *w, const struct process *p, sched_client id)
{
        for (unsigned i = 0; i < w->o.clients; i++) {
                const struct process *q = &w->p[i];

                if (q != p && q->id && are_one(w, p, q) && sched_client_join(w->s, id, q->id) < 0)
                        fail(w, "a process may not join its group", number(w, p));
        }
}

void connect_process(struct world *w, struct process *p)
{
        bool open = is_open(p);
        sched_client id = 0;
        struct sched_actions out = {0};

        if (sched_client_add(w->s, portions_origin(w, p), p->priority, w->now_ns, &id) < 0)
                fail(w, "no room for a client", number(w, p));
        else if (w->o.shares && sched_client_share(w->s, id, &p->share, w->now_ns, &out) < 0)
                fail(w, "a process may not have a share", number(w, p));
        else if (p->id && sched_client_returned(w->s, id, p->id) < 0)
                fail(w, "a process may not return", number(w, p));
        join(w, p, id);
        perform(w, &out);
        p->id = id;
        p->preemptible = p->preempted = false;
        if (w->o.preempts && chance(w, 800))
                tell_preemptible(w, p, true);
        p->connected = p->attached = true;
        p->reconnect_ns = NEVER;
        p->lease_known = p->stands = false;
        p->old_lease = 0;
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
                                  .unevictable = g->unevictable},
                        .running = open,
                        .run = p->wants_run && !open && !p->paused,
                        .idle = open && (p->idle || p->paused),
                        .detached = p->detached,
                        .sequence = ++p->sequence,
                };
                if (!g->unevictable && !g->unevictable_asked) {
                        g->unevictable_asked =
                                w->o.total_bytes / 128 + below(w, w->o.total_bytes / 64);
                        g->asked_ns = w->now_ns;
                        m.attach.unevictable_requested = g->unevictable_asked;
                        g->unevictable_sequence = p->sequence;
                }
                g->limit_sequence = 0;
                g->known = false;
                /* What the daemon allowed on another connection does not count. */
                g->commit = g->allocated;
                g->limit = g->backed;
                g->unevictable_allowed = g->unevictable;
                g->request_sent = false;
                g->need_delivered = 0;
                push(w, &p->up, &m);
                /* The process requests exports that are not backed again later. */
                g->exported = MIN(g->exported, g->backed);
                if (g->exported)
                        send_export(w, p, i, g->exported, true);
        }
        if (p->hostile) {
                struct message m = {.type = UP_GARBAGE};

                push(w, &p->up, &m);
        }
        agent(w, p);
}

void disconnect(struct world *w, struct process *p)
{
        struct sched_actions out = {0};

        drop_messages(&p->up);
        drop_messages(&p->down);
        for (unsigned i = 0; i < w->o.gpus; i++)
                p->gpu[i].commit_asked = p->gpu[i].unevictable_asked = p->gpu[i].export_asked = 0;
        p->connected = p->attached = false;
        p->move_ns = NEVER;
        if (p->draining) { /* the drain ends with its connection, and the gate opens again */
                p->draining = false;
                p->drain_ns = NEVER;
        }
        if (p->id) {
                sched_client_lost(w->s, p->id, w->now_ns, &out);
                perform(w, &out);
        }
}

void start_process(struct world *w, struct process *p)
{
        struct queue up = p->up, down = p->down;
        uint64_t random = p->random;

        drop_messages(&up);
        drop_messages(&down);
        *p = (struct process){
                .alive = true,
                .random = random,
                .up = up,
                .down = down,
                .priority = !w->o.priorities ? 0
                            : w->o.group     ? (int)(number(w, p) / w->o.group % 3)
                                             : (int)below(w, 3),
                .start_ns = NEVER,
                .think_ns = w->now_ns + below(w, NSEC_PER_SEC),
                .drain_ns = NEVER,
                .move_ns = NEVER,
                .continue_ns = NEVER,
                .reconnect_ns = NEVER,
                .gone_ns = NEVER,
                .hostile = w->o.hostile && p == &w->p[0],
                .size = below(w, w->o.total_bytes * 9 / 10),
        };
        liar_draw(w, p);
        portions_ask(w, p);
        p->gpu[below(w, w->o.gpus)].used = true;
        if (chance(w, 600))
                p->gpu[below(w, w->o.gpus)].used = true;
        connect_process(w, p);
}

void kill_process(struct world *w, struct process *p)
{
        w->counts.deaths++;
        p->alive = p->stopped = false;
        p->think_ns = p->drain_ns = p->continue_ns = p->reconnect_ns = NEVER;
        if (p->connected || p->id)
                disconnect(w, p);
        p->move_ns = NEVER;
        p->gone_ns = w->now_ns + below(w, 3 * NSEC_PER_SEC);
}

/* Ends the program, which sends a BYE. */
void end_process(struct world *w, struct process *p)
{
        w->counts.ends++;
        p->alive = p->connected = p->attached = p->stopped = p->draining = false;
        p->think_ns = p->drain_ns = p->move_ns = p->continue_ns = p->reconnect_ns = NEVER;
        drop_messages(&p->up);
        drop_messages(&p->down);
        bury(w, p);
}

void bury(struct world *w, struct process *p)
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
        /* Another program may start in place of this one. */
        p->start_ns = w->now_ns +
                      below(w, p->lie == LIE_SHORT_LIVED ? NSEC_PER_SEC / 20 : 5 * NSEC_PER_SEC);
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

        /* Most requests stay within the program's size, a few exceed every bound. */
        if (!p->connected || g->commit_asked || (g->allocated + bytes > p->size && !chance(w, 30)))
                return;
        if (g->allocated + bytes <= g->commit) {
                g->allocated += bytes;
                send_usage(w, p, i);
                return;
        }
        g->commit_exact = g->allocated + bytes;
        g->commit_asked = (g->commit_exact + block - 1) / block * block;
        g->asked_ns = w->now_ns;
        send_request(w, p, i, g->commit_asked, g->unevictable_asked);
        g->commit_sequence = p->sequence;
        if (g->unevictable_asked)
                g->unevictable_sequence = p->sequence;
}

static void release(struct world *w, struct process *p)
{
        unsigned i = some_gpu(w, p);
        struct on_gpu *g = &p->gpu[i];
        uint64_t bytes = below(
                w,
                (g->allocated - MAX(g->exported, g->export_asked)) / (chance(w, 200) ? 1 : 8) + 1);

        if (!p->connected)
                return;
        /* This frees unbacked memory first, and backed memory only after that. */
        g->allocated -= bytes;
        g->backed = MIN(g->backed, g->allocated);
        send_usage(w, p, i);
        if (g->commit > g->allocated + w->o.total_bytes / 8 && !g->commit_asked && chance(w, 300))
                send_request(w, p, i, g->allocated + 1, g->unevictable_asked);
}

/* Sends a message about a lease that is over, which no library should do. */
static void repeat(struct world *w, struct process *p)
{
        const enum message_type types[] = {UP_IDLE, UP_DRAINED, UP_DRAIN_FAILED};

        if (!p->connected || !p->old_lease || p->old_lease == p->lease)
                return;
        w->counts.stale++;
        send_lease(w, p, types[below(w, ARRAY_SIZE(types))], p->old_lease);
}

/* Drains and gives the lease back unasked; work waiting at the gate requests a lease again. */
static void give_back(struct world *w, struct process *p)
{
        if (!p->connected || !p->lease || !p->lease_known || p->draining || p->paused)
                return;
        w->counts.given_back++;
        p->draining = true;
        p->drain_ns = w->now_ns + below(w, NSEC_PER_MSEC);
}

static bool all_within_limits(const struct process *p)
{
        for (unsigned i = 0; i < WORLD_GPUS_MAX; i++)
                if (p->gpu[i].backed > p->gpu[i].limit)
                        return false;
        return true;
}

static void grow_unevictable(struct world *w, struct process *p)
{
        unsigned i = some_gpu(w, p);
        struct on_gpu *g = &p->gpu[i];

        if (!p->connected || g->unevictable_asked || !g->unevictable)
                return;
        g->unevictable_asked =
                g->unevictable + 1 + below(w, w->o.total_bytes / (chance(w, 100) ? 4 : 64));
        g->spare_asked = !g->spare && chance(w, 300);
        g->asked_ns = w->now_ns;
        send_request(w, p, i, g->commit_asked, g->unevictable_asked);
        g->unevictable_sequence = p->sequence;
        if (g->commit_asked)
                g->commit_sequence = p->sequence;
}

/* Other processes open some of the process's memory, or close it. */
static void export(struct world *w, struct process *p)
{
        unsigned i = some_gpu(w, p);
        struct on_gpu *g = &p->gpu[i];

        if (!p->connected || g->export_asked)
                return;
        if (g->exported && chance(w, 500)) {
                g->exported = chance(w, 500) ? 0 : below(w, g->exported);
                send_export(w, p, i, g->exported, false);
        } else if (g->allocated > g->exported) {
                g->export_asked = g->exported + 1 +
                                  below(w, MIN(g->allocated - g->exported, w->o.total_bytes / 8));
                g->export_asked = MIN(g->export_asked, g->allocated);
                g->asked_ns = w->now_ns;
                send_export(w, p, i, g->export_asked, false);
                g->export_sequence = p->sequence;
        }
}

/* Makes the program's next choice: to work, grow, free or rest. */
void think(struct world *w, struct process *p)
{
        p->think_ns = w->now_ns + below(w, chance(w, 100) ? 3 * NSEC_PER_SEC : 100 * NSEC_PER_MSEC);
        if (p->hostile) {
                struct message m = {.type = UP_GARBAGE};

                if (p->connected)
                        push(w, &p->up, &m);
                return;
        }
        if (p->lie && liar_thinks(w, p))
                return;
        if (chance(w, 10))
                repeat(w, p);
        if (chance(w, p->lease && p->wants_run && !runs(p) ? 200 : 20))
                give_back(w, p); /* more often with a lease that waits for growth, a rare state */
        if (chance(w, p->draining || !all_within_limits(p) ? 30 : 0)) {
                end_process(w, p); /* the process ends while it is giving way */
                return;
        }
        if (chance(w, p->poisoned ? 50 : 2) && p->connected) {
                p->poisoned = !p->poisoned; /* the context breaks, or a new one replaces it */
                send_usage(w, p, some_gpu(w, p));
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
                        grow_unevictable(w, p);
                else if (chance(w, 200))
                        export(w, p);
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
