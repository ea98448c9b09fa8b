/* test_measure_report.c: what a job file says follows from the counts and times of two looks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "lab/measure/report.h"

#define MS NSEC_PER_MSEC

/* Two looks at one process, two seconds apart. */
static struct measure_page old, now;
static struct pages begin, end;
static struct job job;

static int set_up(void **state)
{
        memset(&old, 0, sizeof(old));
        now.pid = old.pid = 7;
        begin = (struct pages){.n = 1, .page = {&old}};
        end = (struct pages){.n = 1, .page = {&now}};
        memset(&now, 0, sizeof(now));
        now.pid = old.pid = 7;
        now.sms = 10;
        now.threads_per_sm = 2048;
        now.submissions = 1000;
        job_init(&job);
        return 0;
}

static int tear_down(void **state)
{
        job_free(&job);
        return 0;
}

static void fill(void)
{
        const struct report_seen seen = {
                .begin = &begin, .end = &end, .seconds = 2, .cpu_s = 1, .card = CARD_FIGURES_NONE};

        job_free(&job);
        assert_true(report_fill(&seen, &job));
}

static struct measure_kernel *add_kernel(const char *name, uint32_t blocks, uint32_t threads)
{
        struct measure_kernel *k = &now.kernels[now.kernel_count++];

        *k = (struct measure_kernel){.ready = 1,
                                     .grid = {blocks, 1, 1},
                                     .block = {threads, 1, 1},
                                     .registers = 32,
                                     .blocks_per_sm = 4};
        (void)strcpy(k->name, name);
        return k;
}

static void launches(struct measure_time *t, uint64_t n, uint64_t samples, uint64_t mean_ns)
{
        t->launches = n;
        t->samples = samples;
        t->sampled_ns = samples * mean_ns;
}

static void add_steps(uint64_t n, uint64_t every_ns)
{
        now.era = old.era = 1;
        now.steps = n;
        for (uint64_t i = 0; i < n; i++)
                now.step_ns[i % MEASURE_STEPS] = 1000 * MS + i * every_ns;
}

static const struct job_kernel *kernel(const char *name)
{
        for (size_t i = 0; i < job.n_kernels; i++)
                if (strcmp(job.kernels[i].name, name) == 0)
                        return &job.kernels[i];
        fail_msg("no kernel %s", name);
        return NULL;
}

static void near(double value, double expected)
{
        if (!(fabs(value - expected) <= 1e-6 * fabs(expected)))
                fail_msg("%g is not %g", value, expected);
}

static void shares_follow_launches_and_mean_times(void **state)
{
        launches(&add_kernel("a", 80, 256)->time, 300, 10, 1 * MS);
        launches(&add_kernel("b", 4, 256)->time, 100, 10, 1 * MS);
        add_steps(11, 100 * MS);
        fill();
        near(kernel("a")->share, 0.75);
        near(kernel("b")->share, 0.25);
        near(kernel("a")->seconds, 1e-3);
        near(kernel("a")->waves, 2);
        near(kernel("b")->waves, 0.1);
        near(kernel("a")->occupancy, 0.5);
        near(job.launch.per_second, 200);
        near(job.launch.idle, 0.8);
        near(job.other_share, 0);
}

static void launches_before_the_first_look_do_not_count(void **state)
{
        launches(&add_kernel("a", 1, 32)->time, 300, 10, 1 * MS);
        launches(&add_kernel("gone", 1, 32)->time, 50, 10, 1 * MS);
        old.kernels[0].time.launches = 200;
        old.kernels[1].time.launches = 50;
        fill();
        assert_int_equal(job.n_kernels, 1);
        near(job.launch.per_second, 50);
}

static void samples_of_the_measured_time_are_preferred_if_there_are_enough(void **state)
{
        launches(&add_kernel("a", 1, 32)->time, 100, 20, 3 * MS);
        old.kernels[0].time.samples = 10;
        old.kernels[0].time.sampled_ns = 50 * MS; /* its ten later samples took 1 ms each */
        fill();
        near(kernel("a")->seconds, 1e-3);
        old.kernels[0].time.samples = 19;
        fill();
        near(kernel("a")->seconds, 3e-3);
}

static void late_samples_are_left_out_if_there_are_others(void **state)
{
        struct measure_time *t = &add_kernel("a", 1, 32)->time;

        launches(t, 100, 4, 3 * MS);
        t->late = 2;
        t->late_ns = 10 * MS;
        fill();
        near(kernel("a")->seconds, 1e-3);
        t->late = 4;
        t->late_ns = 12 * MS;
        fill();
        near(kernel("a")->seconds, 3e-3);
}

static void a_kernel_without_samples_has_no_time(void **state)
{
        launches(&add_kernel("a", 1, 32)->time, 100, 0, 0);
        fill();
        assert_true(isnan(kernel("a")->seconds) && isnan(kernel("a")->share));
        assert_true(isnan(job.launch.idle));
}

/* A graph of all kernels so far, each launched once, that takes so long. */
static void add_graph(uint64_t mean_ns)
{
        struct measure_graph *g = &now.graphs[now.graph_count++];

        for (uint32_t i = 0; i < now.kernel_count; i++)
                now.nodes[i] = (struct measure_node){.kernel = i, .count = 1};
        now.node_count = now.kernel_count;
        *g = (struct measure_graph){.ready = 1, .first = 0, .count = now.kernel_count};
        launches(&g->time, 20, mean_ns ? 5 : 0, mean_ns);
}

static void a_graphs_time_is_divided_among_its_kernels(void **state)
{
        launches(&add_kernel("long", 1, 32)->time, 0, 4, 6 * MS);
        launches(&add_kernel("short", 1, 32)->time, 0, 4, 1 * MS);
        add_graph(5 * MS); /* half of what the kernels take one by one */
        now.nodes[1].count = 4;
        fill();
        near(job.launch.graphs_per_second, 10);
        near(job.launch.per_second, 0);
        assert_true(kernel("long")->graph);
        near(kernel("long")->seconds, 3e-3);
        near(kernel("short")->seconds, 0.5e-3);
        near(kernel("long")->share, 0.6);
        near(kernel("short")->share, 0.4);
}

/* 40 blocks fill the card. 1 + 0.5 + 0.025 + 3 rounds share what four times 2 µs leave of 460.5 µs.
 */
static void kernels_that_only_graphs_launch_share_its_time_by_their_rounds_of_blocks(void **state)
{
        add_kernel("wave", 40, 256);
        add_kernel("half", 20, 256);
        add_kernel("status", 1, 32);
        add_kernel("waves", 81, 256);
        add_graph(460500);
        fill();
        near(kernel("wave")->seconds, 102e-6);
        near(kernel("half")->seconds, 52e-6);
        near(kernel("status")->seconds, 4.5e-6);
        near(kernel("waves")->seconds, 302e-6);
}

static void a_graph_too_short_for_its_launches_gives_each_the_same_time(void **state)
{
        add_kernel("waves", 400, 256);
        add_kernel("status", 1, 32);
        add_graph(3000);
        fill();
        near(kernel("waves")->seconds, 1.5e-6);
        near(kernel("status")->seconds, 1.5e-6);
}

static void a_kernel_of_unknown_occupancy_counts_as_one_round(void **state)
{
        add_kernel("unknown", 400, 256)->blocks_per_sm = MEASURE_UNSUPPORTED;
        add_kernel("waves", 80, 256);
        add_graph(304000);
        fill();
        assert_true(isnan(kernel("unknown")->waves));
        near(kernel("unknown")->seconds, 102e-6);
        near(kernel("waves")->seconds, 202e-6);
}

static void times_outside_graphs_are_kept_while_the_rest_of_the_graph_has_room(void **state)
{
        launches(&add_kernel("timed", 1, 32)->time, 0, 4, 5000);
        add_kernel("waves", 80, 256);
        add_kernel("status", 1, 32);
        add_graph(211500);
        fill();
        near(kernel("timed")->seconds, 5e-6);
        near(kernel("waves")->seconds, 202e-6);
        near(kernel("status")->seconds, 4.5e-6);
}

/* The timed kernel takes 100 µs a round. Without a measured time of the graph, others do, too. */
static void a_round_takes_at_least_as_long_as_in_kernels_with_known_times(void **state)
{
        launches(&add_kernel("timed", 80, 256)->time, 0, 4, 202000);
        add_kernel("waves", 160, 256);
        add_graph(0);
        fill();
        near(kernel("timed")->seconds, 202e-6);
        near(kernel("waves")->seconds, 402e-6);
        launches(&now.graphs[0].time, 20, 5, 302000); /* kernels overlap, or events lengthen them */
        fill();
        near(kernel("timed")->seconds, 101e-6);
        near(kernel("waves")->seconds, 201e-6);
}

static void a_graph_without_samples_and_known_kernels_has_no_times(void **state)
{
        add_kernel("a", 40, 256);
        add_graph(0);
        fill();
        assert_true(isnan(kernel("a")->seconds) && isnan(kernel("a")->share));
}

/* 1,000,000 launches of 1 µs and 100 of 5 ms fill 1.5 of 2 s; the events have shown 2 µs more. */
static void times_that_exceed_the_busy_time_lose_what_events_add(void **state)
{
        struct report_seen seen = {
                .begin = &begin, .end = &end, .seconds = 2, .card = CARD_FIGURES_NONE};

        seen.card.busy = 0.75;
        launches(&add_kernel("short", 1, 32)->time, 1000000, 10, 3000);
        launches(&add_kernel("long", 1, 32)->time, 100, 10, 5 * MS);
        assert_true(report_fill(&seen, &job));
        assert_true(fabs(kernel("short")->seconds - 1e-6) < 1e-9);
        assert_true(fabs(kernel("long")->seconds - 5e-3) < 3e-6);
        assert_true(fabs(kernel("short")->share - 2.0 / 3) < 1e-3);
}

static void steps_give_rates_and_launches_a_step(void **state)
{
        launches(&add_kernel("a", 1, 32)->time, 80, 10, 1 * MS);
        add_steps(41, 50 * MS);
        old.steps = 1;
        fill();
        assert_string_equal(job.steps.unit, "step");
        near(job.steps.count, 39);
        near(job.steps.per_second, 20);
        near(kernel("a")->launches_per_step, 2);
        near(job.launch.host_s_per_step, 1.0 / 40);
        assert_true(job.steps.spread < 1e-9);
        assert_int_equal(report_steps(&begin, &end), 39);
}

static void without_steps_a_launch_counts(void **state)
{
        launches(&add_kernel("a", 1, 32)->time, 80, 10, 1 * MS);
        fill();
        assert_string_equal(job.steps.unit, "launch");
        near(job.steps.count, 80);
        near(job.steps.per_second, 40);
        near(kernel("a")->launches_per_step, 1);
        assert_int_equal(report_steps(&begin, &end), 0);
}

static void more_kernels_than_a_file_holds_are_other_work(void **state)
{
        for (unsigned i = 0; i < JOB_KERNELS_MAX + 16; i++) {
                char name[16];

                (void)snprintf(name, sizeof(name), "k%u", i);
                launches(&add_kernel(name, 1, 32)->time, i < 16 ? 1 : 100, 4, 1 * MS);
        }
        fill();
        assert_int_equal(job.n_kernels, JOB_KERNELS_MAX);
        near(job.other_share, 16.0 / (16 + 100 * JOB_KERNELS_MAX));
}

static void copies_and_memory(void **state)
{
        now.copied[MEASURE_TO_DEVICE] = 5000000000;
        old.copied[MEASURE_TO_DEVICE] = 1000000000;
        now.copied[MEASURE_TO_HOST] = 1000000000;
        now.peak_bytes = 12345;
        fill();
        near(job.copies.to_device_gb_s, 2);
        near(job.copies.to_host_gb_s, 0.5);
        near(job.memory.peak_bytes, 12345);
}

/* The program that is measured can write anything into its file. */
static void a_file_of_garbage_is_read_within_bounds(void **state)
{
        char folder[] = "/tmp/sublet-pages-XXXXXX", path[64];
        struct measure_page *p = calloc(1, sizeof(*p));
        struct pages first = {0}, last = {0};
        struct report_seen seen = {
                .begin = &first, .end = &last, .seconds = 2, .card = CARD_FIGURES_NONE};
        uint64_t random = 88172645463325252u;
        FILE *f;

        assert_non_null(p);
        assert_non_null(mkdtemp(folder));
        for (size_t i = 0; i < sizeof(*p) / sizeof(random); i++) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                memcpy((char *)p + i * sizeof(random), &random, sizeof(random));
        }
        p->magic = MEASURE_MAGIC;
        for (unsigned i = 0; i < MEASURE_GRAPHS; i++)
                p->graphs[i].count %= 64; /* so that the test does not take seconds */
        (void)snprintf(path, sizeof(path), "%s/4711", folder);
        f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fwrite(p, sizeof(*p), 1, f), 1);
        (void)fclose(f);
        pages_read(&last, folder, true);
        assert_int_equal(last.n, 1);
        assert_int_equal(last.page[0]->pid, 4711);
        assert_true(last.page[0]->kernel_count <= MEASURE_KERNELS);
        job_free(&job);
        assert_true(report_fill(&seen, &job));
        assert_true(job.n_kernels <= JOB_KERNELS_MAX);
        p->magic = MEASURE_MAGIC + 1; /* a file that is being made, or of another release */
        pages_free(&last);
        f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fwrite(p, sizeof(*p), 1, f), 1);
        (void)fclose(f);
        pages_read(&last, folder, true);
        assert_int_equal(last.n, 0);
        pages_remove(folder);
        assert_int_equal(access(folder, F_OK), -1);
        free(p);
}

/* Compares the launches a second of two runs. */
static int half_of(double kernels, double graphs, double kernels_there, double graphs_there)
{
        struct job half;
        int r;

        job.steps.per_second = 10;
        job.steps.half_per_second = NAN;
        job.measured.seconds = 10;
        job.launch.per_second = kernels;
        job.launch.graphs_per_second = graphs;
        job_init(&half);
        half.measured.seconds = 5;
        half.steps.per_second = 1234; /* another step was found there, which does not matter */
        half.launch.per_second = kernels_there;
        half.launch.graphs_per_second = graphs_there;
        r = report_half(&half, &job);
        assert_true(isnan(job.steps.half_per_second) == (r < 0));
        job_free(&half);
        return r;
}

static void the_rate_on_half_of_the_sms_is_of_the_same_step(void **state)
{
        assert_int_equal(half_of(100, 50, 60, 30), 0);
        near(job.steps.half_per_second, 6);
        assert_int_equal(half_of(100, 0, 60, 0), 0);
        near(job.steps.half_per_second, 6);
}

static void a_run_without_launches_has_no_rate_on_half_of_the_sms(void **state)
{
        assert_int_equal(half_of(100, 50, 0, 0), -ENODATA);
        assert_int_equal(half_of(100, 50, NAN, NAN), -ENODATA);
        assert_int_equal(half_of(0, 0, 100, 50), -ENODATA);
}

static void a_run_with_another_mix_of_launches_has_no_rate_on_half_of_the_sms(void **state)
{
        assert_int_equal(half_of(0, 100, 2000, 0), -EAGAIN); /* seen on an H200 */
        assert_int_equal(half_of(0, 100, 100, 0), -EAGAIN);
        assert_int_equal(half_of(100, 0, 0, 100), -EAGAIN);
        assert_int_equal(half_of(100, 100, 110, 60), -EAGAIN);
        assert_int_equal(half_of(900, 10, 800, 4), -EAGAIN);
        assert_int_equal(half_of(100, 100, 60, 70), 0);
}

static void a_few_launches_of_another_kind_do_not_matter(void **state)
{
        assert_int_equal(half_of(0, 100, 0.4, 60), 0);
        assert_int_equal(half_of(0.2, 100, 0, 60), 0);
        assert_int_equal(half_of(0, 100, 6, 60), -EAGAIN);
}

static void a_rate_that_half_of_the_sms_cannot_have_is_left_out(void **state)
{
        assert_int_equal(half_of(100, 0, 151, 0), -EAGAIN);
        assert_int_equal(half_of(100, 0, 149, 0), 0);
        assert_int_equal(half_of(100, 0, 9, 0), -EAGAIN);
        assert_int_equal(half_of(100, 0, 11, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
                TEST(shares_follow_launches_and_mean_times),
                TEST(launches_before_the_first_look_do_not_count),
                TEST(samples_of_the_measured_time_are_preferred_if_there_are_enough),
                TEST(late_samples_are_left_out_if_there_are_others),
                TEST(a_kernel_without_samples_has_no_time),
                TEST(a_graphs_time_is_divided_among_its_kernels),
                TEST(kernels_that_only_graphs_launch_share_its_time_by_their_rounds_of_blocks),
                TEST(a_graph_too_short_for_its_launches_gives_each_the_same_time),
                TEST(a_kernel_of_unknown_occupancy_counts_as_one_round),
                TEST(times_outside_graphs_are_kept_while_the_rest_of_the_graph_has_room),
                TEST(a_round_takes_at_least_as_long_as_in_kernels_with_known_times),
                TEST(a_graph_without_samples_and_known_kernels_has_no_times),
                TEST(times_that_exceed_the_busy_time_lose_what_events_add),
                TEST(steps_give_rates_and_launches_a_step),
                TEST(without_steps_a_launch_counts),
                TEST(more_kernels_than_a_file_holds_are_other_work),
                TEST(copies_and_memory),
                TEST(the_rate_on_half_of_the_sms_is_of_the_same_step),
                TEST(a_run_without_launches_has_no_rate_on_half_of_the_sms),
                TEST(a_run_with_another_mix_of_launches_has_no_rate_on_half_of_the_sms),
                TEST(a_few_launches_of_another_kind_do_not_matter),
                TEST(a_rate_that_half_of_the_sms_cannot_have_is_left_out),
                TEST(a_file_of_garbage_is_read_within_bounds),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
