/* history.c: owns what is worth a record: states of clients, and what moved of their memory. Must
 * never let one user's programs push out the records of others at once, nor decide anything.
 * Why: docs/decisions.md, "The history is always on, and costs too little to be off". */
#include "daemon/history/history.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/precondition.h"
#include "daemon/history/record_ring.h"
#include "daemon/state/client.h"

#define UNUSED_NS    (NSEC_PER_SEC / 10) /* a lease unused for less is not noted: gaps are short */
#define PART_OF_CARD 64                  /* a change of less than the card / 64 is not noted */
#define ENTRY_COSTS  10                  /* a row costs so many records: rows are scarcer */

_Static_assert((int)SCHED_IDLE == HISTORY_IDLE && (int)SCHED_WAITING == HISTORY_WAITING &&
                       (int)SCHED_RESTORING == HISTORY_RESTORING &&
                       (int)SCHED_RUNNING == HISTORY_RUNNING &&
                       (int)SCHED_DRAINING == HISTORY_DRAINING &&
                       (int)SCHED_EVICTING == HISTORY_EVICTING,
               "a record has the scheduler's states");

/* ---- the daemon ---- */

static void note_daemon(struct server *s, enum history_kind kind)
{
        const struct history_record r = {.time_ns = clock_now_ns(),
                                         .kind = (uint8_t)kind,
                                         .program = HISTORY_NO_PROGRAM,
                                         .state = (uint8_t)s->config->sched.mode,
                                         .value = s->config->sched.quantum_ns};

        if (s->history)
                ring_append(s->history, &r);
}

void history_began(struct server *s)
{
        if (s->history)
                ring_take(s->history, clock_now_ns());
        note_daemon(s, HISTORY_START);
}

void history_settings(struct server *s)
{
        note_daemon(s, HISTORY_SETTINGS);
}

/* ---- a client ---- */

struct change {
        uint64_t time_ns;
        struct sched_look look;
        uint8_t state, marks; /* the new ones */
        bool again;           /* the last record of the state will soon be overwritten */
};

static void append(struct client *c, unsigned gpu, struct history_record r)
{
        r.program = c->history.program;
        r.gpu = (uint8_t)gpu;
        ring_append(c->server->history, &r);
}

static void note_moved(struct client *c, unsigned gpu, enum history_kind kind, uint64_t bytes,
                       uint64_t backed, uint64_t time_ns)
{
        if (bytes)
                append(c, gpu,
                       (struct history_record){.time_ns = time_ns,
                                               .kind = (uint8_t)kind,
                                               .value = bytes,
                                               .more = backed});
}

/* Returns the bytes that the client waits for on this GPU. */
static uint64_t lacks(const struct sched_look *look, const struct sched_account_view *v)
{
        if (look->unevictable)
                return sub_sat(v->unevictable_asked, v->unevictable);
        if (look->grows || look->state == SCHED_WAITING || look->state == SCHED_RESTORING)
                return sub_sat(v->need, v->limit);
        return 0;
}

static bool has_grown(const struct server *s, unsigned gpu, uint64_t from, uint64_t to)
{
        struct sched_gpu_view g;

        return from != to && sched_gpu_view(s->sched, gpu, &g) == 0 &&
               MAX(from, to) - MIN(from, to) >= g.total / PART_OF_CARD;
}

static void note_gpu(struct client *c, unsigned gpu, const struct change *ch)
{
        struct client_noted *n = &c->accounts[gpu].noted;
        const bool state = ch->again || !n->known || ch->state != c->history.state ||
                           ch->marks != c->history.marks;
        struct sched_account_view v;

        if (sched_account_view(c->server->sched, c->id, gpu, &v) < 0)
                return;
        if (n->known) { /* a process that comes back reports what it has moved before, too */
                note_moved(c, gpu, HISTORY_OUT, sub_sat(v.usage.moved_out, n->moved_out),
                           v.usage.backed, ch->time_ns);
                note_moved(c, gpu, HISTORY_IN, sub_sat(v.usage.moved_in, n->moved_in),
                           v.usage.backed, ch->time_ns);
        }
        if (state)
                append(c, gpu,
                       (struct history_record){.time_ns = ch->time_ns,
                                               .kind = HISTORY_STATE,
                                               .value = v.usage.backed,
                                               .more = lacks(&ch->look, &v),
                                               .state = ch->state,
                                               .marks = ch->marks,
                                               .before =
                                                       n->known ? c->history.state : HISTORY_ABSENT,
                                               .before_marks = n->known ? c->history.marks : 0});
        else if (has_grown(c->server, gpu, n->backed, v.usage.backed))
                append(c, gpu,
                       (struct history_record){.time_ns = ch->time_ns,
                                               .kind = HISTORY_MEMORY,
                                               .value = v.usage.backed});
        else
                v.usage.backed = n->backed;
        *n = (struct client_noted){true, v.usage.moved_out, v.usage.moved_in, v.usage.backed};
}

/* Notes the client's state if it differs from the noted one, and what has moved until now. */
static void note(struct client *c, const struct change *ch)
{
        struct client_history *h = &c->history;

        for (unsigned i = 0; i < WIRE_GPUS_MAX; i++)
                if (c->gpu_of[i] >= 0)
                        note_gpu(c, (unsigned)c->gpu_of[i], ch);
        if (ch->again || ch->state != h->state || ch->marks != h->marks)
                h->at = ring_count(c->server->history);
        h->state = ch->state;
        h->marks = ch->marks;
        h->noted_ns = ch->time_ns;
}

static uint8_t marks_of(const struct client *c, const struct sched_look *look)
{
        return (uint8_t)((look->grows ? HISTORY_GROWS : 0) |
                         (look->unevictable ? HISTORY_UNEVICTABLE : 0) |
                         (c->frozen.since_ns ? HISTORY_FROZEN : 0) |
                         (c->pause.ordered ? HISTORY_PAUSED : 0) |
                         (look->flags & SCHED_OVERDUE ? HISTORY_OVERDUE : 0) |
                         (look->flags & SCHED_LOST ? HISTORY_LOST : 0));
}

/* A lease that has been unused for long enough is noted with the time at which that began. Returns
 * the client's mark HISTORY_UNUSED, or 0. */
static uint8_t note_unused(struct client *c, const struct change *ch)
{
        const bool unused = ch->look.idle && ch->look.state == SCHED_RUNNING;
        struct client_history *h = &c->history;
        struct change since = *ch;

        if (unused && !h->unused_ns)
                h->unused_ns = ch->time_ns;
        if (h->unused_ns && !(h->marks & HISTORY_UNUSED) &&
            ch->time_ns - h->unused_ns >= UNUSED_NS) {
                since.time_ns = MAX(h->unused_ns, h->noted_ns);
                since.state = h->state;
                since.marks = h->marks | HISTORY_UNUSED;
                note(c, &since);
        }
        if (!unused)
                h->unused_ns = 0;
        return unused ? h->marks & HISTORY_UNUSED : 0;
}

/* Returns the number of GPUs that the client uses, and whether one of them is new. */
static unsigned gpus_of(const struct client *c, bool *ret_new)
{
        unsigned n = 0;

        *ret_new = false;
        for (unsigned i = 0; i < WIRE_GPUS_MAX; i++) {
                if (c->gpu_of[i] < 0)
                        continue;
                *ret_new |= !c->accounts[c->gpu_of[i]].noted.known;
                n++;
        }
        return n;
}

/* Gives the client its row. False: it uses no GPU, its user has had too many, or no row is free. */
static bool enter(struct client *c, unsigned gpus, uint64_t now_ns)
{
        struct client_history *h = &c->history;

        if (!h->entered && gpus && users_note(c->user, ENTRY_COSTS, now_ns)) {
                h->program = ring_enter(c->server->history, &c->peer, c->name, now_ns);
                h->state = HISTORY_ABSENT;
                h->entered = h->program != HISTORY_NO_PROGRAM;
        }
        return h->entered;
}

/* Returns whether memory has moved that no record tells of. */
static bool has_moved(const struct client *c)
{
        for (unsigned i = 0; i < WIRE_GPUS_MAX; i++) {
                const int gpu = c->gpu_of[i];
                struct sched_account_view v;

                if (gpu >= 0 &&
                    sched_account_view(c->server->sched, c->id, (unsigned)gpu, &v) == 0 &&
                    (v.usage.moved_out > c->accounts[gpu].noted.moved_out ||
                     v.usage.moved_in > c->accounts[gpu].noted.moved_in))
                        return true;
        }
        return false;
}

/* Why the daemon looks at a client: something may have changed, somebody asks for the records, or a
 * second has passed. */
enum occasion { EVENT, COPY, PERIOD };

static void look_at(struct client *c, enum occasion why)
{
        struct server *s = c->server;
        struct client_history *h = &c->history;
        struct change ch;
        unsigned gpus;
        bool new, news;

        if (!s->history || !c->id || sched_client_look(s->sched, c->id, &ch.look) < 0)
                return;
        ch.time_ns = clock_now_ns();
        gpus = gpus_of(c, &new);
        if (!enter(c, gpus, ch.time_ns))
                return;
        ch.again = why == PERIOD && ring_count(s->history) - h->at > HISTORY_RECORDS / 2;
        ch.state = (uint8_t)ch.look.state;
        ch.marks = marks_of(c, &ch.look) | note_unused(c, &ch);
        news = new || ch.state != h->state || ch.marks != h->marks || (why == COPY && has_moved(c));
        /* If the user has had too many records, the next period notes the state. */
        if (why == PERIOD || (news && users_note(c->user, gpus, ch.time_ns)))
                note(c, &ch);
}

void history_client(struct client *c)
{
        look_at(c, EVENT);
}

void history_event(struct server *s)
{
        sched_client id;

        while ((id = sched_take_changed(s->sched))) {
                struct client *c = server_find(s, id);

                if (c)
                        look_at(c, EVENT);
        }
}

void history_period(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next)
                look_at(c, PERIOD);
}

void history_refused(struct client *c, unsigned gpu, unsigned code)
{
        const uint64_t now = clock_now_ns();

        PRECONDITION(gpu < SCHED_GPUS_MAX, );
        if (c->history.entered && users_note(c->user, 1, now))
                append(c, gpu,
                       (struct history_record){
                               .time_ns = now, .kind = HISTORY_REFUSED, .state = (uint8_t)code});
}

static void note_order(struct server *s, struct client *of, struct history_record r)
{
        bool noted = !of;

        if (!s->history)
                return;
        r.program = HISTORY_NO_PROGRAM;
        if (noted)
                ring_append(s->history, &r);
        for (unsigned i = 0; of && of->history.entered && i < WIRE_GPUS_MAX && !noted; i++) {
                noted = of->gpu_of[i] >= 0; /* once for all of its GPUs */
                if (noted)
                        append(of, (unsigned)of->gpu_of[i], r);
        }
}

const char *history_order(struct server *s, struct client *of, enum history_order what,
                          const struct peer *by, char ret_who[static HISTORY_WHO_MAX])
{
        const bool in_pod = by->tenant.kind == TENANT_POD;
        const uint64_t now_ns = clock_now_ns();

        if (!of || users_note(of->user, 1, now_ns))
                note_order(s, of,
                           (struct history_record){.time_ns = now_ns,
                                                   .kind = HISTORY_ORDER,
                                                   .state = (uint8_t)what,
                                                   .value = by->uid,
                                                   .more = (uint64_t)MAX(by->pid, 0)});
        (void)snprintf(ret_who, HISTORY_WHO_MAX, "by user %lu%s%s, process %d",
                       (unsigned long)by->uid, in_pod ? " of pod " : "",
                       in_pod ? by->tenant.id : "", (int)by->pid);
        return ret_who;
}

void history_left(struct client *c)
{
        const struct change ch = {.time_ns = clock_now_ns(), .state = HISTORY_ABSENT};

        if (!c->history.entered)
                return;
        note(c, &ch);
        ring_leave(c->server->history, c->history.program, ch.time_ns);
        c->history.entered = false;
}

/* Hides who gave an order. If the order was for a program, viewers who may know the program see it.
 * If it was for the daemon, only those who may give it orders do. */
static void hide_orders(const struct peer *viewer, struct history_program *programs,
                        const struct ring_copy *copy)
{
        struct history_record *r = (struct history_record *)(programs + copy->programs);

        for (const struct history_record *end = r + copy->records; r < end; r++) {
                if (r->kind != HISTORY_ORDER || viewer->trusted)
                        continue;
                if (r->program < copy->programs && programs[r->program].uid != UINT32_MAX &&
                    programs[r->program].began_ns <= r->time_ns)
                        continue;
                r->value = UINT32_MAX;
                r->more = 0;
        }
}

void *history_copy(struct server *s, const struct peer *viewer, struct ring_copy *ret)
{
        struct history_program *programs;

        if (!s->history)
                return NULL;
        for (struct client *c = s->clients; c; c = c->next)
                look_at(c, COPY);
        programs = ring_copy(s->history, ret);
        for (size_t i = 0; programs && i < ret->programs; i++) {
                const struct peer of = ring_peer(s->history, i);

                if (peer_has_right(viewer, &of))
                        continue;
                programs[i].uid = UINT32_MAX;
                memset(programs[i].name, 0, sizeof(programs[i].name));
        }
        if (programs)
                hide_orders(viewer, programs, ret);
        return programs;
}
