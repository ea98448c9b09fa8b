/* fuzz_sched.c: takes bytes as events for the scheduler, and checks every invariant after each
 * event. Most clients that the bytes describe send figures that keep the protocol, because a
 * refused message reaches no further code. Only sched_check() judges. */
#include "fuzz.h"

#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sched/sched.h"

#define CLIENTS 6
#define GPUS    2
#define TOTAL   (1000 * MIB)

struct input {
        const uint8_t *data;
        size_t size;
};

struct actor {
        sched_client id;
        struct sched_usage usage[GPUS];
        uint64_t limit[GPUS], commit[GPUS], unevictable[GPUS];
        uint32_t sequence[GPUS];
        uint64_t lease;
        bool here;
};

struct stage {
        struct input in;
        struct sched *s;
        uint64_t now_ns;
        struct actor actors[CLIENTS];
        struct sched_actions out;
};

static uint8_t byte(struct stage *g)
{
        if (!g->in.size)
                return 0;
        g->in.size--;
        return *g->in.data++;
}

/* Returns a figure of any magnitude from few bytes: a round figure, one of the actor's own, or a
 * boundary value. */
static uint64_t figure(struct stage *g, const struct actor *a, unsigned gpu)
{
        uint8_t b = byte(g);

        switch (b >> 5) {
        case 0:
                return b == 31 ? UINT64_MAX : b == 30 ? UINT64_MAX / 2 + 1 : b;
        case 1:
                return a->limit[gpu] + (b & 31) - 16;
        case 2:
                return a->usage[gpu].allocated + (b & 31) - 16;
        case 3:
                return a->commit[gpu];
        case 4:
                return a->limit[gpu];
        default:
                return (uint64_t)(b & 127) * (TOTAL / 96);
        }
}

static void note(struct stage *g, const struct sched_action *x)
{
        for (unsigned i = 0; i < CLIENTS; i++) {
                struct actor *a = &g->actors[i];

                if (!a->here || a->id != x->client)
                        continue;
                if (x->type == SCHED_DO_LIMIT && x->gpu < GPUS) {
                        FUZZ_CHECK(x->limit.sequence == a->sequence[x->gpu] + 1);
                        a->sequence[x->gpu] = x->limit.sequence;
                        a->limit[x->gpu] = x->limit.backed;
                        a->commit[x->gpu] = x->limit.commit;
                        a->unevictable[x->gpu] = x->limit.unevictable;
                        FUZZ_CHECK(a->limit[x->gpu] <= TOTAL && a->commit[x->gpu] <= TOTAL);
                } else if (x->type == SCHED_DO_GRANT) {
                        FUZZ_CHECK(x->lease.lease > a->lease);
                        a->lease = x->lease.lease;
                } else if (x->type == SCHED_DO_REVOKE) {
                        FUZZ_CHECK(x->lease.lease == a->lease && a->lease);
                }
        }
}

static void after(struct stage *g)
{
        const char *broken;

        /* If the scheduler refuses an event, only the daemon's timer does what is due now. */
        if (sched_next_ns(g->s) <= g->now_ns)
                sched_tick(g->s, g->now_ns, &g->out);
        for (;;) {
                for (unsigned i = 0; i < g->out.n; i++)
                        note(g, &g->out.list[i]);
                g->out.n = 0;
                if (!g->out.more)
                        break;
                sched_pump(g->s, g->now_ns, &g->out);
        }
        broken = sched_check(g->s, g->now_ns);
        if (broken)
                (void)fprintf(stderr, "%s\n", broken);
        FUZZ_CHECK(!broken);
}

static struct sched_usage usage_from(struct stage *g, const struct actor *a, unsigned gpu)
{
        struct sched_usage u = a->usage[gpu];
        uint8_t which = byte(g);

        if (which & 1)
                u.allocated = figure(g, a, gpu);
        if (which & 2)
                u.backed = figure(g, a, gpu);
        if (which & 4)
                u.unevictable = figure(g, a, gpu) / 16;
        if (which & 8)
                u.backed = u.allocated;
        if (which & 16)
                u.backed = MIN(u.allocated, a->limit[gpu]);
        return u;
}

static void join(struct stage *g, struct actor *a)
{
        uint8_t b = byte(g);
        sched_client before = a->here ? a->id : 0;

        if (sched_client_add(g->s, (struct sched_origin){.uid = b & 3}, b >> 6, g->now_ns, &a->id) <
            0) {
                a->id = before;
                return;
        }
        if (before && sched_client_returned(g->s, a->id, before) < 0)
                sched_client_gone(g->s, before, g->now_ns, &g->out);
        *a = (struct actor){.id = a->id, .here = true};
}

static void attach(struct stage *g, struct actor *a, unsigned gpu)
{
        uint8_t b = byte(g);
        const struct sched_attach at = {
                .usage = usage_from(g, a, gpu),
                .unevictable_requested = b & 1 ? figure(g, a, gpu) / 16 : 0,
                .running = b & 2,
                .run = b & 4,
                .idle = b & 8,
                .detached = b & 16,
                .sequence = b,
        };

        if (sched_client_attach(g->s, a->id, gpu, &at, g->now_ns, &g->out) == 0)
                a->usage[gpu] = at.usage;
}

static void event(struct stage *g)
{
        uint8_t what = byte(g), who = byte(g);
        struct actor *a = &g->actors[who % CLIENTS];
        unsigned gpu = who >> 7;
        struct sched_usage u;
        struct sched_request request;
        uint64_t lease = who & 64 ? a->lease + byte(g) - 128 : a->lease;

        g->now_ns += (uint64_t)(byte(g) & 15) * 30 * NSEC_PER_MSEC;
        switch (what % 17) {
        case 0:
                join(g, a);
                break;
        case 1:
                attach(g, a, gpu);
                break;
        case 2:
        case 3:
        case 4:
                u = usage_from(g, a, gpu);
                if (sched_client_usage(g->s, a->id, gpu, &u, a->sequence[gpu] - (what >> 7),
                                       what & 64 ? SCHED_POISONED : 0, g->now_ns, &g->out) == 0)
                        a->usage[gpu] = u;
                break;
        case 5:
        case 6:
        case 7:
                request = (struct sched_request){
                        .commit = what & 128 ? figure(g, a, gpu) : 0,
                        .unevictable = what & 64 ? figure(g, a, gpu) / 8 : 0,
                        .need = what & 32 ? figure(g, a, gpu) : a->usage[gpu].allocated,
                        .run = who & 32,
                        .sequence = what,
                };
                (void)sched_client_request(g->s, a->id, gpu, &request, g->now_ns, &g->out);
                break;
        case 8:
                if (what & 64 && who & 32)
                        (void)sched_client_preemptible(g->s, a->id, what & 128, g->now_ns, &g->out);
                else if (what & 64)
                        (void)sched_client_stands(g->s, a->id, what & 128, g->now_ns, &g->out);
                else
                        (void)sched_client_idle(g->s, a->id, lease, what & 128, g->now_ns, &g->out);
                break;
        case 9:
                (void)sched_client_drained(g->s, a->id, lease, g->now_ns, &g->out);
                break;
        case 10:
                (void)sched_client_drain_failed(g->s, a->id, lease, NSEC_PER_SEC, g->now_ns,
                                                &g->out);
                break;
        case 11:
                (void)sched_client_short(g->s, a->id, gpu, figure(g, a, gpu), g->now_ns, &g->out);
                break;
        case 12:
                sched_client_lost(g->s, a->id, g->now_ns, &g->out);
                break;
        case 13:
                sched_client_gone(g->s, a->id, g->now_ns, &g->out);
                *a = (struct actor){0};
                break;
        case 14:
                g->now_ns = MAX(g->now_ns, MIN(sched_next_ns(g->s), g->now_ns + 20 * NSEC_PER_SEC));
                sched_tick(g->s, g->now_ns, &g->out);
                break;
        case 15:
                if (what & 128 && what & 64)
                        sched_gpu_yield(g->s, gpu, figure(g, a, gpu), g->now_ns, &g->out);
                else if (what & 128)
                        sched_gpu_foreign(g->s, gpu, figure(g, a, gpu), g->now_ns, &g->out);
                else
                        sched_client_unevictable(g->s, a->id, gpu, figure(g, a, gpu) / 16,
                                                 g->now_ns, &g->out);
                break;
        case 16:
                if (what & 128)
                        (void)sched_client_priority(g->s, a->id, who % 5 - 2, g->now_ns, &g->out);
                else if (what & 64)
                        (void)sched_client_alone(g->s, a->id, who & 1, g->now_ns, &g->out);
                else
                        (void)sched_set_mode(g->s, (enum sched_mode)(who % 3), g->now_ns, &g->out);
                break;
        }
        after(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct stage g = {.in = {.data = data, .size = MIN(size, (size_t)4096)},
                          .now_ns = 100 * NSEC_PER_SEC};
        struct sched_config c;
        uint8_t setting = byte(&g);

        sched_config_default(&c);
        c.clients_max = 2 * CLIENTS;
        c.quantum_ns = setting & 1 ? NSEC_PER_SEC : 0;
        c.quantum_max_ns = 3 * NSEC_PER_SEC;
        c.idle_release_ns = setting & 2 ? 300 * NSEC_PER_MSEC : 0;
        c.host_budget_bytes = setting & 4 ? 8 * TOTAL : TOTAL / 2;
        c.restart_grace_ns = setting & 8 ? 2 * NSEC_PER_SEC : 0;
        c.mode = (enum sched_mode)((setting >> 4) % 3);
        g.s = sched_new(&c);
        if (!g.s)
                return 0;
        for (unsigned i = 0; i < GPUS; i++)
                FUZZ_CHECK(sched_gpu_add(g.s, i, TOTAL) == 0);
        while (g.in.size)
                event(&g);
        sched_free(g.s);
        return 0;
}
