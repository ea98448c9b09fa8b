/* test_sched_slices.c: how long the GPU runs each of the clients that hold leases together. */
#include "sched_bench.h"

#define SLICE_NS (2048 * NSEC_PER_USEC)
#define LONG_NS  (10 * NSEC_PER_MSEC)

#define BENCH struct bench *b __attribute__((cleanup(done))) = bench_new(NULL)

static void done(struct bench **b)
{
        bench_free(*b);
}

/* Adds a running client with 10 MiB. job: 0: none. */
static struct tenant *runs(struct bench *b, uint64_t job)
{
        struct tenant *t =
                comes_to_run(b, (struct sched_origin){.uid = 1, .job = job}, 0, 10 * MIB);

        restore(b, t);
        assert_int_not_equal(t->lease, 0);
        return t;
}

static void a_single_program_keeps_the_drivers_slice(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 0), *u = runs(b, 0);

        assert_int_equal(t->slice_ns, 0);
        assert_int_equal(u->slice_ns, 0);
}

static void ranks_that_have_the_card_alone_get_long_slices(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 7), *u;

        assert_int_equal(t->slice_ns, 0);
        u = runs(b, 7);
        assert_int_equal(t->slice_ns, LONG_NS);
        assert_int_equal(u->slice_ns, LONG_NS);
        gone(b, u);
        assert_int_equal(t->slice_ns, 0);
}

static void beside_others_each_side_gets_the_same(void **state)
{
        BENCH;
        struct tenant *ranks[4], *other;

        for (unsigned i = 0; i < 4; i++)
                ranks[i] = runs(b, 7);
        other = runs(b, 0);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(ranks[i]->slice_ns, SLICE_NS);
        assert_int_equal(other->slice_ns, 4 * SLICE_NS);
}

static void an_idle_program_does_not_divide_the_card(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 7), *other;

        (void)runs(b, 7);
        other = runs(b, 0);
        assert_int_equal(t->slice_ns, SLICE_NS);
        idle(b, other, true);
        assert_int_equal(t->slice_ns, SLICE_NS); /* it may come back in a moment */
        pass(b, 3 * NSEC_PER_SEC);
        assert_int_equal(t->slice_ns, LONG_NS);
        idle(b, other, false);
        assert_int_equal(t->slice_ns, SLICE_NS);
        assert_int_equal(other->slice_ns, 2 * SLICE_NS);
}

static void beside_mps_the_drivers_slices_stay(void **state)
{
        BENCH;
        struct tenant *t = runs(b, 7), *u = runs(b, 7);

        set_mps(b, u, true);
        assert_int_equal(t->slice_ns, 0);
        assert_int_equal(u->slice_ns, 0);
        set_mps(b, u, false);
        assert_int_equal(t->slice_ns, LONG_NS);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_single_program_keeps_the_drivers_slice),
                cmocka_unit_test(ranks_that_have_the_card_alone_get_long_slices),
                cmocka_unit_test(beside_others_each_side_gets_the_same),
                cmocka_unit_test(an_idle_program_does_not_divide_the_card),
                cmocka_unit_test(beside_mps_the_drivers_slices_stay),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
