/* loop_doors.c: owns what every part of the daemon may ask of the loop: find a client, open and
 * shut the listening sockets, look at the cards soon, end. Must never serve a connection. */
#include "daemon/state/server.h"

#include <systemd/sd-daemon.h>

#include "base/log.h"
#include "base/macros.h"
#include "daemon/state/client.h"
#include "daemon/people/hangup.h"

#define ACCEPT_PAUSE_US UINT64_C(100000)

struct client *server_find(const struct server *s, sched_client id)
{
        uint32_t slot = (uint32_t)id;

        if (slot > s->config->sched.clients_max || !s->by_slot[slot] || s->by_slot[slot]->id != id)
                return NULL;
        return s->by_slot[slot];
}

void server_stop(struct server *s, enum server_end why)
{
        (void)sd_event_exit(s->event, (int)why);
}

void server_arm_once(sd_event_source *timer, bool wanted, uint64_t usec)
{
        int enabled = SD_EVENT_OFF;

        (void)sd_event_source_get_enabled(timer, &enabled);
        if (wanted == (enabled != SD_EVENT_OFF))
                return;
        if (wanted)
                (void)sd_event_source_set_time_relative(timer, usec);
        (void)sd_event_source_set_enabled(timer, wanted ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

void server_measure_soon(struct server *s)
{
        (void)sd_event_source_set_time_relative(s->measure_timer, 0);
}

void server_set_accepting(struct server *s, bool accept)
{
        sd_event_source *const doors[] = {s->client_source, s->control_source, s->status_source,
                                          s->metrics_source};

        for (size_t i = 0; i < ARRAY_SIZE(doors); i++)
                if (doors[i])
                        (void)sd_event_source_set_enabled(doors[i],
                                                          accept ? SD_EVENT_ON : SD_EVENT_OFF);
}

void server_open_doors(struct server *s)
{
        if (s->open)
                return;
        s->open = true;
        server_set_accepting(s, true);
        log_info("subletd " SUBLET_VERSION " serves %s", s->place->dir);
        (void)sd_notify(0, "READY=1");
}

static void pause_accept(struct server *s)
{
        server_set_accepting(s, false);
        server_arm_once(s->accept_timer, true, ACCEPT_PAUSE_US);
}

void server_no_descriptor(struct server *s)
{
        log_warning("no descriptor left: new connections wait");
        pause_accept(s);
}

bool server_may_accept(struct server *s)
{
        if (!hangup_is_busy())
                return true;
        log_warning("descriptors that somebody has sent do not close: new connections wait");
        pause_accept(s);
        return false;
}
