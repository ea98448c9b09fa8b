/* test_sched_export.c: exported memory, which stays on the card, and the views of cards and
 * clients. */
#include "sched_bench.h"

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

static struct sched_account_view account(struct bench *b, const struct tenant *t)
{
        struct sched_account_view v;

        assert_int_equal(sched_account_view(b->s, t->id, 0, &v), 0);
        return v;
}

static struct sched_gpu_view card(struct bench *b)
{
        struct sched_gpu_view v;

        assert_int_equal(sched_gpu_view(b->s, 0, &v), 0);
        return v;
}

/* Makes a client with 300 MiB, 30 MiB of them evicted, beside two clients with 700 MiB. */
static struct tenant *nearly_whole(struct bench *b)
{
        struct tenant *t = runner(b, 0, 300 * MIB), *last;

        idle(b, t, true);
        (void)runner(b, 0, 400 * MIB);
        last = join(b, 0);
        request_commit_of(b, last, 300 * MIB);
        last->allocated[0] = 300 * MIB;
        usage(b, last);
        want_run(b, last, 300 * MIB);
        pass(b, NSEC_PER_SEC);
        drained(b, t);
        evict_to(b, t, 270 * MIB);
        restore(b, last);
        assert_int_equal(t->limit[0], 270 * MIB);
        return t;
}

static void resident_memory_is_exported_at_once(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 300 * MIB);

        export(b, t, 300 * MIB);
        assert_int_equal(t->exported[0], 300 * MIB);
        assert_int_equal(account(b, t).exported, 300 * MIB);
        assert_int_equal(account(b, t).exported_asked, 300 * MIB);
        assert_int_equal(t->refused, 0);
        assert_int_equal(card(b).charged, 300 * MIB); /* a request is charged at once */
        export(b, t, 100 * MIB);                      /* a smaller export takes effect at once */
        assert_int_equal(account(b, t).exported, 100 * MIB);
        export(b, t, 0);
        assert_int_equal(account(b, t).exported, 0);
        assert_int_equal(card(b).unevictable, 0);
}

static void an_export_of_more_than_is_allocated_is_refused(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 300 * MIB);

        export(b, t, 300 * MIB + 1);
        assert_int_equal(t->refused, -EBUSY);
        assert_int_equal(t->refused_of, 77);
        assert_int_equal(account(b, t).exported, 0);
        assert_int_equal(account(b, t).exported_asked, 0);
        t->refused = 0;
        export(b, t, 300 * MIB);
        assert_int_equal(t->refused, 0);
}

static void exported_memory_does_not_leave_for_other_clients(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 300 * MIB), *other = join(b, 0);

        export(b, t, 200 * MIB);
        idle(b, t, true);
        request_commit_of(b, other, 750 * MIB);
        other->allocated[0] = 750 * MIB;
        usage(b, other);
        want_run(b, other, 750 * MIB);
        pass(b, NSEC_PER_SEC);
        drained(b, t);
        assert_in_range(t->limit[0], 200 * MIB, 220 * MIB);
        evict_to(b, t, t->limit[0]);
        restore(b, other);
        assert_true(other->lease);
        /* A commit that would not fit beside the export is refused. */
        request_commit_of(b, other, 771 * MIB);
        assert_int_equal(other->refused, -ENOMEM);
}

/* An export must leave other clients the bytes that they need to run. */
static void bytes_that_others_need_to_run_are_not_exported(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 300 * MIB), *other = runner(b, 0, 600 * MIB);

        (void)other;
        export(b, t, 300 * MIB);
        assert_int_equal(t->exported[0], 300 * MIB);
        request_commit_of(b, t, 400 * MIB);
        t->allocated[0] = 371 * MIB;
        usage(b, t);
        export(b, t, 371 * MIB); /* 1 MiB more than fits beside the other client's 600 MiB */
        assert_int_equal(t->refused, -EBUSY);
        t->refused = 0;
        export(b, t, 370 * MIB);
        pass(b, NSEC_PER_SEC);
        assert_int_equal(t->refused, 0);
}

static void evicted_memory_is_exported_when_there_is_room(void **state)
{
        BENCH;
        struct tenant *t = nearly_whole(b), *gives = NULL;

        export(b, t, 300 * MIB);
        assert_int_equal(t->refused, 0);
        assert_int_equal(t->exported[0], 0);
        assert_int_equal(account(b, t).exported_asked, 300 * MIB);
        assert_int_equal(card(b).waiting, 1);
        pass(b, 2 * NSEC_PER_SEC);
        for (unsigned i = 1; i < b->tenants; i++)
                if (b->t[i].revoked)
                        gives = &b->t[i];
        assert_non_null(gives); /* a client gives way, as for one that waits to run */
        drained(b, gives);
        evict_to(b, gives, gives->limit[0]);
        assert_int_equal(t->exported[0], 300 * MIB);
        assert_int_equal(t->limit[0], 300 * MIB);
        assert_int_equal(account(b, t).exported, 300 * MIB);
}

static void off(struct sched_config *c)
{
        c->mode = SCHED_MODE_OFF;
}

static void an_export_is_granted_at_once_in_mode_off(void **state)
{
        struct bench *b __attribute__((cleanup(done))) = bench_new(off);
        struct tenant *t = runner(b, 0, 300 * MIB);

        export(b, t, 300 * MIB);
        assert_int_equal(t->exported[0], 300 * MIB);
        assert_int_equal(t->refused, 0);
}

static void waiting_and_running_clients_of_a_card_are_counted(void **state)
{
        BENCH;
        struct tenant *a = runner(b, 0, 500 * MIB), *c;

        assert_int_equal(card(b).running, 1);
        assert_int_equal(card(b).waiting, 0);
        c = join(b, 0);
        assert_int_equal(card(b).waiting, 0); /* c has requested nothing */
        request_commit_of(b, c, 600 * MIB);
        c->allocated[0] = 600 * MIB;
        usage(b, c);
        want_run(b, c, 600 * MIB);
        assert_int_equal(card(b).waiting, 1);
        assert_int_equal(card(b).running, 1);
        gone(b, a);
        restore(b, c);
        assert_int_equal(card(b).waiting, 0);
        assert_int_equal(card(b).running, 1);
        assert_int_equal(sched_gpu_view(b->s, 5, &(struct sched_gpu_view){0}), -EINVAL);
        assert_int_equal(sched_gpu_view(b->s, SCHED_GPUS_MAX, &(struct sched_gpu_view){0}),
                         -EINVAL);
}

/* The limit on a user's total needs these figures, which include unanswered requests. */
static void requested_bytes_are_shown_beside_held_bytes(void **state)
{
        BENCH;
        struct tenant *t = runner(b, 0, 300 * MIB);
        uint64_t held = account(b, t).commit_held;
        struct sched_account_view v;

        assert_int_equal(account(b, t).commit_asked, held);
        assert_int_equal(account(b, t).unevictable_asked, 0);
        assert_int_equal(account(b, t).exported_asked, 0);
        (void)runner(b, 0, 600 * MIB);
        request_unevictable_of(b, t, 40 * MIB);
        assert_int_equal(account(b, t).unevictable_asked, 40 * MIB);
        assert_int_equal(sched_account_view(b->s, t->id, 1, &v), -EINVAL);
        assert_int_equal(sched_account_view(b->s, t->id, SCHED_GPUS_MAX, &v), -EINVAL);
        assert_int_equal(sched_account_view(b->s, 0, 0, &v), -ESTALE);
}

static void mode_names_and_numbers_convert_both_ways(void **state)
{
        static const enum sched_mode modes[] = {SCHED_MODE_AUTO, SCHED_MODE_EXCLUSIVE,
                                                SCHED_MODE_OFF};

        for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
                enum sched_mode m = SCHED_MODE_EXCLUSIVE;

                assert_int_equal(sched_mode_parse(sched_mode_name(modes[i]), &m), 0);
                assert_int_equal(m, modes[i]);
        }
        assert_string_equal(sched_mode_name((enum sched_mode)3), "unknown");
        assert_string_equal(sched_state_name((enum sched_state)6), "unknown");
        assert_string_equal(sched_state_name(SCHED_IDLE), "idle");
        assert_string_equal(sched_state_name(SCHED_EVICTING), "evicting");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(resident_memory_is_exported_at_once),
                cmocka_unit_test(an_export_of_more_than_is_allocated_is_refused),
                cmocka_unit_test(exported_memory_does_not_leave_for_other_clients),
                cmocka_unit_test(bytes_that_others_need_to_run_are_not_exported),
                cmocka_unit_test(evicted_memory_is_exported_when_there_is_room),
                cmocka_unit_test(an_export_is_granted_at_once_in_mode_off),
                cmocka_unit_test(waiting_and_running_clients_of_a_card_are_counted),
                cmocka_unit_test(requested_bytes_are_shown_beside_held_bytes),
                cmocka_unit_test(mode_names_and_numbers_convert_both_ways),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
