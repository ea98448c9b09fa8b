/* test_profile.c: the profile finds steps in submitted work, tells buffers apart by made-up times
 * with disturbances, and reads files with faults. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "preload/overflow/profile_file.h"
#include "preload/extra/work_steps.h"
#include "preload/overflow/trial.h"

static struct steps steps;

static uint64_t random_next(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        return *state >> 33;
}

/* ---- steps ---- */

/* Submits work, one letter for each kind. Returns the number of submissions until a step was last
 * found; 0: never. */
static unsigned submit(const char *works, unsigned times)
{
        unsigned found = 0, n = 0;

        for (unsigned i = 0; i < times; i++)
                for (const char *w = works; *w; w++) {
                        n++;
                        if (steps_look(&steps, (uint64_t)*w << 20))
                                found = n;
                }
        return found;
}

static bool begins_with(char work)
{
        return steps.begin == (uint64_t)work << 20;
}

static void a_step_begins_with_work_that_occurs_once_in_each(void **state)
{
        steps_reset(&steps);
        assert_true(submit("abbbcbbbd", 3) == 0); /* too few repetitions */
        assert_true(submit("abbbcbbbd", 7) > 0);
        assert_int_equal(steps.gap, 9);
        assert_true(begins_with('a') || begins_with('c') || begins_with('d'));
        assert_false(steps_lost(&steps));
}

static void constant_work_is_a_step_by_itself(void **state)
{
        steps_reset(&steps);
        assert_true(submit("a", 100) > 0);
        assert_int_equal(steps.gap, 1);
}

static void layers_are_taken_for_steps_until_the_steps_are_seen(void **state)
{
        char step[200] = "x";

        for (unsigned i = 0; i < 30; i++)
                (void)strcat(step, "lmn");
        (void)strcat(step, "y");
        steps_reset(&steps);
        assert_true(submit(step, 1) > 0);
        assert_int_equal(steps.gap, 3);
        assert_true(submit(step, 6) > 0);
        assert_int_equal(steps.gap, 92);
        assert_true(begins_with('x') || begins_with('y'));
        assert_int_equal(submit(step, 50), 0); /* the step stays the same */
}

static void steps_need_not_be_quite_equal(void **state)
{
        uint64_t random = 3;

        steps_reset(&steps);
        for (unsigned i = 0; i < 20; i++) {
                (void)submit("s", 1);
                (void)submit("k", 40 + (unsigned)(random_next(&random) % 4));
        }
        assert_true(begins_with('s'));
        assert_in_range(steps.gap, 40, 45);
}

static void irregular_work_begins_no_step(void **state)
{
        uint64_t random = 5;

        steps_reset(&steps);
        for (unsigned i = 0; i < 200; i++) {
                (void)submit("sabc", 1);
                if (random_next(&random) % 8 == 0)
                        (void)submit("r", 1);
        }
        assert_false(begins_with('r'));
        assert_in_range(steps.gap, 4, 5);
}

static void a_step_is_lost_when_its_work_ends(void **state)
{
        steps_reset(&steps);
        (void)submit("abc", 30);
        assert_int_equal(steps.gap, 3);
        (void)submit("d", 900);
        assert_false(steps_lost(&steps));
        (void)submit("d", 200);
        assert_true(steps_lost(&steps));
}

static void more_kinds_of_work_than_are_kept_do_no_harm(void **state)
{
        steps_reset(&steps);
        for (uint64_t i = 1; i < 5000; i++)
                assert_false(steps_look(&steps, i << 12));
        assert_int_equal(steps.gap, 0);
        assert_false(steps_lost(&steps));
}

/* ---- trials ---- */

static struct trial trial;

/* A step takes base_ns plus all of saves_ns[], less the savings of buffers on the card. */
struct machine {
        uint64_t base_ns, saves_ns[24];
        unsigned noise;    /* most noise of a sample, in percent */
        unsigned spikes;   /* one sample in so many takes three times as long; 0: none */
        uint64_t drift_ns; /* time by which each sample is longer than the last */
        uint64_t random, samples;
};

static uint64_t machine_ns(struct machine *m, unsigned buffers, int on_card)
{
        uint64_t ns = m->base_ns + m->samples * m->drift_ns;

        for (unsigned i = 0; i < buffers; i++)
                ns += (int)i == on_card ? 0 : m->saves_ns[i];
        if (m->noise)
                ns += ns / 100 * (random_next(&m->random) % m->noise);
        m->samples++;
        return m->spikes && m->samples % m->spikes == 0 ? 3 * ns : ns;
}

static const unsigned no_kin[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                  12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};

static void try_kinds(struct machine *m, unsigned buffers, const unsigned *kinds)
{
        int turn;

        trial_begin(&trial, buffers, kinds);
        while ((turn = trial_next(&trial)) != TRIAL_OVER)
                trial_sample(&trial, machine_ns(m, buffers, turn));
}

static void try_all(struct machine *m, unsigned buffers)
{
        try_kinds(m, buffers, no_kin);
}

static uint64_t saved(unsigned buffer)
{
        uint64_t ns, noise;

        assert_true(trial_result(&trial, buffer, &ns, &noise));
        return ns;
}

static void buffers_and_the_baseline_take_turns(void **state)
{
        int turns[12];

        trial_begin(&trial, 2, no_kin);
        for (unsigned i = 0; i < ARRAY_SIZE(turns); i++) {
                turns[i] = trial_next(&trial);
                assert_int_equal(trial_round_is_over(&trial), i == 4 || i == 8);
                trial_sample(&trial, 1);
        }
        for (unsigned i = 0; i < ARRAY_SIZE(turns); i += 4) {
                assert_int_equal(turns[i], TRIAL_GROUND);
                assert_int_equal(turns[i + 1], 0);
                assert_int_equal(turns[i + 2], TRIAL_GROUND);
                assert_int_equal(turns[i + 3], 1);
        }
        assert_int_equal(trial_next(&trial), TRIAL_OVER);
        trial_sample(&trial, 1); /* a sample after the end is ignored */
        trial_begin(&trial, 0, no_kin);
        assert_int_equal(trial_next(&trial), TRIAL_OVER);
}

static void the_saving_of_each_buffer_is_found(void **state)
{
        struct machine m = {.base_ns = 1000000, .saves_ns = {0, 50000, 400000, 7000}};

        try_all(&m, 4);
        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(saved(i), m.saves_ns[i]);
        assert_int_equal(trial_ground_ns(&trial), 1457000);
}

static void a_drift_favours_no_buffer(void **state)
{
        struct machine m = {.base_ns = 1000000, .saves_ns = {0, 50000, 400000}, .drift_ns = 10000};

        try_all(&m, 3);
        assert_int_equal(saved(0), 0);
        assert_in_range(saved(1), 49000, 51000);
        assert_in_range(saved(2), 399000, 401000);
}

static void disturbed_samples_do_not_change_the_order(void **state)
{
        for (uint64_t seed = 1; seed <= 200; seed++) {
                struct machine m = {.base_ns = 1000000,
                                    .saves_ns = {300000, 0, 900000},
                                    .noise = 5,
                                    .spikes = 7,
                                    .random = seed * 977};

                try_all(&m, 3);
                assert_true(saved(2) > saved(0));
                assert_true(saved(0) > saved(1));
        }
}

static void savings_within_the_noise_count_as_nothing(void **state)
{
        unsigned nothing = 0;

        for (uint64_t seed = 1; seed <= 100; seed++) {
                struct machine m = {
                        .base_ns = 1000000, .saves_ns = {0, 2000}, .noise = 20, .random = seed};

                try_all(&m, 2);
                nothing += saved(0) == 0;
                nothing += saved(1) == 0;
        }
        assert_true(nothing > 150);
}

/* Each layer saves twice the scatter of a step: measured alone, some layers look useless. */
static void buffers_that_are_alike_save_the_same(void **state)
{
        static const unsigned kinds[24]; /* all of the same kind */
        unsigned alone = 0, alike = 0;

        for (uint64_t seed = 1; seed <= 50; seed++) {
                struct machine m = {.base_ns = 1000000, .noise = 4, .random = seed * 31};
                struct machine same;

                for (unsigned i = 0; i < 24; i++)
                        m.saves_ns[i] = 18000;
                same = m;
                try_all(&m, 24);
                for (unsigned i = 0; i < 24; i++)
                        alone += saved(i) == 0;
                try_kinds(&same, 24, kinds);
                for (unsigned i = 0; i < 24; i++)
                        alike += saved(i) == 0;
        }
        assert_true(alone > 200);
        assert_true(alike < alone / 50);
}

static void the_better_buffers_of_one_size_are_found(void **state)
{
        static const unsigned kinds[24];

        for (uint64_t seed = 1; seed <= 50; seed++) {
                struct machine m = {
                        .base_ns = 1000000, .saves_ns = {[5] = 300000, [9] = 300000}, .noise = 4};

                m.random = seed * 31;
                try_kinds(&m, 24, kinds);
                for (unsigned i = 0; i < 24; i++)
                        assert_true((saved(i) > 200000) == (m.saves_ns[i] > 0));
        }
}

static void a_buffer_that_is_gone_has_no_result(void **state)
{
        struct machine m = {.base_ns = 1000, .saves_ns = {100, 200, 300}};
        uint64_t ns, noise;
        int turn;

        trial_begin(&trial, 3, no_kin);
        while ((turn = trial_next(&trial)) != TRIAL_OVER)
                if (turn == 1)
                        trial_skip(&trial);
                else
                        trial_sample(&trial, machine_ns(&m, 3, turn));
        assert_false(trial_result(&trial, 1, &ns, &noise));
        assert_int_equal(saved(0), 100);
        assert_int_equal(saved(2), 300);
        trial_begin(&trial, 1, no_kin); /* a trial without any sample */
        while (trial_next(&trial) != TRIAL_OVER)
                trial_skip(&trial);
        assert_false(trial_result(&trial, 0, &ns, &noise));
        assert_int_equal(trial_ground_ns(&trial), 0);
}

/* ---- the file ---- */

static struct profile_list list;
static struct profile_bad bad;

static int parse(const char *text)
{
        free(list.buffers);
        list = (struct profile_list){0};
        bad = (struct profile_bad){0};
        return profile_parse(text, strlen(text), &list, &bad);
}

static void a_written_profile_is_read_back_in_order_of_use(void **state)
{
        struct profile_buffer b[] = {{0, 64 * MIB, 1, 0, 9},
                                     {0, 2 * MIB, 3, 4000, 9},
                                     {1, 512 * MIB, 2, 400000, 9},
                                     {0, 2 * MIB, 1, 0, 9}};
        struct profile_list all = {b, ARRAY_SIZE(b)};
        char *text = profile_format("a program", 5000000, &all);

        assert_non_null(text);
        assert_int_equal(parse(text), 0);
        assert_int_equal(bad.lines, 0);
        assert_int_equal(list.count, ARRAY_SIZE(b));
        for (size_t i = 0; i < ARRAY_SIZE(b); i++) { /* profile_format() has sorted b */
                assert_int_equal(list.buffers[i].gpu, b[i].gpu);
                assert_int_equal(list.buffers[i].bytes, b[i].bytes);
                assert_int_equal(list.buffers[i].nth, b[i].nth);
                assert_int_equal(list.buffers[i].saved_ns, b[i].saved_ns);
                assert_int_equal(list.buffers[i].noise_ns, b[i].noise_ns);
        }
        assert_int_equal(b[0].nth, 3);
        assert_int_equal(b[1].gpu, 1);
        assert_int_equal(b[2].bytes, 2 * MIB);
        assert_int_equal(profile_use(&b[0]), 2000);
        assert_int_equal(profile_use(&b[3]), -1);
        free(text);
}

static void the_longest_profile_fits(void **state)
{
        struct profile_list all = {calloc(PROFILE_BUFFERS_MAX, sizeof(*all.buffers)),
                                   PROFILE_BUFFERS_MAX};
        char *text;

        assert_non_null(all.buffers);
        for (size_t i = 0; i < all.count; i++)
                all.buffers[i] = (struct profile_buffer){UINT16_MAX, UINT64_MAX, UINT64_MAX - i,
                                                         INT64_MAX, UINT64_MAX};
        text = profile_format("a program with a name that is longer than anybody would ever want "
                              "to read in a comment",
                              UINT64_MAX, &all);
        assert_non_null(text);
        assert_true(strlen(text) < PROFILE_TEXT_MAX);
        assert_int_equal(parse(text), 0);
        assert_int_equal(list.count, PROFILE_BUFFERS_MAX);
        assert_int_equal(bad.lines, 0);
        free(text);
        free(all.buffers);
}

static void other_texts_are_no_profiles(void **state)
{
        assert_int_equal(parse(""), -EINVAL);
        assert_int_equal(parse("sublet"), -EINVAL);
        assert_int_equal(parse("#!/bin/sh\n"), -EINVAL);
        assert_int_equal(parse("sublet profile 2\n"), -EPROTONOSUPPORT);
        assert_int_equal(parse("sublet profile 10\n"), -EPROTONOSUPPORT);
        assert_int_equal(parse("sublet profile "), -EPROTONOSUPPORT);
        assert_int_equal(parse("sublet profile 1"), 0);
        assert_int_equal(list.count, 0);
}

static void invalid_lines_are_skipped_and_counted(void **state)
{
        static const char *const lines[] = {
                "what",
                "gpu=0 bytes=1",
                "gpu=0 bytes=0 nth=1 saved_ns=1",
                "gpu=0 bytes=5 nth=0 saved_ns=1",
                "gpu=0 bytes=-5 nth=1 saved_ns=1",
                "gpu=0 bytes=5k nth=1 saved_ns=1",
                "gpu=0 bytes= nth=1 saved_ns=1",
                "gpu=70000 bytes=5 nth=1 saved_ns=1",
                "gpu=0 bytes=99999999999999999999 nth=1 saved_ns=1",
                "gpu=0 bytes=7 nth=7 saved_ns=8", /* a duplicate */
                "gpu=0 bytes=5 nth=1 saved_ns=1 word",
        };

        for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
                char text[300];

                (void)snprintf(text, sizeof(text),
                               "sublet profile 1\r\n\n  # a comment\n"
                               "gpu=0 bytes=7 nth=7 saved_ns=7 later=x\n\t%s\n%s\n"
                               "nth=2 saved_ns=3 bytes=7   gpu=0\r\n",
                               lines[i], lines[i]);
                assert_int_equal(parse(text), 0);
                assert_int_equal(list.count, 2);
                assert_int_equal(list.buffers[1].saved_ns, 3);
                assert_int_equal(bad.lines, 2);
                assert_int_equal(bad.first, 5);
                assert_memory_equal(bad.text, lines[i],
                                    MIN(strlen(lines[i]), sizeof(bad.text) - 1));
        }
        assert_int_equal(parse("sublet profile 1\n\x01\x80\n"), 0);
        assert_string_equal(bad.text, "??");
}

static void noise_in_a_file_does_no_harm(void **state)
{
        static const char good[] = "sublet profile 1\ngpu=0 bytes=2097152 nth=1 saved_ns=5\n";
        uint64_t random = 11;

        for (unsigned i = 0; i < 20000; i++) {
                char text[sizeof(good)];

                memcpy(text, good, sizeof(good));
                for (unsigned k = 0; k < 1 + i % 4; k++)
                        text[random_next(&random) % (sizeof(good) - 1)] =
                                (char)random_next(&random);
                free(list.buffers);
                list = (struct profile_list){0};
                (void)profile_parse(text, sizeof(good) - 1, &list, &bad);
                assert_true(list.count <= 2);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_step_begins_with_work_that_occurs_once_in_each),
                cmocka_unit_test(constant_work_is_a_step_by_itself),
                cmocka_unit_test(layers_are_taken_for_steps_until_the_steps_are_seen),
                cmocka_unit_test(steps_need_not_be_quite_equal),
                cmocka_unit_test(irregular_work_begins_no_step),
                cmocka_unit_test(a_step_is_lost_when_its_work_ends),
                cmocka_unit_test(more_kinds_of_work_than_are_kept_do_no_harm),
                cmocka_unit_test(buffers_and_the_baseline_take_turns),
                cmocka_unit_test(the_saving_of_each_buffer_is_found),
                cmocka_unit_test(a_drift_favours_no_buffer),
                cmocka_unit_test(disturbed_samples_do_not_change_the_order),
                cmocka_unit_test(savings_within_the_noise_count_as_nothing),
                cmocka_unit_test(buffers_that_are_alike_save_the_same),
                cmocka_unit_test(the_better_buffers_of_one_size_are_found),
                cmocka_unit_test(a_buffer_that_is_gone_has_no_result),
                cmocka_unit_test(a_written_profile_is_read_back_in_order_of_use),
                cmocka_unit_test(the_longest_profile_fits),
                cmocka_unit_test(other_texts_are_no_profiles),
                cmocka_unit_test(invalid_lines_are_skipped_and_counted),
                cmocka_unit_test(noise_in_a_file_does_no_harm),
        };
        int failed = cmocka_run_group_tests(tests, NULL, NULL);

        free(list.buffers);
        return failed;
}
