/* events.c: measures what one event costs the scheduler: 2,000 clients on 8 cards, 500 of them
 * waiting, each client's messages answered as the library answers them. Prints times of the
 * processor, so it says something about the machine that it runs on. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/macros.h"
#include "sched/sched.h"

#define CLIENTS 2000U
#define CARDS   8U
#define WAITING 500U
#define EVENTS  400000U
#define CARD    (UINT64_C(80) << 30)
/* Three quarters of the clients of a card fit it. */
#define BYTES (CARD / (CLIENTS / CARDS * 3 / 4 + 4))

struct tenant {
        sched_client id;
        uint64_t lease, backed, limit;
        uint32_t sequence;
        bool idle, answer, drain, ask;
};

static struct tenant tenants[CLIENTS];
static struct sched *s;
static uint64_t now_ns = 1000000000;
static uint32_t costs[EVENTS + 8 * CLIENTS]; /* ns of each event */
static size_t n_costs;

static unsigned card_of(const struct tenant *t)
{
        return (unsigned)(t - tenants) % CARDS;
}

static uint64_t clock_ns(void)
{
        struct timespec ts;

        (void)clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static struct tenant *by_id(sched_client id)
{
        return &tenants[(uint32_t)id];
}

static void perform(const struct sched_actions *out)
{
        for (unsigned i = 0; i < out->n; i++) {
                const struct sched_action *a = &out->list[i];
                struct tenant *t = by_id(a->client);

                if (a->type == SCHED_DO_LIMIT) {
                        t->limit = a->limit.backed;
                        t->sequence = a->limit.sequence;
                        t->answer = true;
                } else if (a->type == SCHED_DO_GRANT) {
                        t->lease = a->lease.lease;
                } else if (a->type == SCHED_DO_REVOKE) {
                        t->drain = true;
                }
        }
}

#define EVENT(call)                                                           \
        do {                                                                  \
                static struct sched_actions out;                              \
                uint64_t start_ns;                                            \
                out.n = 0;                                                    \
                out.more = false;                                             \
                start_ns = clock_ns();                                        \
                (void)(call);                                                 \
                if (n_costs < ARRAY_SIZE(costs))                              \
                        costs[n_costs++] = (uint32_t)(clock_ns() - start_ns); \
                perform(&out);                                                \
                while (out.more) {                                            \
                        out.n = 0;                                            \
                        sched_pump(s, now_ns, &out);                          \
                        perform(&out);                                        \
                }                                                             \
        } while (0)

static void tell_usage(struct tenant *t)
{
        struct sched_usage u = {.allocated = BYTES, .backed = t->backed};

        EVENT(sched_client_usage(s, t->id, card_of(t), &u, t->sequence, 0, now_ns, &out));
}

/* Does one thing that t owes: it answers, moves, drains or asks. */
static bool work(struct tenant *t)
{
        if (t->drain) {
                uint64_t lease = t->lease;

                t->drain = false;
                t->lease = 0;
                t->idle = false;
                t->ask = true;
                EVENT(sched_client_drained(s, t->id, lease, now_ns, &out));
        } else if (t->answer) {
                t->answer = false;
                tell_usage(t);
        } else if (t->backed > t->limit && !t->lease) {
                t->backed = t->limit;
                tell_usage(t);
        } else if (t->backed < MIN(BYTES, t->limit)) {
                t->backed = MIN(BYTES, t->limit);
                tell_usage(t);
        } else if (t->ask) {
                struct sched_request r = {.run = true, .need = BYTES};

                t->ask = false;
                EVENT(sched_client_request(s, t->id, card_of(t), &r, now_ns, &out));
        } else {
                return false;
        }
        return true;
}

static int smaller(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

int main(void)
{
        struct sched_config config;
        uint64_t random = 1;
        unsigned waiting = 0;
        uint64_t sum = 0;

        sched_config_default(&config);
        config.clients_max = CLIENTS;
        config.quantum_ns = 200000000;
        config.host_budget_bytes = UINT64_C(1) << 45;
        s = sched_new(&config);
        if (!s)
                return 1;
        for (unsigned i = 0; i < CARDS; i++)
                (void)sched_gpu_add(s, i, CARD);
        for (unsigned i = 0; i < CLIENTS; i++) {
                struct tenant *t = &tenants[i];
                struct sched_attach at = {.usage = {.allocated = BYTES}, .run = true};

                (void)sched_client_add(s, (struct sched_origin){.uid = 1000 + i % 50}, 0, now_ns,
                                       &t->id);
                EVENT(sched_client_attach(s, t->id, card_of(t), &at, now_ns, &out));
                while (work(t))
                        ;
        }
        n_costs = 0;
        while (n_costs < EVENTS) {
                struct tenant *t;

                random = random * 6364136223846793005 + 1442695040888963407;
                t = &tenants[(random >> 33) % CLIENTS];
                now_ns += 100000;
                if (sched_next_ns(s) <= now_ns)
                        EVENT(sched_tick(s, now_ns, &out));
                if (!work(t) && t->lease) {
                        t->idle = !t->idle;
                        EVENT(sched_client_idle(s, t->id, t->lease, t->idle, now_ns, &out));
                }
        }
        for (unsigned i = 0; i < CLIENTS; i++)
                waiting += !tenants[i].lease;
        qsort(costs, n_costs, sizeof(*costs), smaller);
        for (size_t i = 0; i < n_costs; i++)
                sum += costs[i];
        printf("%u clients on %u cards, %u without a lease, %zu events\n"
               "an event takes %.1f us on average, p50 %.1f, p99 %.1f, at most %.1f\n",
               CLIENTS, CARDS, waiting, n_costs, (double)sum / (double)n_costs / 1e3,
               costs[n_costs / 2] / 1e3, costs[n_costs * 99 / 100] / 1e3, costs[n_costs - 1] / 1e3);
        sched_free(s);
        return 0;
}
