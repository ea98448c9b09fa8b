/* pause.c: owns the pauses of processes on the GPU: the orders, the messages that carry them, and
 * the processes' reports. Must never let a client's figure decide anything except whether its own
 * pause holds. */
#include "daemon/ledger/pause.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/state/client.h"
#include "daemon/history/history.h"
#include "daemon/ledger/event.h"

static bool is_connected(const struct client *c)
{
        return c->fd >= 0 && !c->dropped && c->id;
}

static void tell_pause(struct client *c)
{
        struct wire_message m = {.header = {WIRE_PAUSE, WIRE_NO_GPU, 0},
                                 .PAUSE.paused = c->pause.ordered};

        c->pause.told = true;
        client_send(c, &m);
}

static void set_stands(struct client *c, bool stands)
{
        c->pause.stands = stands;
        (void)sched_client_stands(c->server->sched, c->id, stands, clock_now_ns(),
                                  &c->server->actions);
}

/* ---- orders ---- */

static int objection(const struct client *c, bool paused)
{
        if (!paused || c->pause.ordered)
                return 0;
        if (c->frozen.off[0])
                return -EOPNOTSUPP;
        return c->frozen.mode == WIRE_FREEZE_OFF ? -EPERM : 0;
}

/* Applies an order to one record: a process may have one of an earlier connection, too. */
static void order(struct client *c, bool paused)
{
        c->pause.ordered = paused;
        c->pause.known = true;
        if (!is_connected(c))
                return;
        tell_pause(c); /* tell the client before the scheduler requests anything from it */
        event_begin(c->server);
        if (!paused && c->pause.stands)
                set_stands(c, false);
        event_end(c->server);
        history_client(c);
}

int pause_set(struct client *c, bool paused, const struct peer *by)
{
        struct server *s = c->server;
        const pid_t pid = c->peer.pid;
        const bool already = c->pause.ordered == paused;
        const int r = objection(c, paused);
        char who[HISTORY_WHO_MAX];

        if (r < 0)
                return r;
        log_info("process %d (%s) is told to %s, %s", (int)pid, c->name,
                 paused ? "stand still" : "go on",
                 history_order(s, c, paused ? HISTORY_PAUSE : HISTORY_RESUME, by, who));
        for (struct client *o = s->clients; o; o = o->next)
                if (client_is_process(o, pid))
                        order(o, paused);
        return already;
}

/* ---- reports of a process ---- */

/* Notes a report. No process can have been frozen for longer than it has lived. */
static void note(struct client *c, const struct wire_message *m)
{
        uint64_t age_ns = peer_age_ns(c->peer.pid), now_ns = clock_now_ns();

        c->frozen = (struct client_frozen){
                .said = true,
                .since_ns = m->FROZEN.for_ns ? sub_sat(now_ns, MIN(m->FROZEN.for_ns, age_ns)) : 0,
                .times = m->FROZEN.times,
                .lost_ns = MIN(m->FROZEN.lost_ns, age_ns),
                .took_ns = MIN(m->FROZEN.took_ns, age_ns),
                .why = m->FROZEN.why,
                .mode = m->FROZEN.mode,
        };
        (void)snprintf(c->frozen.off, sizeof(c->frozen.off), "%s", m->FROZEN.off);
}

/* True if a pause has no effect, because the program cannot be frozen. Such a pause is withdrawn;
 * the program's user was told that it cannot be frozen. */
static bool cannot(const struct client *c)
{
        return !c->frozen.since_ns && (c->frozen.mode == WIRE_FREEZE_OFF || c->frozen.off[0]);
}

int pause_frozen(struct client *c, const struct wire_message *m)
{
        bool paused = m->FROZEN.why & WIRE_FROZEN_PAUSED, refused;

        note(c, m);
        if (paused && !c->pause.known)
                c->pause.ordered = c->pause.known = true; /* paused by an earlier daemon's order */
        refused = c->pause.ordered && cannot(c) && (paused || c->pause.told);
        if (refused)
                c->pause.ordered = false;
        /* Tell a program that cannot be frozen, or that was resumed while it had no connection, to
         * go on. Otherwise a program that refused before it read the order would be paused
         * later. */
        if (refused || (paused && !c->pause.ordered && !c->pause.told))
                tell_pause(c);
        if (!paused && c->pause.stands)
                set_stands(c, false);
        return 0;
}

static void tell_most(struct client *c)
{
        struct wire_message m = {.header = {WIRE_FREEZE, WIRE_NO_GPU, 0},
                                 .FREEZE.mode = c->server->config->freeze};

        client_send(c, &m);
}

void pause_most_changed(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next)
                if (is_connected(c))
                        tell_most(c);
}

void pause_greeted(struct client *c)
{
        if (c->server->config->freeze != WIRE_FREEZE_MOVE)
                tell_most(c);
        if (c->former)
                c->pause = (struct client_pause){.ordered = c->former->pause.ordered,
                                                 .known = c->former->pause.known};
}

void pause_attached(struct client *c)
{
        if (c->pause.ordered && !c->pause.told)
                tell_pause(c);
}

void pause_refused(struct client *c)
{
        if (c->pause.ordered)
                set_stands(c, true);
}
