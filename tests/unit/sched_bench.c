/* sched_bench.c: owns the records of the scheduler's example tests. Checks all invariants after
 * every event. */
#include "sched_bench.h"

/* Leaves room for one action, so that the scheduler must send the others later, in order. */
#define TAKEN (SCHED_ACTIONS_MAX - 1)

struct bench *bench_of(uint64_t card_bytes, void (*change)(struct sched_config *c))
{
        struct bench *b = calloc(1, sizeof(*b));
        struct sched_config c;

        assert_non_null(b);
        sched_config_default(&c);
        c.quantum_ns = FIXED_QUANTUM_NS;
        c.host_budget_bytes = 8000 * MIB;
        if (change)
                change(&c);
        b->s = sched_new(&c);
        assert_non_null(b->s);
        b->now_ns = 100 * NSEC_PER_SEC;
        b->gpus = 2;
        for (unsigned i = 0; i < b->gpus; i++)
                assert_int_equal(sched_gpu_add(b->s, i, card_bytes), 0);
        return b;
}

struct bench *bench_new(void (*change)(struct sched_config *c))
{
        return bench_of(1000 * MIB, change);
}

void bench_free(struct bench *b)
{
        sched_free(b->s);
        free(b);
}

static struct tenant *tenant_of(struct bench *b, sched_client id)
{
        for (unsigned i = 0; i < b->tenants; i++)
                if (b->t[i].id == id)
                        return &b->t[i];
        fail_msg("an action for nobody");
        return NULL;
}

static void note(struct bench *b, const struct sched_action *a)
{
        struct tenant *t = tenant_of(b, a->client);

        switch (a->type) {
        case SCHED_DO_LIMIT:
                assert_int_equal(a->limit.sequence, t->sequence[a->gpu] + 1);
                t->sequence[a->gpu] = a->limit.sequence;
                t->commit[a->gpu] = a->limit.commit;
                t->limit[a->gpu] = a->limit.backed;
                t->unevictable_allowed[a->gpu] = a->limit.unevictable;
                break;
        case SCHED_DO_GRANT:
                t->lease = a->lease.lease;
                break;
        case SCHED_DO_REVOKE:
                assert_int_equal(a->lease.lease, t->lease);
                t->revoked = true;
                t->patience_ns = a->lease.patience_ns;
                break;
        case SCHED_DO_REFUSE:
                t->refused = a->refuse.code;
                t->refused_of = a->refuse.of;
                break;
        case SCHED_DO_CONTESTED:
                assert_int_not_equal(t->throttle, a->throttle);
                t->throttle = a->throttle;
                break;
        case SCHED_DO_SLICE:
                assert_int_not_equal(t->slice_ns, a->slice_ns);
                t->slice_ns = a->slice_ns;
                break;
        case SCHED_DO_PROMPT:
                t->prompt = a->prompt;
                break;
        case SCHED_DO_PREEMPT:
                assert_int_not_equal(t->preempted, a->preempt);
                t->preempted = a->preempt;
                break;
        case SCHED_DO_SPARE:
                t->spare_asked = true;
                break;
        case SCHED_DO_EXPORTED:
                t->exported[a->gpu] = a->exported;
                break;
        case SCHED_DO_OVERDUE:
                t->overdue = true;
                break;
        }
}

static void after(struct bench *b, struct sched_actions *out)
{
        const char *broken;

        b->actions = 0;
        for (;;) {
                b->actions += out->n - TAKEN;
                for (unsigned i = TAKEN; i < out->n; i++)
                        note(b, &out->list[i]);
                out->n = TAKEN;
                if (!out->more)
                        break;
                sched_pump(b->s, b->now_ns, out);
        }
        broken = sched_check(b->s, b->now_ns);
        if (broken)
                fail_msg("%s", broken);
}

struct tenant *join(struct bench *b, int priority)
{
        struct tenant *t = &b->t[b->tenants];
        const struct sched_attach a = {.sequence = 1};

        assert_in_range(b->tenants, 0, BENCH_CLIENTS - 1);
        b->tenants++;
        assert_int_equal(sched_client_add(b->s, (struct sched_origin){.uid = 1000}, priority,
                                          b->now_ns, &t->id),
                         0);
        attach(b, t, 0, &a);
        usage(b, t);
        return t;
}

void attach(struct bench *b, struct tenant *t, unsigned gpu, const struct sched_attach *a)
{
        struct sched_actions out = {.n = TAKEN};

        t->allocated[gpu] = a->usage.allocated;
        t->backed[gpu] = a->usage.backed;
        t->unevictable[gpu] = a->usage.unevictable;
        assert_int_equal(sched_client_attach(b->s, t->id, gpu, a, b->now_ns, &out), 0);
        after(b, &out);
}

void usage_as_of(struct bench *b, struct tenant *t, unsigned gpu, uint32_t limit_sequence)
{
        struct sched_actions out = {.n = TAKEN};
        const struct sched_usage u = {.allocated = t->allocated[gpu],
                                      .backed = t->backed[gpu],
                                      .unevictable = t->unevictable[gpu],
                                      .arena = t->arena,
                                      .moved_out = t->moved_out,
                                      .waits = t->waits,
                                      .stays = t->stays};

        assert_int_equal(
                sched_client_usage(b->s, t->id, gpu, &u, limit_sequence, 0, b->now_ns, &out), 0);
        after(b, &out);
}

void usage(struct bench *b, struct tenant *t)
{
        usage_as_of(b, t, 0, t->sequence[0]);
}

void want(struct bench *b, struct tenant *t, const struct sched_request *w)
{
        struct sched_actions out = {.n = TAKEN};

        t->refused = 0;
        assert_int_equal(sched_client_request(b->s, t->id, 0, w, b->now_ns, &out), 0);
        after(b, &out);
}

void want_run(struct bench *b, struct tenant *t, uint64_t need)
{
        want(b, t, &(struct sched_request){.run = true, .need = need});
}

void request_commit_of(struct bench *b, struct tenant *t, uint64_t commit)
{
        want(b, t, &(struct sched_request){.commit = commit, .sequence = 77});
}

void request_unevictable_of(struct bench *b, struct tenant *t, uint64_t unevictable)
{
        want(b, t, &(struct sched_request){.unevictable = unevictable, .sequence = 78});
}

void export(struct bench *b, struct tenant *t, uint64_t bytes)
{
        struct sched_actions out = {.n = TAKEN};
        const struct sched_export p = {.bytes = bytes, .sequence = 77};

        assert_int_equal(sched_client_export(b->s, t->id, 0, &p, b->now_ns, &out), 0);
        after(b, &out);
}

void idle(struct bench *b, struct tenant *t, bool idle_now)
{
        struct sched_actions out = {.n = TAKEN};

        assert_int_equal(sched_client_idle(b->s, t->id, t->lease, idle_now, b->now_ns, &out), 0);
        after(b, &out);
}

void drained(struct bench *b, struct tenant *t)
{
        struct sched_actions out = {.n = TAKEN};
        uint64_t lease = t->lease;

        t->revoked = false;
        t->lease = 0;
        assert_int_equal(sched_client_drained(b->s, t->id, lease, b->now_ns, &out), 0);
        after(b, &out);
}

void drain_failed(struct bench *b, struct tenant *t)
{
        struct sched_actions out = {.n = TAKEN};

        t->revoked = false;
        assert_int_equal(
                sched_client_drain_failed(b->s, t->id, t->lease, NSEC_PER_SEC, b->now_ns, &out), 0);
        after(b, &out);
}

void stands(struct bench *b, struct tenant *t, bool stands_now)
{
        struct sched_actions out = {.n = TAKEN};

        assert_int_equal(sched_client_stands(b->s, t->id, stands_now, b->now_ns, &out), 0);
        after(b, &out);
}

int evict(struct bench *b, struct tenant *t)
{
        struct sched_actions out = {.n = TAKEN};
        const int r = sched_client_evict(b->s, t->id, b->now_ns, &out);

        after(b, &out);
        return r;
}

int set_alone(struct bench *b, struct tenant *t, bool alone_now)
{
        struct sched_actions out = {.n = TAKEN};
        const int r = sched_client_alone(b->s, t->id, alone_now, b->now_ns, &out);

        after(b, &out);
        return r;
}

void set_mps(struct bench *b, struct tenant *t, bool mps)
{
        struct sched_actions out = {.n = TAKEN};

        assert_int_equal(sched_client_mps(b->s, t->id, mps, b->now_ns, &out), 0);
        after(b, &out);
}

void set_preemptible(struct bench *b, struct tenant *t, bool yes)
{
        struct sched_actions out = {.n = TAKEN};

        if (!yes)
                t->preempted = false; /* its channels are back on the GPU */
        assert_int_equal(sched_client_preemptible(b->s, t->id, yes, b->now_ns, &out), 0);
        after(b, &out);
}

void lost(struct bench *b, struct tenant *t)
{
        struct sched_actions out = {.n = TAKEN};

        sched_client_lost(b->s, t->id, b->now_ns, &out);
        after(b, &out);
}

void gone(struct bench *b, struct tenant *t)
{
        struct sched_actions out = {.n = TAKEN};

        sched_client_gone(b->s, t->id, b->now_ns, &out);
        after(b, &out);
}

void foreign(struct bench *b, uint64_t bytes)
{
        struct sched_actions out = {.n = TAKEN};

        sched_gpu_foreign(b->s, 0, bytes, b->now_ns, &out);
        after(b, &out);
}

void yield_to(struct bench *b, uint64_t bytes)
{
        struct sched_actions out = {.n = TAKEN};

        sched_gpu_yield(b->s, 0, bytes, b->now_ns, &out);
        after(b, &out);
}

void tick_at(struct bench *b, uint64_t now_ns)
{
        struct sched_actions out = {.n = TAKEN};

        b->now_ns = now_ns;
        sched_tick(b->s, b->now_ns, &out);
        after(b, &out);
}

void pass(struct bench *b, uint64_t ns)
{
        uint64_t end = b->now_ns + ns;

        while (sched_next_ns(b->s) <= end) {
                assert_true(sched_next_ns(b->s) > b->now_ns); /* otherwise a daemon would spin */
                tick_at(b, sched_next_ns(b->s));
        }
        tick_at(b, end);
}

void await_revoke(struct bench *b, struct tenant *t)
{
        for (unsigned i = 0; !t->revoked && i < 10000; i++)
                pass(b, 10 * NSEC_PER_MSEC);
        assert_true(t->revoked);
}

void evict_to(struct bench *b, struct tenant *t, uint64_t backed)
{
        usage(b, t);
        t->backed[0] = backed;
        usage(b, t);
}

void restore(struct bench *b, struct tenant *t)
{
        t->backed[0] = MIN(t->allocated[0], t->limit[0]);
        usage(b, t);
}

struct tenant *runner(struct bench *b, int priority, uint64_t bytes)
{
        struct tenant *t = join(b, priority);

        request_commit_of(b, t, bytes);
        assert_int_equal(t->commit[0], bytes);
        t->allocated[0] = bytes;
        usage(b, t);
        want_run(b, t, bytes);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        assert_int_equal(t->backed[0], bytes);
        return t;
}

enum sched_state state_of(struct bench *b, const struct tenant *t)
{
        struct sched_client_view v;

        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        return v.state;
}

unsigned flags_of(struct bench *b, const struct tenant *t)
{
        struct sched_client_view v;

        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        return v.flags;
}

uint64_t charged(struct bench *b)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        return v.charged;
}

struct tenant *asks_to_run(struct bench *b, uint64_t bytes)
{
        struct tenant *t = join(b, 0);

        request_commit_of(b, t, bytes);
        t->allocated[0] = bytes;
        usage(b, t);
        want_run(b, t, bytes);
        return t;
}

struct tenant *comes_to_run(struct bench *b, struct sched_origin origin, int priority,
                            uint64_t bytes)
{
        struct tenant *t = &b->t[b->tenants++];

        assert_int_equal(sched_client_add(b->s, origin, priority, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.usage = {.allocated = bytes}, .run = true});
        usage(b, t);
        restore(b, t);
        return t;
}
