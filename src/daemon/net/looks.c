/* looks.c: owns what follows a look at the cards, in this order: the table of cards, foreign bytes,
 * clients that waited for the look. Must never wait for a look. */
#include "daemon/net/looks.h"
#include "daemon/net/peer_daemons.h"
#include "daemon/state/client.h"
#include "daemon/net/session.h"
#include "daemon/ledger/event.h"
#include "daemon/ledger/card_figures.h"
#include "daemon/ledger/reserve.h"
#include "daemon/net/client_connection.h"

#include "base/clock.h"

#define BLIND_MAX 10 /* periods without any readable card, after which NVML is loaded anew */

static void tell_totals(struct server *s)
{
        for (unsigned i = 0; i < s->gpus.n; i++) {
                struct gpu *g = &s->gpus.list[i];

                if (!g->corrected)
                        continue;
                g->corrected = false;
                event_begin(s);
                sched_gpu_total(s->sched, i, g->total_bytes, clock_now_ns(), &s->actions);
                event_end(s);
        }
}

/* Drops the clients of displaced cards. They reconnect at once, report what they hold, and find
 * NVML's cards. */
static void drop_displaced(struct server *s)
{
        for (struct client *c = s->clients; c; c = c->next)
                for (unsigned i = 0; i < s->gpus.n; i++)
                        if (s->gpus.list[i].displaced && c->accounts[i].ordinal >= 0) {
                                client_drop(c, "NVML describes its GPU otherwise than it did");
                                client_mark_gone(c);
                        }
}

/* True if NVML has read no card for many periods: perhaps it belongs to a driver that is no longer
 * loaded. */
static bool is_blind(struct server *s)
{
        bool sees = false;

        for (unsigned i = 0; i < s->look->n; i++)
                sees |= s->look->cards[i].measured;
        s->blind = sees ? 0 : s->blind + 1;
        return s->blind % BLIND_MAX == 0 && !sees;
}

static void end_period(struct server *s)
{
        s->sample_ns = 0;
        for (struct client *c = s->clients; c; c = c->next)
                client_check_left(c);
        peer_daemons_tick(s);
        session_resume(s);
        reserve_prune(s);
        gpus_forget(&s->gpus, s->sched, clock_now_ns());
}

void looks_told(void *userdata, const struct nvml_look *look, uint64_t asked_ns)
{
        struct server *s = userdata;
        bool sample = s->sample_ns && s->sample_ns <= asked_ns;

        s->look = look;
        s->look_ns = asked_ns;
        if (look) {
                gpus_take(&s->gpus, look, s->sched, clock_now_ns());
                tell_totals(s);
                drop_displaced(s);
                figures_looked(s, sample);
        }
        for (struct client *c = s->clients; c; c = c->next)
                client_looked(c);
        if (sample)
                end_period(s);
        server_open_doors(s);
        if (look && sample && is_blind(s))
                reader_restart(s->reader);
}

/* A missing NVML is tried again while clients have GPUs: the driver is loaded then. */
void looks_sample(struct server *s)
{
        bool worth = s->look || s->n_attached > 0 || !s->open;

        if (!s->sample_ns)
                s->sample_ns = clock_now_ns();
        if (!worth || !reader_ask(s->reader)) {
                server_open_doors(s);
                end_period(s);
        }
}

void looks_afresh(struct server *s)
{
        for (unsigned i = 0; i < s->gpus.n; i++)
                s->gpus.list[i].n_foreign = 0;
        looks_sample(s);
}
