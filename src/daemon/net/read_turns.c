/* read_turns.c: owns the order in which clients' messages are read.
 * Must never let the messages of one user's clients, however many, delay another user's by more
 * than a turn. */
#include "daemon/net/read_turns.h"

#include "base/clock.h"
#include "daemon/state/client.h"
#include "daemon/net/client_connection.h"

/* A timer comes after all pending events; a deferred source would come before them every time. */
static void arm(struct server *s)
{
        (void)sd_event_source_set_time_relative(s->turn_source, 0);
        (void)sd_event_source_set_enabled(s->turn_source, SD_EVENT_ONESHOT);
}

/* Returns the user with the most credit; of equal ones, the one that was served longest ago. */
static struct user_queue **next_user(struct server *s, uint64_t now)
{
        struct user_queue **best = &s->turns;

        for (struct user_queue **q = best; *q; q = &(*q)->next)
                if (users_credit((*q)->user, now) > users_credit((*best)->user, now))
                        best = q;
        return best;
}

static void append_user(struct server *s, struct user_queue *q)
{
        struct user_queue **end = &s->turns;

        while (*end)
                end = &(*end)->next;
        q->next = NULL;
        *end = q;
}

static bool is_empty(const struct user_queue *q)
{
        return !q->joining.first && !q->rest.first;
}

static struct client_list *list_of(struct user_queue *q, const struct client *c)
{
        return c->turn_joins ? &q->joining : &q->rest;
}

static void append(struct user_queue *q, struct client *c)
{
        struct client_list *l;

        c->turn_joins = !c->id;
        l = list_of(q, c);
        c->turn_next = NULL;
        if (l->first)
                l->last->turn_next = c;
        else
                l->first = c;
        l->last = c;
        c->turn_waits = true;
}

static struct client *take_first(struct user_queue *q)
{
        struct client_list *l =
                !q->joining.first || (q->rest_next && q->rest.first) ? &q->rest : &q->joining;
        struct client *c = l->first;

        q->rest_next = l == &q->joining;
        l->first = c->turn_next;
        c->turn_waits = false;
        return c;
}

/* Reads one message of each of the user's clients in turn, until the user's time is over. */
static int on_turn(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct server *s = userdata;
        uint64_t began = clock_now_ns(), now = began;
        struct user_queue **link = next_user(s, now), *q = *link;

        (void)src;
        (void)usec;
        if (!q)
                return 0;
        *link = q->next;
        while (!is_empty(q) && now - began < TURN_NS) {
                struct client *c = take_first(q);

                if (client_turn(c))
                        append(q, c);
                now = clock_now_ns();
        }
        users_charge(q->user, now - began, now);
        if (!is_empty(q))
                append_user(s, q);
        if (s->turns)
                arm(s);
        return 0;
}

void read_turns_wait(struct client *c)
{
        struct user_queue *q = users_queue(c->user);

        if (c->turn_waits)
                return;
        if (!c->server->turns)
                arm(c->server);
        if (is_empty(q))
                append_user(c->server, q);
        append(q, c);
}

void read_turns_leave(struct client *c)
{
        struct user_queue *q = users_queue(c->user), **link = &c->server->turns;
        struct client_list *l = list_of(q, c);
        struct client **at = &l->first, *last = NULL;

        if (!c->turn_waits)
                return;
        for (; *at != c; at = &(*at)->turn_next)
                last = *at;
        *at = c->turn_next;
        if (l->last == c)
                l->last = last;
        if (!is_empty(q))
                return;
        while (*link != q)
                link = &(*link)->next;
        *link = q->next;
}

int read_turns_open(struct server *s)
{
        int r = sd_event_add_time_relative(s->event, &s->turn_source, CLOCK_MONOTONIC, 0, 1,
                                           on_turn, s);

        return r < 0 ? r : sd_event_source_set_enabled(s->turn_source, SD_EVENT_OFF);
}

void read_turns_close(struct server *s)
{
        (void)sd_event_source_disable_unref(s->turn_source);
}
