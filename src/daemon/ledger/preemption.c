/* preemption.c: owns what the daemon knows of its hand's programs. Must never tell the scheduler
 * that a program can be preempted before the hand has said so.
 * Why: docs/decisions.md, "The daemon's hand". */
#include "daemon/ledger/preemption.h"

#include <unistd.h>

#include "base/clock.h"
#include "daemon/hand/hand.h"
#include "daemon/ledger/event.h"

static void set_preemptible(struct client *c, bool yes)
{
        struct server *s = c->server;

        c->hand.ready = yes;
        if (!yes)
                event_note_preempted(c, false);
        event_begin(s);
        (void)sched_client_preemptible(s->sched, c->id, yes, clock_now_ns(), &s->actions);
        event_end(s);
}

static void on_ready(void *userdata, uint64_t id, bool ready)
{
        struct client *c = server_find(userdata, id);

        if (c && c->hand.offered)
                set_preemptible(c, ready);
}

static void on_done(void *userdata, uint64_t id, uint64_t took_ns)
{
        struct client *c = server_find(userdata, id);

        if (c)
                c->hand.took_ns = took_ns;
}

static void on_lost(void *userdata)
{
        struct server *s = userdata;

        for (struct client *c = s->clients; c; c = c->next) {
                c->hand.offered = false;
                if (c->hand.ready)
                        set_preemptible(c, false);
        }
}

int preemption_new(struct server *s)
{
        const struct hand_calls calls = {.ready = on_ready, .done = on_done, .lost = on_lost};

        return hand_new(s->event, &calls, s, &s->hand);
}

void preemption_offer(struct client *c)
{
        struct wire_message m = {.header = {WIRE_HAND, WIRE_NO_GPU, 0}};
        struct server *s = c->server;
        int fds[2];

        if (c->hand.offered || !c->id || c->fd < 0 || c->dropped || !s->hand ||
            s->config->freeze == WIRE_FREEZE_OFF || hand_add(s->hand, c->id, fds) < 0)
                return;
        c->hand.offered = true;
        client_send_with(c, &m, fds, 2);
        (void)close(fds[0]);
        (void)close(fds[1]);
}

void preemption_offer_all(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next)
                preemption_offer(c);
}

void preemption_forget(struct client *c)
{
        if (c->hand.offered)
                hand_drop(c->server->hand, c->id);
        c->hand.offered = false;
        if (c->hand.ready)
                set_preemptible(c, false);
}
