/* test_sched.c: the scheduler's ledger: promises, charges, unevictable bytes, loss and return of
 * clients. test_sched_turns.c tests who runs and who gives way. */
#include "sched_bench.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

static void the_visible_size_excludes_headroom_and_the_unevictable_budget(void **state)
{
        BENCH;
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        assert_int_equal(v.headroom, 30 * MIB);
        assert_int_equal(v.unevictable_budget, 50 * MIB);
        assert_int_equal(v.visible, 920 * MIB);
        foreign(b, 100 * MIB);
        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        assert_int_equal(v.capacity, 900 * MIB);
        assert_int_equal(v.visible, 920 * MIB); /* foreign bytes do not change what programs see */
        assert_int_equal(sched_gpu_view(b->s, 5, &v), -EINVAL);
}

static void headroom_of_a_large_card_is_512_mib(void **state)
{
        BENCH;
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_add(b->s, 3, 140 * GIB), 0);
        assert_int_equal(sched_gpu_view(b->s, 3, &v), 0);
        assert_int_equal(v.headroom, 512 * MIB);
        assert_int_equal(sched_gpu_add(b->s, 3, GIB), -EEXIST);
        assert_int_equal(sched_gpu_add(b->s, 4, UINT64_MAX), -EINVAL);
}

static void a_commit_is_granted_at_once_with_an_equal_limit(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);

        request_commit_of(b, t, 300 * MIB);
        assert_int_equal(t->refused, 0);
        assert_int_equal(t->commit[0], 300 * MIB);
        assert_int_equal(t->limit[0], 300 * MIB);
        assert_int_equal(charged(b), 300 * MIB);
}

static void a_commit_beyond_the_visible_size_is_refused(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);

        request_commit_of(b, t, 920 * MIB + 1);
        assert_int_equal(t->refused, -ENOMEM);
        assert_int_equal(t->refused_of, 77);
        assert_int_equal(t->commit[0], 0);
        assert_int_equal(b->actions, 1);
        request_commit_of(b, t, 920 * MIB);
        assert_int_equal(t->refused, 0);
        assert_int_equal(t->commit[0], 920 * MIB);
}

static void foreign_bytes_reduce_the_commit(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);

        foreign(b, 200 * MIB);
        request_commit_of(b, t, 771 * MIB);
        assert_int_equal(t->refused, -ENOMEM);
        request_commit_of(b, t, 770 * MIB);
        assert_int_equal(t->refused, 0);
}

static void small_host_room(struct sched_config *c)
{
        c->host_budget_bytes = 300 * MIB;
}

static void a_commit_beyond_card_and_host_memory_is_refused(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(small_host_room);
        struct tenant *t = join(b, 0), *u = join(b, 0);

        request_commit_of(b, t, 700 * MIB);
        /* 920 MiB on the card, 300 MiB on the host, less one extent (1000 / 16 MiB) in transit */
        request_commit_of(b, u, 458 * MIB);
        assert_int_equal(u->refused, -ENOMEM);
        request_commit_of(b, u, 457 * MIB);
        assert_int_equal(u->refused, 0);
}

static void host_memory_for_kernels_is_not_promised_to_evictions(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(small_host_room);
        struct tenant *t = join(b, 0), *u = join(b, 0);
        struct sched_actions out = {0};

        request_commit_of(b, t, 700 * MIB);
        assert_int_equal(sched_host_free(b->s), 300 * MIB);
        assert_int_equal(sched_host_take(b->s, 301 * MIB, false, b->now_ns, &out), -ENOMEM);
        assert_int_equal(sched_host_take(b->s, 100 * MIB, false, b->now_ns, &out), 0);
        request_commit_of(b, u, 358 * MIB); /* 100 MiB less than before the take */
        assert_int_equal(u->refused, -ENOMEM);
        request_commit_of(b, u, 357 * MIB);
        assert_int_equal(u->refused, 0);
        assert_int_equal(sched_host_take(b->s, 164 * MIB, false, b->now_ns, &out), -ENOMEM);
        /* Bytes that kernels hold already are taken even beyond the budget. */
        assert_int_equal(sched_host_take(b->s, 400 * MIB, true, b->now_ns, &out), 0);
        assert_null(sched_check(b->s, b->now_ns));
        assert_int_equal(sched_host_take(b->s, 0, false, b->now_ns, &out), 0);
}

static void no_host_room(struct sched_config *c)
{
        c->host_budget_bytes = 0;
}

static void commits_fill_only_the_card_without_host_memory(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(no_host_room);
        struct tenant *t = join(b, 0), *u = join(b, 0);

        request_commit_of(b, t, 500 * MIB);
        request_commit_of(b, u, 421 * MIB);
        assert_int_equal(u->refused, -ENOMEM);
        request_commit_of(b, u, 420 * MIB);
        assert_int_equal(u->refused, 0);
}

static void a_lower_commit_counts_once_it_is_acknowledged(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(no_host_room);
        struct tenant *t = join(b, 0), *u = join(b, 0);

        request_commit_of(b, t, 900 * MIB);
        usage(b, t);
        request_commit_of(b, t, 100 * MIB);
        assert_int_equal(t->commit[0], 100 * MIB);
        assert_int_equal(t->limit[0], 100 * MIB);
        request_commit_of(b, u, 500 * MIB);
        assert_int_equal(u->refused, -ENOMEM);
        usage(b, t);
        request_commit_of(b, u, 500 * MIB);
        assert_int_equal(u->refused, 0);
}

static void an_old_usage_is_no_acknowledgement(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);
        uint32_t old;

        request_commit_of(b, t, 900 * MIB);
        old = t->sequence[0];
        usage(b, t);
        request_commit_of(b, t, 100 * MIB);
        usage_as_of(b, t, 0, old);
        assert_int_equal(charged(b), 900 * MIB);
        usage(b, t);
        assert_int_equal(charged(b), 100 * MIB);
}

static void impossible_figures_are_refused_or_clamped(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0), *u = join(b, 0);
        struct sched_actions out = {0};
        struct sched_usage lie = {.allocated = 1, .backed = 2};
        struct sched_request w = {.commit = UINT64_MAX,
                                  .unevictable = UINT64_MAX,
                                  .need = UINT64_MAX,
                                  .run = true,
                                  .sequence = 5};

        assert_int_equal(sched_client_usage(b->s, t->id, 0, &lie, 0, 0, b->now_ns, &out), -EINVAL);
        assert_int_equal(sched_client_usage(b->s, t->id, 99, &lie, 0, 0, b->now_ns, &out), -EINVAL);
        lie = (struct sched_usage){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                                   UINT64_MAX, UINT64_MAX, true,       true};
        assert_int_equal(sched_client_usage(b->s, t->id, 0, &lie, 0, 0, b->now_ns, &out), 0);
        assert_null(sched_check(b->s, b->now_ns));
        assert_int_equal(charged(b), 2000 * MIB);
        assert_int_equal(sched_client_request(b->s, u->id, 0, &w, b->now_ns, &out), 0);
        assert_null(sched_check(b->s, b->now_ns));
        gone(b, t);
        assert_int_equal(charged(b), 0);
}

static void ids_of_gone_clients_match_no_client(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0), *u;
        struct sched_actions out = {0};
        struct sched_client_view v;
        sched_client old = t->id;

        gone(b, t);
        u = join(b, 0); /* u takes the same slot */
        assert_int_not_equal(u->id, old);
        assert_int_equal(sched_client_view(b->s, old, b->now_ns, &v), -ESTALE);
        assert_int_equal(sched_client_drained(b->s, old, 1, b->now_ns, &out), -ESTALE);
        assert_int_equal(sched_client_view(b->s, 0, b->now_ns, &v), -ESTALE);
        assert_int_equal(sched_client_view(b->s, u->id, b->now_ns, &v), 0);
}

/* ---- unevictable bytes ---- */

static void the_first_limit_is_sent_when_the_context_has_room(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = &b->t[b->tenants++];
        const struct sched_attach at = {.unevictable_requested = 90 * MIB, .sequence = 9};

        /* 900 + 90 > 970: the commit of the first client leaves no room. */
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &at);
        assert_int_equal(t->refused, -ENOSPC);
        assert_int_equal(t->refused_of, 9);
        gone(b, t);

        t = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.unevictable_requested = 60 * MIB});
        assert_int_equal(t->sequence[0], 1);
        assert_int_equal(t->unevictable_allowed[0], 60 * MIB);
        assert_false(a->revoked);
}

static void a_full_card_makes_room_for_a_context(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *c = runner(b, 0, 360 * MIB), *t;

        pass(b, FIXED_QUANTUM_NS / 2);
        t = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.unevictable_requested = 20 * MIB});
        assert_int_equal(t->sequence[0], 0);
        assert_int_equal(state_of(b, t), SCHED_WAITING);
        assert_false(a->revoked || c->revoked);
        pass(b, FIXED_QUANTUM_NS);
        assert_true(a->revoked); /* a is further past its quantum than c */
        assert_false(c->revoked);
        drained(b, a);
        assert_int_equal(a->limit[0], 590 * MIB);
        assert_int_equal(t->sequence[0], 0);
        evict_to(b, a, 590 * MIB);
        assert_int_equal(t->unevictable_allowed[0], 20 * MIB);
        assert_int_equal(charged(b), 970 * MIB);
}

static void unevictable_bytes_past_the_budget_reduce_unused_commits(void **state)
{
        BENCH;
        struct tenant *a = join(b, 0), *t = join(b, 0);

        request_commit_of(b, a, 920 * MIB);
        a->allocated[0] = a->backed[0] = 500 * MIB;
        usage(b, a);
        request_unevictable_of(b, t, 200 * MIB);
        assert_int_equal(t->refused, 0);
        assert_int_equal(a->commit[0], 770 * MIB);
        /* The grant waits until a acknowledges its lower commit. */
        assert_int_equal(t->unevictable_allowed[0], 0);
        usage(b, a);
        assert_int_equal(t->unevictable_allowed[0], 200 * MIB);

        request_unevictable_of(b, t, 500 * MIB); /* 500 allocated + 500 > 970 */
        assert_int_equal(t->refused, -ENOSPC);
        assert_int_equal(t->unevictable_allowed[0], 200 * MIB);
}

static void an_unevictable_request_is_refused_if_another_client_is_silent(void **state)
{
        BENCH;
        struct tenant *a = join(b, 0), *t = join(b, 0);

        request_commit_of(b, a, 920 * MIB);
        usage(b, a);
        request_unevictable_of(b, t, 200 * MIB);
        pass(b, 6 * NSEC_PER_SEC);
        assert_int_equal(t->refused, -ENOSPC);
        assert_true(a->overdue);
}

static void a_repeated_unevictable_request_keeps_its_age(void **state)
{
        BENCH;
        struct tenant *a = join(b, 0), *t = join(b, 0);

        request_commit_of(b, a, 920 * MIB);
        usage(b, a);
        for (unsigned i = 0; i < 5; i++) {
                request_unevictable_of(b, t, 200 * MIB);
                pass(b, NSEC_PER_SEC);
        }
        pass(b, NSEC_PER_SEC);
        assert_int_equal(t->refused, -ENOSPC);
}

static void request_spare(struct bench *b, struct tenant *t, uint64_t unevictable)
{
        want(b, t,
             &(struct sched_request){
                     .unevictable = unevictable, .spare_requested = true, .sequence = 79});
}

/* Requests unevictable bytes for itself, while it holds bytes that it can spare. */
static void request_with_spare(struct bench *b, struct tenant *t, uint64_t unevictable)
{
        want(b, t,
             &(struct sched_request){.unevictable = unevictable, .spare = true, .sequence = 78});
}

static void spare_bytes_stay_within_the_unevictable_budget(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);

        request_spare(b, t, 51 * MIB);
        assert_int_equal(t->refused, -ENOSPC);
        request_spare(b, t, 50 * MIB);
        assert_int_equal(t->refused, 0);
        assert_int_equal(t->unevictable_allowed[0], 50 * MIB);
}

static void spare_bytes_are_given_back_for_the_need_of_another_client(void **state)
{
        BENCH;
        struct tenant *full = runner(b, 0, 920 * MIB), *t = join(b, 0), *u = join(b, 0);

        (void)full;
        request_unevictable_of(b, t, 20 * MIB);
        request_spare(b, t, 45 * MIB);
        assert_int_equal(t->unevictable_allowed[0], 45 * MIB);
        t->unevictable[0] = 45 * MIB;
        usage(b, t);
        request_unevictable_of(b, u, 20 * MIB); /* 920 + 45 + 20 > 970 */
        assert_true(t->spare_asked);
        assert_int_equal(u->refused, 0);
        assert_int_equal(u->unevictable_allowed[0], 0);
        t->unevictable[0] = 20 * MIB;
        usage(b, t);
        request_unevictable_of(b, t, 20 * MIB);
        assert_int_equal(u->unevictable_allowed[0], 20 * MIB);

        t->spare_asked = false;
        request_unevictable_of(b, u, 60 * MIB);
        assert_false(t->spare_asked); /* t has no bytes to spare */
        assert_int_equal(u->refused, -ENOSPC);
}

static void a_client_that_keeps_spare_bytes_is_not_awaited_for_ever(void **state)
{
        BENCH;
        struct tenant *full = runner(b, 0, 920 * MIB), *t = join(b, 0), *u = join(b, 0);

        (void)full;
        request_spare(b, t, 45 * MIB);
        t->unevictable[0] = 45 * MIB;
        usage(b, t);
        request_unevictable_of(b, u, 20 * MIB);
        assert_true(t->spare_asked);
        assert_int_equal(u->refused, 0);
        pass(b, 6 * NSEC_PER_SEC);
        assert_int_equal(u->refused, -ENOSPC);
        request_unevictable_of(b, u, 20 * MIB); /* t is not awaited a second time */
        assert_int_equal(u->refused, -ENOSPC);
}

static void a_client_is_not_asked_to_spare_bytes_in_vain(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0), *u = join(b, 0);

        request_spare(b, t, 45 * MIB);
        t->unevictable[0] = 45 * MIB;
        usage(b, t);
        request_unevictable_of(b, u, 980 * MIB); /* more than the card has */
        assert_int_equal(u->refused, -ENOSPC);
        assert_false(t->spare_asked);
        request_unevictable_of(b, u, 960 * MIB);
        assert_true(t->spare_asked);
        assert_int_equal(u->refused, 0);
}

/* The client's second context has taken the bytes that were granted for the first. */
static void holding_spare_bytes_does_not_make_a_request_spare(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);

        request_unevictable_of(b, t, 20 * MIB);
        t->unevictable[0] = 20 * MIB;
        usage(b, t);
        request_with_spare(b, t, 60 * MIB); /* past the budget, but the card has room */
        assert_int_equal(t->refused, 0);
        assert_int_equal(t->unevictable_allowed[0], 60 * MIB);
}

static void a_holder_of_spare_bytes_may_make_a_spare_request(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0), *u = join(b, 0);

        request_spare(b, t, 20 * MIB);
        request_spare(b, u, 20 * MIB);
        assert_int_equal(u->unevictable_allowed[0], 20 * MIB);
        request_spare(b, u, 40 * MIB); /* another thread of u took some of the granted bytes */
        assert_int_equal(u->refused, -ENOSPC);
        assert_false(t->spare_asked);
}

static void a_spare_request_without_bytes_counts_as_nothing_held(void **state)
{
        BENCH;
        struct tenant *full = runner(b, 0, 920 * MIB), *t = join(b, 0), *u = join(b, 0);

        (void)full;
        request_spare(b, t, 0); /* the user of t may have no more bytes */
        request_unevictable_of(b, u, 60 * MIB);
        assert_false(t->spare_asked);
        assert_int_equal(u->refused, -ENOSPC);
}

/* Two clients claim in turns that they can spare bytes, so one was always asked just before. */
static void repeated_claims_to_spare_delay_no_refusal(void **state)
{
        BENCH;
        struct tenant *full = runner(b, 0, 920 * MIB), *u = join(b, 0);
        struct tenant *liar[] = {join(b, 0), join(b, 0)};

        (void)full;
        for (unsigned i = 0; i < 2; i++) {
                liar[i]->unevictable[0] = 20 * MIB;
                usage(b, liar[i]);
                request_with_spare(b, liar[i], 20 * MIB);
        }
        request_unevictable_of(b, u, 20 * MIB);
        assert_int_equal(u->refused, 0);
        for (unsigned i = 0; i < 6; i++) {
                /* The client has no bytes to spare, and gave none back. */
                request_unevictable_of(b, liar[i % 2], 20 * MIB);
                request_with_spare(b, liar[i % 2], 20 * MIB);
                pass(b, NSEC_PER_SEC);
        }
        assert_int_equal(u->refused, -ENOSPC);
}

static void a_withdrawn_unevictable_request_is_not_granted_later(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 500 * MIB), *c = runner(b, 0, 450 * MIB), *t = join(b, 0);

        request_unevictable_of(b, t, 10 * MIB);
        request_unevictable_of(b, t, 40 * MIB); /* 950 + 40 > 970: the request waits */
        assert_int_equal(t->refused, 0);
        assert_int_equal(state_of(b, t), SCHED_WAITING);
        request_unevictable_of(b, t, 10 * MIB);
        assert_int_equal(state_of(b, t), SCHED_IDLE);
        gone(b, a);
        gone(b, c);
        assert_int_equal(t->unevictable_allowed[0], 10 * MIB);
}

static void room_kept_for_unevictable_bytes_is_not_promised_again(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 700 * MIB), *t = join(b, 0);

        request_commit_of(b, t, 270 * MIB);
        t->allocated[0] = t->backed[0] = 270 * MIB;
        usage(b, t);
        request_unevictable_of(b, t,
                               /* 700 + 200: everybody stays runnable, but there is no room now. */
                               200 * MIB);
        assert_int_equal(t->refused, 0);
        request_commit_of(b, a, 800 * MIB);
        assert_int_equal(a->refused, -ENOMEM);
        request_commit_of(b, a, 770 * MIB);
        assert_int_equal(a->refused, 0);
}

static void small_unevictable_requests_do_not_overtake_large_ones(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = join(b, 0), *u = join(b, 0);

        request_commit_of(b, u, 50 * MIB);
        u->allocated[0] = u->backed[0] = 50 * MIB;
        usage(b, u);
        request_unevictable_of(b, t, 40 * MIB); /* 20 MiB are free */
        request_unevictable_of(b, u, 10 * MIB);
        assert_int_equal(t->unevictable_allowed[0], 0);
        assert_int_equal(u->unevictable_allowed[0], 0);
        assert_false(a->revoked);
        evict_to(b, u, u->limit[0]);
        pass(b, NSEC_PER_SEC / 10);
        evict_to(b, u, u->limit[0]);
        assert_int_equal(t->unevictable_allowed[0], 40 * MIB);
}

static void measured_unevictable_bytes_count_if_they_exceed_the_grant(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);
        struct sched_actions out = {0};

        request_unevictable_of(b, t, 20 * MIB);
        sched_client_unevictable(b->s, t->id, 0, 35 * MIB, b->now_ns, &out);
        assert_int_equal(charged(b), 35 * MIB);
        sched_client_unevictable(b->s, t->id, 0, 5 * MIB, b->now_ns, &out);
        assert_int_equal(charged(b), 20 * MIB);
}

/* The daemon measures unevictable bytes now and then: the charge may include an ended context. */
static void an_unevictable_request_for_charged_bytes_is_granted(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);
        struct sched_actions out = {0};

        request_unevictable_of(b, t, 20 * MIB);
        sched_client_unevictable(b->s, t->id, 0, 40 * MIB, b->now_ns, &out);
        request_unevictable_of(b, t, 40 * MIB);
        assert_int_equal(t->refused, 0);
        assert_int_equal(t->unevictable_allowed[0], 40 * MIB);
        assert_int_equal(charged(b), 40 * MIB);
}

/* ---- loss and return ---- */

static void a_lost_client_is_charged_until_it_is_gone(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = join(b, 0);

        request_commit_of(b, t, 600 * MIB);
        t->allocated[0] = 600 * MIB;
        lost(b, a);
        want_run(b, t, 600 * MIB);
        restore(b, t);
        pass(b, 20 * NSEC_PER_SEC);
        assert_int_equal(charged(b), 970 * MIB); /* 370 MiB were free */
        assert_int_equal(t->lease, 0);
        assert_true(flags_of(b, a) & SCHED_LOST);
        gone(b, a);
        assert_int_equal(t->limit[0], 600 * MIB);
        restore(b, t);
        assert_int_not_equal(t->lease, 0);
}

static void a_process_that_returns_is_charged_once(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t;
        sched_client former = a->id;
        struct sched_client_view v;

        lost(b, a);
        t = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        assert_int_equal(sched_client_returned(b->s, t->id, t->id), -EINVAL);
        assert_int_equal(sched_client_returned(b->s, t->id, former), 0);
        assert_int_equal(charged(b), 600 * MIB);
        attach(b, t, 0,
               &(struct sched_attach){
                       .usage = {.allocated = 600 * MIB, .backed = 600 * MIB},
                       .running = true,
                       .detached = true,
               });
        assert_int_equal(charged(b), 600 * MIB);
        assert_int_not_equal(t->lease, 0);
        assert_true(flags_of(b, t) & SCHED_DETACHED);
        assert_int_equal(sched_client_view(b->s, former, b->now_ns, &v), -ESTALE);
}

static void former_records_end_with_their_client(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t;

        lost(b, a);
        t = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        assert_int_equal(sched_client_returned(b->s, t->id, a->id), 0);
        gone(b, t);
        assert_int_equal(charged(b), 0);
}

static void restarted(struct sched_config *c)
{
        c->restart_grace_ns = 2 * NSEC_PER_SEC;
}

static void a_restarted_daemon_grants_nothing_before_clients_are_back(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(restarted);
        struct tenant *t = join(b, 0), *a;

        request_commit_of(b, t, 500 * MIB);
        assert_int_equal(t->commit[0], 0);
        assert_int_equal(t->refused, 0);
        pass(b, NSEC_PER_SEC);

        a = &b->t[b->tenants++];
        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &a->id), 0);
        attach(b, a, 0,
               &(struct sched_attach){
                       .usage = {.allocated = 700 * MIB, .backed = 700 * MIB},
                       .running = true,
               });
        assert_int_not_equal(a->lease, 0); /* a runs already, so it gets a lease */
        assert_int_equal(a->limit[0], 700 * MIB);
        assert_int_equal(a->commit[0], 700 * MIB);
        assert_int_equal(t->commit[0], 0);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(t->commit[0], 500 * MIB);
        assert_int_equal(t->limit[0], 270 * MIB);
}

/* During the first 2 s nobody is granted anything; the wait counts and is shown like any other. */
static void a_client_of_a_restarted_daemon_is_shown_as_waiting(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(restarted);
        struct tenant *t = &b->t[b->tenants++];
        struct sched_client_view v;

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.usage = {.allocated = 700 * MIB}, .run = true});
        assert_int_equal(state_of(b, t), SCHED_WAITING);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(state_of(b, t), SCHED_WAITING);
        assert_int_equal(t->limit[0], 0);
        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        assert_int_equal(v.waited_ns, NSEC_PER_SEC);
        assert_int_equal(v.run_ns, 0);
        assert_int_equal(b->now_ns - v.since_ns, NSEC_PER_SEC);
}

/* ---- slots and answers ---- */

static void four_places(struct sched_config *c)
{
        c->clients_max = 4;
}

static void a_slot_is_free_again_when_its_client_has_gone(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(four_places);
        sched_client held[3], id, last = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(held); i++)
                assert_int_equal(sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0,
                                                  b->now_ns, &held[i]),
                                 0);
        for (unsigned i = 0; i < 2000; i++) {
                struct sched_actions out = {0};

                assert_int_equal(
                        sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &id),
                        0);
                assert_int_not_equal(id, last);
                last = id;
                assert_int_equal(
                        sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &id),
                        -ENOSPC);
                sched_client_gone(b->s, last, b->now_ns, &out);
                assert_null(sched_check(b->s, b->now_ns));
        }
}

static void messages_with_the_id_of_a_gone_client_are_refused(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(four_places);
        struct tenant *old = join(b, 0), *t;
        const struct sched_attach at = {.sequence = 1};
        const struct sched_request w = {.commit = MIB, .sequence = 1};
        const struct sched_usage u = {0};
        struct sched_actions out = {0};
        struct sched_client_view v;
        sched_client id = old->id;

        gone(b, old);
        t = join(b, 0);
        assert_int_equal((uint32_t)t->id, (uint32_t)id); /* the same slot */
        assert_int_not_equal(t->id, id);
        assert_int_equal(sched_client_attach(b->s, id, 0, &at, b->now_ns, &out), -ESTALE);
        assert_int_equal(sched_client_request(b->s, id, 0, &w, b->now_ns, &out), -ESTALE);
        assert_int_equal(sched_client_usage(b->s, id, 0, &u, 1, 0, b->now_ns, &out), -ESTALE);
        assert_int_equal(sched_client_drained(b->s, id, 1, b->now_ns, &out), -ESTALE);
        assert_int_equal(sched_client_view(b->s, id, b->now_ns, &v), -ESTALE);
        sched_client_lost(b->s, id, b->now_ns, &out);
        sched_client_gone(b->s, id, b->now_ns, &out);
        assert_int_equal(out.n, 0);
        assert_int_equal(sched_client_view(b->s, t->id, b->now_ns, &v), 0);
        assert_int_equal(v.flags, 0);
}

/* Each request needs an answer, also when nothing changes: the program waits for it. */
static void every_request_for_bytes_is_answered(void **state)
{
        static const struct {
                uint64_t commit, unevictable;
                int refusal; /* 0: answered with a LIMIT */
        } asked[] = {
                {100 * MIB, 0, 0},        {100 * MIB, 0, 0},        {50 * MIB, 0, 0},
                {5000 * MIB, 0, -ENOMEM}, {0, 20 * MIB, 0},         {0, 20 * MIB, 0},
                {0, 10 * MIB, 0},         {0, 5000 * MIB, -ENOSPC}, {0, 10 * MIB, 0},
        };
        BENCH;
        struct tenant *t = join(b, 0);

        for (unsigned i = 0; i < ARRAY_SIZE(asked); i++) {
                uint32_t before = t->sequence[0];

                t->refused = 0;
                want(b, t,
                     &(struct sched_request){.commit = asked[i].commit,
                                             .unevictable = asked[i].unevictable,
                                             .sequence = 100 + i});
                assert_int_equal(t->refused, asked[i].refusal);
                if (asked[i].refusal)
                        assert_int_equal(t->refused_of, 100 + i);
                else
                        assert_int_equal(t->sequence[0], before + 1);
                usage(b, t);
        }
}

/* The client has received only the refusal. The answer to its next request is its first LIMIT. */
static void a_client_refused_a_context_gets_its_limit_at_the_next_request(void **state)
{
        BENCH;
        struct tenant *t = &b->t[b->tenants++];

        assert_int_equal(
                sched_client_add(b->s, (struct sched_origin){.uid = 1}, 0, b->now_ns, &t->id), 0);
        attach(b, t, 0, &(struct sched_attach){.unevictable_requested = 5000 * MIB, .sequence = 7});
        assert_int_equal(t->refused, -ENOSPC);
        assert_int_equal(t->refused_of, 7);
        assert_int_equal(t->sequence[0], 0);
        want(b, t, &(struct sched_request){.sequence = 8});
        assert_int_equal(t->sequence[0], 1);
}

/* ---- foreign processes on the card ---- */

static void foreign_processes_make_idle_clients_give_way(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 600 * MIB), *t = runner(b, 0, 300 * MIB);

        idle(b, a, true);
        pass(b, NSEC_PER_SEC / 2);
        foreign(b, 200 * MIB);
        assert_true(a->revoked);
        drained(b, a);
        assert_int_equal(a->limit[0], 470 * MIB);
        assert_false(t->revoked);
}

/* The daemon cannot ask a silent client to give way, so its bytes count as unevictable; other
 * clients use the rest. */
static void a_silent_client_keeps_its_bytes_and_gets_no_more(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 300 * MIB), *silent;

        silent = join(b, 0);
        request_commit_of(b, silent, 600 * MIB);
        silent->allocated[0] = 600 * MIB;
        usage(b, silent);
        want_run(b, silent, 600 * MIB);
        assert_int_equal(silent->limit[0], 600 * MIB);
        pass(b, 6 * NSEC_PER_SEC);
        assert_true(silent->overdue);
        assert_false(silent->lease);
        assert_int_equal(charged(b), 900 * MIB);
        /* A request that fits beside it is served. One that does not fit blocks nobody and evicts
         * nobody. */
        request_commit_of(b, t, 350 * MIB);
        t->allocated[0] = 350 * MIB;
        want_run(b, t, 350 * MIB);
        assert_int_equal(t->limit[0], 350 * MIB);
        restore(b, t);
        pass(b, 30 * NSEC_PER_SEC);
        assert_false(t->revoked);
        assert_true(t->lease);
        assert_null(sched_check(b->s, b->now_ns));
        /* Once it has answered it is treated like any other client. */
        assert_int_equal(silent->limit[0], 0);
        usage(b, silent);
        assert_false(flags_of(b, silent) & SCHED_OVERDUE);
        assert_false(silent->lease);
        gone(b, t);
        restore(b, silent);
        assert_true(silent->lease);
}

/* Two daemons on one card: each has half of a program's memory there and would wait for the other
 * daemon to give way. */
static void half_restored_memory_goes_back_if_foreign_bytes_block_the_rest(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB);

        idle(b, t, true);
        foreign(b, 970 * MIB);
        pass(b, NSEC_PER_SEC);
        drained(b, t);
        evict_to(b, t, 0);
        foreign(b, 0);
        want_run(b, t, 600 * MIB);
        assert_int_equal(t->limit[0], 600 * MIB);
        t->backed[0] = 300 * MIB;
        usage(b, t);
        foreign(b, 500 * MIB);
        restore(b, t);
        assert_int_equal(t->limit[0], 470 * MIB);
        pass(b, 8 * NSEC_PER_SEC);
        assert_false(t->overdue);
        assert_int_equal(t->limit[0], 0);
        evict_to(b, t, 0);
        assert_int_equal(state_of(b, t), SCHED_WAITING);
        foreign(b, 0);
        assert_int_equal(t->limit[0], 600 * MIB);
        restore(b, t);
        assert_true(t->lease);
}

static void a_client_that_foreign_bytes_keep_from_growing_gives_way(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 400 * MIB);

        request_commit_of(b, t, 600 * MIB);
        foreign(b, 500 * MIB);
        t->allocated[0] = 600 * MIB;
        usage(b, t);
        want_run(b, t, 600 * MIB);
        assert_false(t->revoked);
        pass(b, 8 * NSEC_PER_SEC);
        assert_true(t->revoked);
        drained(b, t);
        want_run(b, t, 600 * MIB);
        assert_int_equal(t->limit[0], 0);
}

static void a_shortage_counts_until_the_card_was_measured(void **state)
{
        BENCH;
        struct tenant *a = join(b, 0);
        struct sched_actions out = {0};
        struct sched_gpu_view v;

        request_commit_of(b, a, 500 * MIB);
        a->allocated[0] = 500 * MIB;
        a->backed[0] = 300 * MIB;
        usage(b, a);
        assert_int_equal(sched_client_short(b->s, a->id, 0, 200 * MIB, b->now_ns, &out), 0);
        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        assert_int_equal(v.capacity, 800 * MIB);
        foreign(b, 10 * MIB);
        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        assert_int_equal(v.capacity, 990 * MIB);
}

static void a_client_short_of_memory_gets_what_others_give(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 400 * MIB), *t = runner(b, 0, 300 * MIB);
        struct sched_actions out = {0};

        pass(b, NSEC_PER_SEC / 2);
        idle(b, a, true);
        pass(b, NSEC_PER_SEC / 4);
        want(b, t, &(struct sched_request){.commit = 560 * MIB});
        t->allocated[0] = 560 * MIB;
        usage(b, t);
        assert_int_equal(t->limit[0], 560 * MIB);
        assert_int_equal(sched_client_short(b->s, t->id, 0, 260 * MIB, b->now_ns, &out), 0);
        assert_null(sched_check(b->s, b->now_ns));
        /* The client evicts what it cannot complete, except for bytes that are free anyway; an idle
         * client gives way for it. */
        assert_true(out.n >= 1);
        assert_int_equal(out.list[0].type, SCHED_DO_LIMIT);
        assert_int_equal(out.list[0].limit.backed, 310 * MIB);
        t->sequence[0] = out.list[0].limit.sequence;
        usage(b, t);
        pass(b, NSEC_PER_SEC / 10);
        assert_int_equal(state_of(b, a), SCHED_DRAINING);
}

/* The daemon delays its answer while it makes room; messages that the client sends during the delay
 * still count. */
static void a_delayed_answer_to_a_commit_changes_nothing_else(void **state)
{
        BENCH;
        struct tenant *t = join(b, 0);
        struct sched_actions out = {0};

        want_run(b, t, 0);
        assert_int_equal(sched_client_commit(b->s, t->id, 0, 300 * MIB, 9, b->now_ns, &out), 0);
        assert_int_equal(out.n, 1);
        assert_int_equal(out.list[0].type, SCHED_DO_LIMIT);
        assert_int_equal(out.list[0].limit.commit, 300 * MIB);
        assert_int_equal(state_of(b, t), SCHED_RUNNING);
        out.n = 0;
        assert_int_equal(sched_client_commit(b->s, t->id, 0, 930 * MIB, 10, b->now_ns, &out), 0);
        assert_int_equal(out.n, 1);
        assert_int_equal(out.list[0].type, SCHED_DO_REFUSE);
        assert_int_equal(out.list[0].refuse.of, 10);
        assert_int_equal(sched_client_commit(b->s, t->id, 1, MIB, 11, b->now_ns, &out), -EINVAL);
        lost(b, t);
        assert_int_equal(sched_client_commit(b->s, t->id, 0, MIB, 12, b->now_ns, &out), -ESTALE);
        assert_null(sched_check(b->s, b->now_ns));
}

static void without_bounds(struct sched_config *c)
{
        c->quantum_ns = c->quantum_max_ns = c->quantum_min_ns = UINT64_MAX;
        c->grace_ns = c->patience_ns = c->idle_release_ns = UINT64_MAX;
        c->host_budget_bytes = UINT64_MAX;
        c->handoff_permille = UINT32_MAX;
}

static void all_for_unevictable_bytes(struct sched_config *c)
{
        c->unevictable_permille = UINT32_MAX;
}

static void without_any_setting(struct sched_config *c)
{
        c->quantum_ns = c->quantum_max_ns = c->quantum_min_ns = 0;
        c->grace_ns = c->patience_ns = c->idle_release_ns = 0;
        c->handoff_permille = c->unevictable_permille = 0;
}

static void times_set_beyond_all_bounds_count_as_a_day(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(without_bounds);
        const uint64_t day = 24 * 3600 * NSEC_PER_SEC;
        struct tenant *a = runner(b, 0, 900 * MIB), *t = join(b, 0);

        request_commit_of(b, t, 500 * MIB);
        t->allocated[0] = 500 * MIB;
        want_run(b, t, 500 * MIB);
        restore(b, t); /* otherwise t would be overdue itself */
        pass(b, day - 1);
        assert_false(a->revoked);
        pass(b, 1);
        assert_true(a->revoked);
        assert_int_equal(a->patience_ns, day);
        pass(b, 2 * day - 1);
        assert_false(a->overdue);
        pass(b, 1);
        assert_true(a->overdue);
}

static void an_unevictable_budget_leaves_bytes_to_allocate(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(all_for_unevictable_bytes);
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        assert_int_equal(v.unevictable_budget, 900 * MIB);
        assert_int_equal(v.visible, 70 * MIB);
}

static void settings_of_zero_leave_time_to_answer(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(without_any_setting);
        struct tenant *a = runner(b, 0, 900 * MIB), *t = join(b, 1);

        request_commit_of(b, t, 500 * MIB);
        t->allocated[0] = 500 * MIB;
        want_run(b, t, 500 * MIB);
        assert_true(a->revoked);
        assert_int_equal(a->patience_ns, NSEC_PER_MSEC);
        assert_false(a->overdue);
        drained(b, a);
        usage(b, a);
        assert_false(a->overdue);
}

static void a_corrected_card_size_replaces_the_stated_one(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB);
        struct sched_actions out = {0};
        struct sched_gpu_view v;

        sched_gpu_total(b->s, 0, 500 * MIB, b->now_ns, &out);
        assert_null(sched_check(b->s, b->now_ns));
        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        assert_in_range(v.visible, 400 * MIB, 500 * MIB);
        sched_gpu_total(b->s, 0, 2000 * MIB, b->now_ns, &out);
        assert_null(sched_check(b->s, b->now_ns));
        request_commit_of(b, t, 1500 * MIB);
        assert_int_equal(t->commit[0], 1500 * MIB);
}

static void a_card_is_removed_once_no_client_uses_it(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 600 * MIB);
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_remove(b->s, 0), -EBUSY);
        gone(b, t);
        assert_int_equal(sched_gpu_remove(b->s, 0), 0);
        assert_int_not_equal(sched_gpu_view(b->s, 0, &v), 0);
        assert_int_equal(sched_gpu_add(b->s, 0, 500 * MIB), 0);
        (void)runner(b, 0, 300 * MIB);
}

static void names_are_the_ones_in_the_documentation(void **state)
{
        enum sched_mode m;

        assert_string_equal(sched_state_name(SCHED_RESTORING), "restoring");
        assert_string_equal(sched_mode_name(SCHED_MODE_EXCLUSIVE), "exclusive");
        assert_int_equal(sched_mode_parse("off", &m), 0);
        assert_int_equal(m, SCHED_MODE_OFF);
        assert_int_equal(sched_mode_parse("Off", &m), -EINVAL);
}

static unsigned changes(struct bench *b)
{
        unsigned n = 0;

        while (sched_take_changed(b->s))
                n++;
        return n;
}

static void clients_that_do_something_else_are_listed_once(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 100 * MIB), *other = runner(b, 0, 100 * MIB);
        struct sched_look look;

        assert_int_equal(changes(b), 2);
        usage(b, t);
        assert_int_equal(changes(b), 0);
        idle(b, t, true);
        idle(b, t, false);
        idle(b, t, true);
        assert_int_equal(sched_take_changed(b->s), t->id);
        assert_int_equal(changes(b), 0);
        assert_int_equal(sched_client_look(b->s, t->id, &look), 0);
        assert_int_equal(look.state, SCHED_RUNNING);
        assert_true(look.idle);
        idle(b, other, true);
        gone(b, other); /* nobody can be told any more */
        assert_int_equal(sched_client_look(b->s, other->id, &look), -ESTALE);
        other = runner(b, 0, 100 * MIB); /* in the same slot */
        assert_int_equal(sched_take_changed(b->s), other->id);
        assert_int_equal(changes(b), 0);
}

/* A build with tests ends; test_precondition.c has what a release does. */
static void a_gpu_that_is_not_known_ends_a_build_with_tests(void **state)
{
        BENCH;
        struct sched_actions out = {0};

        for (unsigned i = 0; i < 4; i++) {
                pid_t child = fork();
                int status = 0;

                if (child == 0) {
                        (void)close(STDERR_FILENO);
                        if (i == 0)
                                (void)sched_gpu_add(b->s, SCHED_GPUS_MAX, GIB);
                        else if (i == 1)
                                sched_gpu_foreign(b->s, 5, 0, b->now_ns, &out);
                        else if (i == 2)
                                (void)sched_gpu_remove(b->s, 5);
                        else
                                (void)sched_set_mode(b->s, (enum sched_mode)7, b->now_ns, &out);
                        _exit(0);
                }
                assert_int_equal(waitpid(child, &status, 0), child);
                assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_gpu_that_is_not_known_ends_a_build_with_tests),
                cmocka_unit_test(a_corrected_card_size_replaces_the_stated_one),
                cmocka_unit_test(a_card_is_removed_once_no_client_uses_it),
                cmocka_unit_test(the_visible_size_excludes_headroom_and_the_unevictable_budget),
                cmocka_unit_test(headroom_of_a_large_card_is_512_mib),
                cmocka_unit_test(a_commit_is_granted_at_once_with_an_equal_limit),
                cmocka_unit_test(a_commit_beyond_the_visible_size_is_refused),
                cmocka_unit_test(foreign_bytes_reduce_the_commit),
                cmocka_unit_test(a_commit_beyond_card_and_host_memory_is_refused),
                cmocka_unit_test(host_memory_for_kernels_is_not_promised_to_evictions),
                cmocka_unit_test(commits_fill_only_the_card_without_host_memory),
                cmocka_unit_test(a_lower_commit_counts_once_it_is_acknowledged),
                cmocka_unit_test(an_old_usage_is_no_acknowledgement),
                cmocka_unit_test(impossible_figures_are_refused_or_clamped),
                cmocka_unit_test(ids_of_gone_clients_match_no_client),
                cmocka_unit_test(the_first_limit_is_sent_when_the_context_has_room),
                cmocka_unit_test(a_full_card_makes_room_for_a_context),
                cmocka_unit_test(unevictable_bytes_past_the_budget_reduce_unused_commits),
                cmocka_unit_test(an_unevictable_request_is_refused_if_another_client_is_silent),
                cmocka_unit_test(a_repeated_unevictable_request_keeps_its_age),
                cmocka_unit_test(spare_bytes_stay_within_the_unevictable_budget),
                cmocka_unit_test(spare_bytes_are_given_back_for_the_need_of_another_client),
                cmocka_unit_test(a_client_that_keeps_spare_bytes_is_not_awaited_for_ever),
                cmocka_unit_test(a_client_is_not_asked_to_spare_bytes_in_vain),
                cmocka_unit_test(holding_spare_bytes_does_not_make_a_request_spare),
                cmocka_unit_test(a_holder_of_spare_bytes_may_make_a_spare_request),
                cmocka_unit_test(a_spare_request_without_bytes_counts_as_nothing_held),
                cmocka_unit_test(repeated_claims_to_spare_delay_no_refusal),
                cmocka_unit_test(a_withdrawn_unevictable_request_is_not_granted_later),
                cmocka_unit_test(room_kept_for_unevictable_bytes_is_not_promised_again),
                cmocka_unit_test(small_unevictable_requests_do_not_overtake_large_ones),
                cmocka_unit_test(measured_unevictable_bytes_count_if_they_exceed_the_grant),
                cmocka_unit_test(an_unevictable_request_for_charged_bytes_is_granted),
                cmocka_unit_test(a_lost_client_is_charged_until_it_is_gone),
                cmocka_unit_test(a_process_that_returns_is_charged_once),
                cmocka_unit_test(former_records_end_with_their_client),
                cmocka_unit_test(a_restarted_daemon_grants_nothing_before_clients_are_back),
                cmocka_unit_test(a_client_of_a_restarted_daemon_is_shown_as_waiting),
                cmocka_unit_test(a_slot_is_free_again_when_its_client_has_gone),
                cmocka_unit_test(messages_with_the_id_of_a_gone_client_are_refused),
                cmocka_unit_test(every_request_for_bytes_is_answered),
                cmocka_unit_test(a_client_refused_a_context_gets_its_limit_at_the_next_request),
                cmocka_unit_test(foreign_processes_make_idle_clients_give_way),
                cmocka_unit_test(a_silent_client_keeps_its_bytes_and_gets_no_more),
                cmocka_unit_test(half_restored_memory_goes_back_if_foreign_bytes_block_the_rest),
                cmocka_unit_test(a_client_that_foreign_bytes_keep_from_growing_gives_way),
                cmocka_unit_test(a_shortage_counts_until_the_card_was_measured),
                cmocka_unit_test(a_client_short_of_memory_gets_what_others_give),
                cmocka_unit_test(a_delayed_answer_to_a_commit_changes_nothing_else),
                cmocka_unit_test(times_set_beyond_all_bounds_count_as_a_day),
                cmocka_unit_test(an_unevictable_budget_leaves_bytes_to_allocate),
                cmocka_unit_test(settings_of_zero_leave_time_to_answer),
                cmocka_unit_test(clients_that_do_something_else_are_listed_once),
                cmocka_unit_test(names_are_the_ones_in_the_documentation),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
