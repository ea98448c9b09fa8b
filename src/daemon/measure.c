/* measure.c: owns what NVML's figures mean for the ledger: bytes of others, fixed bytes of ours.
 * Must never report one odd sample: the figures of a card and of its processes are not read at one
 * instant, while memory moves at 50 GB/s. The lowest of the last three is taken. */
#include "daemon/client.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/kill_point.h"

#define SAMPLES        ARRAY_SIZE(((struct gpu *)0)->foreign)
#define PROCESSES_MAX  1024
#define UNMEASURED_MAX 10                   /* periods */
#define LOOK_NS        (10 * NSEC_PER_MSEC) /* between two looks for those who have ended */

/* The daemon has one loop and one thread; too large for its stack. */
static struct nvml_process processes[PROCESSES_MAX];

/* Who was on a card when it was last looked for those who have ended: a question to NVML takes
 * milliseconds, and many may end at one moment. */
static struct look {
        uint64_t at_ns;
        bool listing;
        unsigned n;
        uint32_t pids[PROCESSES_MAX];
} looks[SCHED_GPUS_MAX];

static uint64_t lowest(const uint64_t *samples, unsigned n)
{
        uint64_t low = UINT64_MAX;

        for (unsigned i = 0; i < MIN(n, SAMPLES); i++)
                low = MIN(low, samples[i]);
        return low;
}

/* What the card holds in nobody's name. */
static uint64_t unnamed_bytes(unsigned n, uint64_t used)
{
        for (unsigned i = 0; i < n; i++)
                used = sub_sat(used,
                               processes[i].used_bytes == UINT64_MAX ? 0 : processes[i].used_bytes);
        return used;
}

/* UINT64_MAX: NVML lists the process without a figure. -1: not listed. */
static int find_process(unsigned n, pid_t pid, uint64_t *ret_used)
{
        for (unsigned i = 0; i < n; i++)
                if (processes[i].pid == (uint32_t)pid) {
                        *ret_used = processes[i].used_bytes;
                        return 0;
                }
        return -1;
}

/* Managed memory: NVML counts it for the card and for no process (measured, driver 580). So of what
 * is in nobody's figure, as much is our clients' as they have backed of it; what the driver keeps
 * beyond that is taken for a stranger's until the card shows it free. */
static uint64_t managed_bytes(struct server *s, unsigned gpu, unsigned n, bool listing,
                              uint64_t used)
{
        uint64_t managed = 0, unnamed = listing ? unnamed_bytes(n, used) : used;

        for (const struct client *c = s->clients; c; c = c->next) {
                const struct client_account *acc = &c->accounts[gpu];
                struct sched_account_view v;

                /* Whom NVML does not name counts as what he has backed already. */
                if (c->id && acc->managed && listing && acc->named &&
                    sched_account_view(s->sched, c->id, gpu, &v) == 0)
                        managed += MIN(acc->managed, v.usage.backed);
        }
        return MIN(managed, unnamed);
}

/* What is on its way holds memory that the client does not report as backed: it must not be taken
 * for fixed, however long a slow bus takes. */
static bool is_moving(struct server *s, const struct client *c)
{
        struct sched_client_view v;

        return sched_client_view(s->sched, c->id, clock_now_ns(), &v) == 0 &&
               (v.state == SCHED_EVICTING || v.state == SCHED_RESTORING);
}

/* What the card holds for this client: NVML's word where it has one, the client's where not (in a
 * container NVML may list other numbers than ours, or none). */
static uint64_t measure_client(struct server *s, struct client *c, unsigned gpu, unsigned n,
                               bool listing, bool sample)
{
        struct client_account *acc = &c->accounts[gpu];
        struct sched_account_view v;
        uint64_t used;

        if (sched_account_view(s->sched, c->id, gpu, &v) < 0)
                return 0;
        if (listing && find_process(n, c->peer.pid, &used) == 0 && used != UINT64_MAX) {
                acc->named = s->gpus.list[gpu].names = true;
        } else if (listing && acc->named) {
                used = 0;
        } else {
                return v.usage.backed + v.usage.fixed;
        }
        if (sample && !is_moving(s, c))
                acc->fixed[acc->n_fixed++ % SAMPLES] = sub_sat(used, v.usage.backed);
        return used;
}

static void tell_fixed(struct server *s, unsigned gpu)
{
        for (struct client *c = s->clients; c; c = c->next) {
                struct client_account *acc = &c->accounts[gpu];
                uint64_t fixed;

                if (!c->id || acc->ordinal < 0 || acc->n_fixed < SAMPLES)
                        continue;
                fixed = lowest(acc->fixed, acc->n_fixed);
                if (fixed == acc->fixed_told)
                        continue; /* telling costs a pass over all clients, for each of them */
                acc->fixed_told = fixed;
                session_begin(s);
                sched_client_fixed(s->sched, c->id, gpu, fixed, clock_now_ns(), &s->actions);
                session_perform(s);
        }
}

uint64_t measure_foreign(const struct gpu *g)
{
        return g->n_foreign ? lowest(g->foreign, g->n_foreign) : g->foreign_told;
}

uint64_t measure_newest(const struct gpu *g)
{
        return g->n_foreign ? g->foreign[(g->n_foreign - 1) % SAMPLES] : g->foreign_told;
}

/* Small rises are noise that the headroom is there for. */
static bool is_noise(const struct gpu *g, uint64_t foreign)
{
        return foreign > g->foreign_told && g->n_foreign > 1 &&
               foreign - g->foreign_told < MIN(64 * MIB, g->total_bytes / 256);
}

static void tell_foreign(struct server *s, unsigned gpu)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t foreign = neighbours_absorb(s, gpu, measure_foreign(g));

        /* Until the clients of a daemon that crashed are back, their memory looks like a
         * stranger's.
         */
        if (foreign > g->foreign_told && clock_now_ns() < s->return_until_ns)
                return;
        if (is_noise(g, foreign))
                return;
        g->foreign_told = foreign;
        session_begin(s);
        sched_gpu_foreign(s->sched, gpu, foreign, clock_now_ns(), &s->actions);
        session_perform(s);
}

static void forget_shortage(struct server *s, unsigned gpu)
{
        session_begin(s);
        sched_gpu_foreign(s->sched, gpu, s->gpus.list[gpu].foreign_told, clock_now_ns(),
                          &s->actions);
        session_perform(s);
}

static bool is_measured(const struct server *s, unsigned gpu)
{
        return s->nvml && s->gpus.list[gpu].nvml_index >= 0;
}

/* What others hold now. sample: of our clients' fixed bytes, too. 0, or -errno: NVML does not say.
 */
static int look(struct server *s, unsigned gpu, bool sample, uint64_t *ret_foreign)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t total, used, ours = 0;
        unsigned n = 0;
        bool listing;
        int r = nvml_memory(s->nvml, (unsigned)g->nvml_index, &total, &used);

        if (r < 0)
                return r;
        listing =
                nvml_processes(s->nvml, (unsigned)g->nvml_index, PROCESSES_MAX, processes, &n) == 0;
        for (struct client *c = s->clients; c; c = c->next)
                if (c->id && c->accounts[gpu].ordinal >= 0)
                        ours += measure_client(s, c, gpu, n, listing, sample);
        used = sub_sat(used, ours + managed_bytes(s, gpu, n, listing, used));
        /* Where we deal in less than the whole card, others may have the rest. */
        *ret_foreign = sub_sat(used, sub_sat(total, g->total_bytes));
        return 0;
}

static void measure_gpu(struct server *s, unsigned gpu)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t foreign;

        if (look(s, gpu, true, &foreign) < 0)
                return;
        g->foreign[g->n_foreign++ % SAMPLES] = foreign;
        kill_point("measured");

        /* What a client found missing (SHORT) counts until the card is looked at, whether or not
         * that shows anything worth telling. */
        if (is_noise(g, neighbours_absorb(s, gpu, measure_foreign(g))))
                forget_shortage(s, gpu);
        /* A byte that turns from foreign to fixed must not count as both in between. */
        if (measure_foreign(g) < g->foreign_told) {
                tell_foreign(s, gpu);
                tell_fixed(s, gpu);
        } else {
                tell_fixed(s, gpu);
                tell_foreign(s, gpu);
        }
}

/* Nobody measures this card. What a client found missing some time ago may be there again: the next
 * one that needs it finds out. */
static void not_measured(struct server *s, unsigned gpu)
{
        if (++s->gpus.list[gpu].unmeasured % UNMEASURED_MAX == 0)
                forget_shortage(s, gpu);
}

void measure_all(struct server *s)
{
        for (unsigned g = 0; g < s->gpus.n; g++)
                if (is_measured(s, g))
                        measure_gpu(s, g);
                else
                        not_measured(s, g);
}

void measure_fall(struct server *s, unsigned gpu)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t foreign;

        if (!is_measured(s, gpu) || !g->n_foreign || look(s, gpu, false, &foreign) < 0 ||
            foreign >= measure_foreign(g))
                return;
        g->foreign[(g->n_foreign - 1) % SAMPLES] = foreign;
        tell_foreign(s, gpu);
}

uint64_t measure_now(struct server *s, unsigned gpu)
{
        struct gpu *g = &s->gpus.list[gpu];
        uint64_t foreign;

        if (is_measured(s, gpu) && look(s, gpu, false, &foreign) == 0) {
                g->foreign[0] = foreign;
                g->n_foreign = 1;
        }
        return measure_foreign(g);
}

void measure_rise(struct server *s, unsigned gpu)
{
        if (neighbours_absorb(s, gpu, measure_now(s, gpu)) > s->gpus.list[gpu].foreign_told)
                tell_foreign(s, gpu);
}

uint64_t measure_most(struct server *s, const struct client *c, unsigned gpu)
{
        const struct gpu *g = &s->gpus.list[gpu];
        uint64_t total, used, own, others = 0, slack = g->total_bytes / 256;
        unsigned n;

        if (!s->nvml || g->nvml_index < 0 ||
            nvml_memory(s->nvml, (unsigned)g->nvml_index, &total, &used) < 0)
                return UINT64_MAX;
        if (nvml_processes(s->nvml, (unsigned)g->nvml_index, PROCESSES_MAX, processes, &n) == 0 &&
            find_process(n, c->peer.pid, &own) == 0 && own != UINT64_MAX)
                return own + unnamed_bytes(n, used) + slack; /* managed memory */
        /* Not listed, as in a container: then what nobody else is known to hold. */
        for (const struct client *o = s->clients; o; o = o->next) {
                struct sched_account_view v;

                if (o != c && o->peer.pid != c->peer.pid && o->id &&
                    sched_account_view(s->sched, o->id, gpu, &v) == 0)
                        others += v.usage.backed + v.fixed;
        }
        return sub_sat(used, others) + slack;
}

/* Not older than LOOK_NS. */
static const struct look *look_at(struct server *s, unsigned gpu)
{
        struct look *l = &looks[gpu];
        uint64_t now = clock_now_ns();

        if (l->at_ns && now - l->at_ns < LOOK_NS)
                return l;
        l->at_ns = now;
        l->listing = is_measured(s, gpu) &&
                     nvml_processes(s->nvml, (unsigned)s->gpus.list[gpu].nvml_index, PROCESSES_MAX,
                                    processes, &l->n) == 0;
        for (unsigned i = 0; l->listing && i < l->n; i++)
                l->pids[i] = processes[i].pid;
        return l;
}

static bool is_listed(const struct look *l, pid_t pid)
{
        for (unsigned i = 0; i < l->n; i++)
                if (l->pids[i] == (uint32_t)pid)
                        return true;
        return false;
}

/* It may have had no time to be seen. But others were, so whoever has a context is listed, unless
 * he is outside our pid namespace (0). */
static bool would_be_named(const struct server *s, const struct client *c, unsigned gpu)
{
        return s->gpus.list[gpu].names && c->peer.pid > 0;
}

bool measure_is_gone(struct server *s, struct client *c, uint64_t since_ns, bool *ret_sure)
{
        bool sure = true, gone = true;

        for (unsigned g = 0; g < s->gpus.n; g++) {
                struct client_account *acc = &c->accounts[g];
                struct sched_account_view v;
                const struct look *l;

                if (!c->id || sched_account_view(s->sched, c->id, g, &v) < 0)
                        continue;
                l = look_at(s, g);
                if (!l->listing) {
                        sure = false;
                        continue;
                }
                if (is_listed(l, c->peer.pid)) {
                        acc->named = true;
                        gone = false;
                }
                if (l->at_ns < since_ns)
                        gone = false; /* it does not say what was left: the next look will */
                sure = sure && (acc->named || (l->at_ns > since_ns + s->config->sched.grace_ns &&
                                               would_be_named(s, c, g)));
        }
        *ret_sure = sure;
        return gone;
}
