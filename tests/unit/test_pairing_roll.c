/* test_pairing_roll.c: which waiting jobs join others, by the model of turns. */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "pairing/roll.h"

#define MOST 12

/* Jobs that compute on the host for most of a step go well together; busy ones do not. */
struct crowd {
        struct job jobs[MOST];
        struct roll_job roll[MOST];
        struct pairs pairs;
        struct roll_pair ret[MOST];
        size_t n, n_ret;
        struct roll_options o;
        char error[PAIRS_ERROR_MAX];
};

static void add(struct crowd *c, bool runs, bool busy)
{
        struct job *j = &c->jobs[c->n];

        job_init(j);
        (void)snprintf(j->name, sizeof(j->name), "%c", (char)('a' + c->n));
        j->measured.memory_bytes = 64e9;
        j->measured.bus_gb_s = 50;
        j->memory.peak_bytes = 1e9;
        j->steps.per_second = busy ? 10 : 0.5;
        j->launch.host_s_per_step = busy ? 0 : 1.9;
        j->gpu.busy = busy ? 1 : 0.05;
        j->launch.idle = busy ? 0 : 0.95;
        c->roll[c->n++] =
                (struct roll_job){.runs = runs, .bound = 0.7, .ways = 1u << WAY_TURNS, .user = 1};
}

static size_t choose(struct crowd *c, unsigned free_gpus)
{
        unsigned waiting = 0;

        for (size_t i = 0; i < c->n; i++)
                waiting += !c->roll[i].runs;
        c->o.free_gpus = free_gpus;
        c->o.waiting = c->o.waiting ? c->o.waiting : waiting;
        if (c->o.host_bytes == 0)
                c->o.host_bytes = 1e12;
        assert_int_equal(pairs_open(c->jobs, c->n, NULL, 0, 0, &c->pairs, c->error), 0);
        assert_int_equal(roll_choose(&c->pairs, c->roll, &c->o, c->ret, &c->n_ret, c->error), 0);
        pairs_close(&c->pairs);
        return c->n_ret;
}

static void a_waiting_job_joins_one_that_runs_if_both_keep_the_bound(void **state)
{
        struct crowd c = {0};

        add(&c, true, true);
        add(&c, true, false);
        add(&c, false, false);
        assert_int_equal(choose(&c, 0), 1);
        assert_int_equal(c.ret[0].a, 2);
        assert_int_equal(c.ret[0].b, 1);
        assert_int_equal(c.ret[0].way, WAY_TURNS);
        assert_true(c.ret[0].progress[0] >= 0.7 && c.ret[0].progress[1] >= 0.7);
}

static void no_pair_is_made_of_two_that_run_or_below_a_bound(void **state)
{
        struct crowd c = {0};

        add(&c, true, true);
        add(&c, true, true);
        add(&c, false, true);
        assert_int_equal(choose(&c, 0), 0);
        c.roll[2].bound = 0.01; /* that of the others counts, too */
        assert_int_equal(choose(&c, 0), 0);
}

static void nobody_takes_turns_with_a_job_that_can_only_be_shared(void **state)
{
        struct crowd c = {0};

        add(&c, true, false);
        add(&c, false, false);
        assert_int_equal(choose(&c, 0), 1);
        c.roll[1].ways |= 1u << WAY_SHARED;
        c.roll[0].ways = 1u << WAY_SHARED;
        assert_int_equal(choose(&c, 0), 0);
}

static void waiting_jobs_pair_on_free_gpus_only(void **state)
{
        struct crowd c = {0};

        for (unsigned i = 0; i < 6; i++)
                add(&c, false, false);
        assert_int_equal(choose(&c, 0), 0);
        assert_int_equal(choose(&c, 1), 1);
        assert_int_equal(choose(&c, 2), 2);
        /* Of six jobs on five GPUs, one pair is enough. */
        assert_int_equal(choose(&c, 5), 1);
        assert_int_equal(choose(&c, 6), 0);
}

static void those_that_came_first_go_first(void **state)
{
        struct crowd c = {0};

        add(&c, true, false);
        for (unsigned i = 0; i < 5; i++)
                add(&c, false, false);
        assert_int_equal(choose(&c, 0), 1);
        assert_int_equal(c.ret[0].a, 1);
}

static void host_memory_limits_pairs_past_memory(void **state)
{
        struct crowd c = {0};

        for (unsigned i = 0; i < 4; i++) {
                add(&c, i < 2, false);
                c.jobs[i].memory.peak_bytes = 40e9; /* two need 16 GB more than the card has */
                c.jobs[i].measured.bus_gb_s = 1000;
        }
        c.o.host_bytes = 1e15;
        assert_int_equal(choose(&c, 0), 2);
        assert_false(c.ret[0].pair.fits);
        c.o.host_bytes = c.ret[0].pair.host_bytes * 1.5;
        assert_int_equal(choose(&c, 0), 1);
        c.o.host_bytes = c.ret[0].pair.host_bytes * 0.5;
        assert_int_equal(choose(&c, 0), 0);
}

static double half(unsigned a, unsigned b, enum way way, void *userdata)
{
        return a == 0 ? 0.5 : 1;
}

static void what_was_observed_counts(void **state)
{
        struct crowd c = {0};

        add(&c, true, false);
        add(&c, true, false);
        add(&c, false, false);
        c.o.ratio = half;
        assert_int_equal(choose(&c, 0), 1);
        assert_int_equal(c.ret[0].b, 1);
        c.roll[1].ways |= 1u << WAY_SLICED; /* the other one allows turns only */
        assert_int_equal(choose(&c, 0), 1);
        c.roll[2].ways |= 1u << WAY_SLICED; /* no model says which of both is better */
        assert_int_equal(choose(&c, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_waiting_job_joins_one_that_runs_if_both_keep_the_bound),
                cmocka_unit_test(no_pair_is_made_of_two_that_run_or_below_a_bound),
                cmocka_unit_test(nobody_takes_turns_with_a_job_that_can_only_be_shared),
                cmocka_unit_test(waiting_jobs_pair_on_free_gpus_only),
                cmocka_unit_test(those_that_came_first_go_first),
                cmocka_unit_test(host_memory_limits_pairs_past_memory),
                cmocka_unit_test(what_was_observed_counts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
