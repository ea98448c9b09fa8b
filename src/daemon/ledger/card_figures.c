/* card_figures.c: owns what NVML's figures mean for the ledger: foreign bytes, and unevictable
 * bytes of our clients. Must never report a single odd sample: a card and its processes are not
 * read at one instant, while memory moves at 50 GB/s. So the lowest of the last three samples
 * counts.
 * Why: docs/decisions.md, "Unevictable memory of the driver is counted in two ways". */
#include "daemon/ledger/card_figures.h"
#include "daemon/state/client.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/precondition.h"
#include "daemon/setup/kill_point.h"
#include "daemon/ledger/event.h"

#define SAMPLES        ARRAY_SIZE(((struct gpu *)0)->foreign)
#define UNMEASURED_MAX 10 /* periods without figures; missing bytes are forgotten then */

/* Returns the figures of this card in the last look; NULL: there are none. */
static const struct nvml_card *card_of(const struct server *s, unsigned gpu)
{
        int index = s->gpus.list[gpu].nvml_index;

        return s->look && index >= 0 && (unsigned)index < s->look->n ? &s->look->cards[index]
                                                                     : NULL;
}

static const struct nvml_card *measured_card(const struct server *s, unsigned gpu)
{
        const struct nvml_card *card = card_of(s, gpu);

        return card && card->measured ? card : NULL;
}

static uint64_t lowest(const uint64_t *samples, unsigned n)
{
        uint64_t low = UINT64_MAX;

        for (unsigned i = 0; i < MIN(n, SAMPLES); i++)
                low = MIN(low, samples[i]);
        return low;
}

/* Missing samples count as 0. */
static uint64_t second_lowest(const uint64_t *samples, unsigned n)
{
        const uint64_t a = samples[0], b = samples[1], c = samples[2];

        if (n < SAMPLES)
                return n == 2 ? MIN(a, b) : 0;
        return MAX(MIN(a, b), MIN(MAX(a, b), c));
}

uint64_t figures_excess(const struct client_account *acc)
{
        return acc->n_unevictable < SAMPLES ? 0 : lowest(acc->excess, SAMPLES);
}

uint64_t figures_excess_soon(const struct client_account *acc)
{
        return second_lowest(acc->excess, MIN(acc->n_unevictable, SAMPLES));
}

/* Returns the bytes in use on the card that belong to no listed process. */
static uint64_t unnamed_bytes(const struct nvml_card *card)
{
        uint64_t used = card->used_bytes;

        for (unsigned i = 0; i < card->n_processes; i++)
                if (card->processes[i].used_bytes != UINT64_MAX)
                        used = sub_sat(used, card->processes[i].used_bytes);
        return used;
}

/* Finds NVML's figure for a process; UINT64_MAX: NVML lists the process without a figure. -1: NVML
 * does not list the process. */
static int find_process(const struct nvml_card *card, pid_t pid, uint64_t *ret_used)
{
        for (unsigned i = 0; i < card->n_processes; i++)
                if (card->processes[i].pid == (uint32_t)pid) {
                        *ret_used = card->processes[i].used_bytes;
                        return 0;
                }
        return -1;
}

/* NVML counts managed memory for the card but for no process (measured, driver 580). So bytes
 * without a process belong to our clients, up to the managed memory that they report as backed or
 * as left to the driver; the rest counts as foreign until the card shows it free. */
static uint64_t managed_bytes(struct server *s, unsigned gpu, const struct nvml_card *card)
{
        uint64_t managed = 0;

        for (const struct client *c = s->clients; c; c = c->next) {
                const struct client_account *acc = &c->accounts[gpu];
                struct sched_account_view v;

                /* Leave out a client that NVML does not list: measure_client() counts what it
                 * reports as backed. */
                if (c->id && (acc->managed || acc->managed_left) && card->listed && acc->named &&
                    sched_account_view(s->sched, c->id, gpu, &v) == 0)
                        managed += MIN(acc->managed, v.usage.backed) +
                                   MIN(acc->managed_left, card->used_bytes);
        }
        return MIN(managed, unnamed_bytes(card));
}

/* True if the client moves no memory now. Memory that moves is on the card while it is not reported
 * as backed, and must not count as unevictable, however slow the bus or the daemon. So the client's
 * figures must be the same as at the last look. */
static bool is_at_rest(struct server *s, const struct client *c, struct client_account *acc,
                       const struct sched_usage *u)
{
        const uint64_t moved = u->moved_out + u->moved_in;
        const bool same = u->backed == acc->backed_seen && moved == acc->moved_seen;
        struct sched_client_view v;

        acc->backed_seen = u->backed;
        acc->moved_seen = moved;
        return same && sched_client_view(s->sched, c->id, clock_now_ns(), &v) == 0 &&
               v.state != SCHED_EVICTING && v.state != SCHED_RESTORING;
}

/* Returns what this client holds on the card: NVML's figure, or the client's own if NVML gives none
 * (in a container NVML may list other process numbers, or no processes). */
static uint64_t measure_client(struct server *s, struct client *c, unsigned gpu,
                               const struct nvml_card *card, bool sample)
{
        struct client_account *acc = &c->accounts[gpu];
        struct sched_account_view v;
        uint64_t used;

        if (sched_account_view(s->sched, c->id, gpu, &v) < 0)
                return 0;
        if (card->listed && find_process(card, c->peer.pid, &used) == 0 && used != UINT64_MAX) {
                acc->named = s->gpus.list[gpu].names = true;
        } else if (card->listed && acc->named) {
                used = 0;
        } else {
                return v.usage.backed + v.usage.unevictable;
        }
        if (sample && is_at_rest(s, c, acc, &v.usage)) {
                const unsigned i = acc->n_unevictable++ % SAMPLES;

                acc->unevictable[i] = sub_sat(used, v.usage.backed);
                acc->excess[i] = sub_sat(acc->unevictable[i], v.unevictable_known);
        }
        return used;
}

static void tell_unevictable(struct server *s, unsigned gpu)
{
        for (struct client *c = s->clients; c; c = c->next) {
                struct client_account *acc = &c->accounts[gpu];
                uint64_t unevictable;

                if (!c->id || acc->ordinal < 0 || acc->n_unevictable < SAMPLES)
                        continue;
                unevictable = lowest(acc->unevictable, acc->n_unevictable);
                if (unevictable == acc->unevictable_told)
                        continue; /* avoid a pass over all clients for each client without news */
                acc->unevictable_told = unevictable;
                event_begin(s);
                sched_client_unevictable(s->sched, c->id, gpu, unevictable, clock_now_ns(),
                                         &s->actions);
                event_end(s);
        }
}

uint64_t figures_foreign(const struct gpu *g)
{
        return g->n_foreign ? lowest(g->foreign, g->n_foreign) : g->foreign_told;
}

/* True if a rise is small: small rises are noise, and the headroom covers them. */
static bool is_noise(const struct gpu *g, uint64_t foreign)
{
        return foreign > g->foreign_told && g->n_foreign > 1 &&
               foreign - g->foreign_told < MIN(64 * MIB, g->total_bytes / 256);
}

static void tell_foreign(struct server *s, unsigned gpu)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t foreign = figures_foreign(g);

        /* Until the clients of a crashed daemon are back, their memory looks foreign. */
        if (foreign > g->foreign_told && clock_now_ns() < s->return_until_ns)
                return;
        if (is_noise(g, foreign))
                return;
        g->foreign_told = foreign;
        event_begin(s);
        sched_gpu_foreign(s->sched, gpu, foreign, clock_now_ns(), &s->actions);
        event_end(s);
}

static void forget_shortage(struct server *s, unsigned gpu)
{
        event_begin(s);
        sched_gpu_foreign(s->sched, gpu, s->gpus.list[gpu].foreign_told, clock_now_ns(),
                          &s->actions);
        event_end(s);
}

/* Computes the foreign bytes at the last look. sample: also samples our clients' unevictable bytes.
 * 0, or -ENODATA. */
static int judge(struct server *s, unsigned gpu, bool sample, uint64_t *ret_foreign)
{
        const struct nvml_card *card = measured_card(s, gpu);
        uint64_t ours = 0;

        if (!card)
                return -ENODATA;
        for (struct client *c = s->clients; c; c = c->next)
                if (c->id && c->accounts[gpu].ordinal >= 0)
                        ours += measure_client(s, c, gpu, card, sample);
        ours += managed_bytes(s, gpu, card);
        /* If we manage only part of the card, foreign processes may have the rest. */
        *ret_foreign = sub_sat(sub_sat(card->used_bytes, ours),
                               sub_sat(card->total_bytes, s->gpus.list[gpu].total_bytes));
        s->gpus.list[gpu].measured_ns = s->look_ns;
        return 0;
}

static void take_sample(struct server *s, unsigned gpu)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t foreign;

        if (judge(s, gpu, true, &foreign) < 0)
                return;
        g->unmeasured = 0;
        g->foreign[g->n_foreign++ % SAMPLES] = foreign;
        kill_point("measured");

        /* Missing bytes that a client reported (SHORT) count until the next look at the card, even
         * if that look shows no change worth reporting. */
        if (is_noise(g, figures_foreign(g)))
                forget_shortage(s, gpu);
        /* A byte that turns from foreign to unevictable must not count as both in between. */
        if (figures_foreign(g) < g->foreign_told) {
                tell_foreign(s, gpu);
                tell_unevictable(s, gpu);
        } else {
                tell_unevictable(s, gpu);
                tell_foreign(s, gpu);
        }
}

/* Drops the earlier samples: this look's figures count alone. */
static void take_rise(struct server *s, unsigned gpu)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t foreign;

        if (judge(s, gpu, false, &foreign) == 0) {
                g->foreign[0] = foreign;
                g->n_foreign = 1;
        }
        if (figures_foreign(g) > g->foreign_told)
                tell_foreign(s, gpu);
}

/* True if the last look answers a request for one: it must have begun after the request. */
static bool is_answered(const struct server *s, uint64_t *since_ns)
{
        if (!*since_ns || *since_ns > s->look_ns)
                return false;
        *since_ns = 0;
        return true;
}

void figures_looked(struct server *s, bool sample)
{
        for (unsigned i = 0; i < s->gpus.n; i++) {
                struct gpu *g = &s->gpus.list[i];

                if (!g->present)
                        continue;
                if (sample || !g->n_foreign)
                        take_sample(s, i);
                if (is_answered(s, &g->rise_ns))
                        take_rise(s, i);
        }
}

/* Without looks at a card, forgets the bytes that a client found missing some time ago: they may be
 * free again, and the next client that needs them will find out. */
void figures_period(struct server *s)
{
        for (unsigned i = 0; i < s->gpus.n; i++)
                if (s->gpus.list[i].present && ++s->gpus.list[i].unmeasured % UNMEASURED_MAX == 0)
                        forget_shortage(s, i);
}

void figures_rise(struct server *s, unsigned gpu)
{
        PRECONDITION(gpu < SCHED_GPUS_MAX, );
        s->gpus.list[gpu].rise_ns = clock_now_ns();
        (void)reader_ask(s->reader);
}

uint64_t figures_most(struct server *s, const struct client *c, unsigned gpu)
{
        const struct nvml_card *card = measured_card(s, gpu);
        uint64_t own, others = 0, slack = s->gpus.list[gpu].total_bytes / 256;

        if (!card)
                return UINT64_MAX;
        if (card->listed && find_process(card, c->peer.pid, &own) == 0 && own != UINT64_MAX)
                return own + unnamed_bytes(card) + slack; /* unnamed: managed memory */
        /* A process that is not listed, as in a container, holds at most the bytes that belong to
         * no other known process. */
        for (const struct client *o = s->clients; o; o = o->next) {
                struct sched_account_view v;

                if (o != c && o->peer.pid != c->peer.pid && o->id &&
                    sched_account_view(s->sched, o->id, gpu, &v) == 0)
                        others += v.usage.backed + v.unevictable;
        }
        return sub_sat(card->used_bytes, others) + slack;
}

/* True if NVML would list the process as long as it holds memory: NVML lists other processes by our
 * numbers, and this one is in our pid namespace (pid > 0). */
static bool would_be_named(const struct server *s, const struct client *c, unsigned gpu)
{
        return s->gpus.list[gpu].names && c->peer.pid > 0;
}

bool figures_is_gone(struct server *s, struct client *c, uint64_t since_ns, bool *ret_sure)
{
        bool sure = true, gone = true;

        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct client_account *acc = &c->accounts[g];
                struct sched_account_view v;
                const struct nvml_card *card;
                uint64_t used;

                if (!c->id || sched_account_view(s->sched, c->id, g, &v) < 0)
                        continue;
                card = card_of(s, g);
                if (!card || !card->listed) {
                        sure = false;
                        continue;
                }
                if (find_process(card, c->peer.pid, &used) == 0) {
                        acc->named = true;
                        gone = false;
                }
                if (s->look_ns < since_ns)
                        gone = false; /* the look is too old to show it; wait for the next */
                sure = sure && (acc->named || (s->look_ns > since_ns + s->config->sched.grace_ns &&
                                               would_be_named(s, c, g)));
        }
        *ret_sure = sure;
        return gone;
}
