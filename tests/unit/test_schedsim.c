/* test_schedsim.c: results of the scheduler's rules over hours, on the model of tools/schedsim, and
 * checks of its workload files. */
#include "unit.h"

#include <errno.h>
#include <math.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "model.h"

struct day {
        struct workload w;
        struct model_result r;
};

static void end_day(struct day *d)
{
        model_free(&d->r);
        workload_free(&d->w);
}

#define DAY(text)                                             \
        struct day d __attribute__((cleanup(end_day))) = {0}; \
        run_day(&d, text)

static void read_day(struct day *d, FILE *f)
{
        char error[256] = "";

        assert_non_null(f);
        if (workload_read(f, &d->w, error, sizeof(error)) < 0)
                fail_msg("%s", error);
        (void)fclose(f);
}

static FILE *text_file(const char *text)
{
        return fmemopen((void *)(uintptr_t)text, strlen(text), "r");
}

static void run_day(struct day *d, const char *text)
{
        read_day(d, text_file(text));
        assert_int_equal(model_run(&d->w, true, &d->r), 0);
        if (d->r.broken)
                fail_msg("%s", d->r.broken);
}

/* Returns the share of all clients' GPU time that went to the jobs of one user. */
static double share_of(const struct day *d, uint32_t uid)
{
        uint64_t all = 0, his = 0;

        for (unsigned i = 0; i < d->r.n_clients; i++) {
                const struct model_client *c = &d->r.clients[i];

                all += c->gpu_ns;
                his += c->job->uid == uid ? c->gpu_ns : 0;
        }
        return (double)his / (double)all;
}

#define assert_near(a, b, off) assert_true(fabs((double)(a) - (double)(b)) <= (off))

static void clients_that_fit_never_wait_and_nothing_moves(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\n"
            "job a\n count 3\n memory 20GiB\n repeat 50\n gpu 1s random\n think 1s random\n");

        assert_int_equal(d.r.handoffs, 0);
        assert_int_equal(d.r.in_bytes + d.r.out_bytes, 0);
        for (unsigned i = 0; i < d.r.n_clients; i++) {
                assert_int_equal(d.r.clients[i].n_waits, 50);
                assert_int_equal(model_wait(&d.r.clients[i], 1000), 0);
        }
}

static void a_program_alone_never_waits(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\njob a\n memory 70GiB\n repeat 10\n gpu 2s\n think 1s\n");

        assert_int_equal(d.r.end_ns / NSEC_PER_MSEC, 30000);
        assert_int_equal(d.r.clients[0].gpu_ns, 20 * NSEC_PER_SEC);
}

/* A phase of 98 % from 1 s to 100 s has its mean at 16 s if it is lognormal, at 4.65 s by Pareto.
 */
static void times_follow_their_distribution(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\n"
            "job l\n repeat 20000\n gpu 1s 100s lognormal\n"
            "job p\n repeat 20000\n gpu 1s 100s pareto\n");

        assert_near(d.r.clients[0].gpu_ns / 20000.0 / 1e9, 16, 1);
        assert_near(d.r.clients[1].gpu_ns / 20000.0 / 1e9, 4.65, 0.3);
}

/* One client has kernels of half a quantum, the other short ones; both memories fit, or do not. */
static void two_busy_clients_get_half_each_in_exclusive_mode(void **state)
{
        const char *const sizes[] = {"10GiB", "70GiB"};

        for (unsigned i = 0; i < 2; i++) {
                char text[512];

                (void)snprintf(
                        text, sizeof(text),
                        "card 80GiB\n bus 50GB/s\n mode exclusive\n quantum 1s\n until %s\n"
                        "job long\n memory %s\n kernel 500ms\n user 1\n repeat forever\n gpu 1h\n"
                        "job short\n memory %s\n kernel 1ms\n user 2\n repeat forever\n gpu 1h\n",
                        i ? "116s" : "50.5s", sizes[i], sizes[i]);
                {
                        DAY(text);
                        assert_in_range(d.r.handoffs, 35, 48);
                        assert_near(share_of(&d, 1), 0.5, 0.02);
                }
        }
}

static void the_automatic_quantum_keeps_hand_offs_within_their_share(void **state)
{
        DAY("card 140GiB\n bus 51GB/s\n until 1h\n"
            "job batch\n count 3\n memory 120GiB\n kernel 20ms\n repeat forever\n gpu 1h\n");

        assert_true(d.r.handoffs > 20);
        assert_true((double)d.r.busy_ns > 0.945 * (double)d.r.end_ns);
        /* The quantum is no longer than needed. */
        assert_true((double)d.r.busy_ns < 0.96 * (double)d.r.end_ns);
}

static void turns_are_shared_between_users_first(void **state)
{
        DAY("card 80GiB\n bus 50GB/s\n quantum 2s\n until 2h\n"
            "job many\n count 7\n memory 60GiB\n user 1\n repeat forever\n gpu 1h\n"
            "job one\n memory 60GiB\n user 2\n repeat forever\n gpu 1h\n"
            "job two\n count 2\n memory 60GiB\n user 3\n repeat forever\n gpu 1h\n");

        for (uint32_t uid = 1; uid <= 3; uid++)
                assert_near(share_of(&d, uid), 1.0 / 3, 0.02);
        /* Next, turns are shared between the processes of one user. */
        for (unsigned i = 1; i < 7; i++)
                assert_near(d.r.clients[i].gpu_ns, d.r.clients[0].gpu_ns, 5e9);
        assert_near(d.r.clients[8].gpu_ns, d.r.clients[9].gpu_ns, 5e9);
}

/* A small client beside a large one pays little, so it may stay when the large one has to go. */
static void clients_that_run_together_pay_by_their_bytes(void **state)
{
        DAY("card 80GiB\n bus 50GB/s\n until 1h\n"
            "job small\n memory 4GiB\n user 1\n repeat forever\n gpu 100ms\n"
            "job large\n memory 70GiB\n user 2\n repeat forever\n gpu 100ms\n"
            "job other\n memory 72GiB\n user 3\n repeat forever\n gpu 100ms\n");

        assert_near(share_of(&d, 1), 0.52, 0.03);
        assert_near(share_of(&d, 2), share_of(&d, 3), 0.02);
}

static uint64_t gpu_ns_of(const struct day *d, const struct job *job)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < d->r.n_clients; i++)
                sum += d->r.clients[i].job == job ? d->r.clients[i].gpu_ns : 0;
        return sum;
}

/* Programs that once took the time of others. Each must leave a job nine tenths of its fair share,
 * of what hand-offs leave of the time. */
static void unfair_clients_leave_others_their_share(void **state)
{
        static const struct {
                const char *path;
                double fair[2]; /* of the first two jobs; 0: not checked */
        } rows[] = {
                {WORKLOADS "/resident.txt", {0, 0.5}},
                {WORKLOADS "/short-lived.txt", {0.5, 0.5}},
                {WORKLOADS "/priority.txt", {0, 0.05}},
                {WORKLOADS "/long-kernels.txt", {0.5, 0.5}},
                {WORKLOADS "/large-and-small.txt", {0.125, 0.125}},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                struct day d __attribute__((cleanup(end_day))) = {0};

                read_day(&d, fopen(rows[i].path, "re"));
                assert_int_equal(model_run(&d.w, false, &d.r), 0);
                for (unsigned job = 0; job < 2; job++) {
                        double share = (double)gpu_ns_of(&d, &d.w.jobs[job]) /
                                       (double)(d.r.end_ns - d.r.lost_ns + d.r.wasted_ns);

                        if (share < 0.9 * rows[i].fair[job])
                                fail_msg("%s: job %u got %.3f of %.3f", rows[i].path, job, share,
                                         rows[i].fair[job]);
                }
        }
}

/* Two to four jobs that always have work, and what each must get of the card, in hundredths. */
static void shares_hold(const char *head, const char *size, unsigned off)
{
        static const struct {
                const char *jobs[4];
                unsigned of_100[4];
        } rows[] = {
                {{"weight 5", "weight 95"}, {5, 95}},
                {{"weight 1", "weight 1", "weight 1", "weight 1"}, {25, 25, 25, 25}},
                {{"weight 1", "weight 2", "weight 5"}, {13, 25, 62}},
                {{"minimum 50%", "user 1", "user 2", "user 3"}, {50, 17, 17, 17}},
                {{"minimum 30%", "user 1\n priority 5"}, {30, 70}},
                {{"maximum 30%", "user 1"}, {30, 70}},
                {{"maximum 20%"}, {20}},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                struct day d __attribute__((cleanup(end_day))) = {0};
                _cleanup_free_ char *text = NULL;
                size_t length;
                FILE *f = open_memstream(&text, &length);

                assert_non_null(f);
                (void)fprintf(f, "card 80GiB\n bus 50GB/s\n %s\n", head);
                for (unsigned j = 0; j < 4 && rows[i].jobs[j]; j++)
                        (void)fprintf(f, "job j%u\n memory %s\n %s\n repeat forever\n gpu 1h\n", j,
                                      size, rows[i].jobs[j]);
                (void)fclose(f);
                run_day(&d, text);
                for (unsigned j = 0; j < 4 && rows[i].jobs[j]; j++) {
                        const double got =
                                100.0 * (double)d.r.clients[j].gpu_ns /
                                (double)(d.r.end_ns - (rows[i].jobs[1] ? d.r.lost_ns : 0));

                        if (fabs(got - rows[i].of_100[j]) > off)
                                fail_msg("row %u, job %u got %.1f %% of %u %%", i, j, got,
                                         rows[i].of_100[j]);
                }
        }
}

static void shares_hold_within_two_points_a_minute_where_memory_fits(void **state)
{
        shares_hold("until 62s\n mode exclusive", "10GiB", 2);
}

/* A turn of 5 s is one sixtieth of the time, and a fifth of each is its hand-off. */
static void shares_hold_within_five_points_in_five_minutes_past_memory(void **state)
{
        shares_hold("until 5min\n quantum 5s", "60GiB", 5);
}

/* Between two bursts the job is idle for less time than a hand-off costs. */
/* Runs so many jobs, which start 0.3 s one after the other and fill 46 GiB of 51 GiB. Returns the
 * seconds until the last one ends. */
static double makespan(unsigned jobs, const char *phases)
{
        struct day d __attribute__((cleanup(end_day))) = {0};
        _cleanup_free_ char *text = NULL;
        size_t length;
        FILE *f = open_memstream(&text, &length);

        assert_non_null(f);
        (void)fprintf(f, "card 51GiB\n bus 45GB/s\n context 600MiB\n");
        for (unsigned job = 0; job < jobs; job++) {
                (void)fprintf(f, "job j%u\n at %ums\n memory 0GiB\n think 4s\n", job, 300 * job);
                for (unsigned gib = 1; gib <= 46; gib++)
                        (void)fprintf(f, "memory %uGiB\n gpu 6ms\n", gib);
                (void)fprintf(f, "think 400ms\n gpu 30ms\n %s\n", phases);
        }
        (void)fclose(f);
        run_day(&d, text);
        return (double)d.r.end_ns / 1e9;
}

/* In the time of the goals of tests/gpu/pairs.py, and one hundredth more. */
static void two_jobs_past_memory_end_sooner_together(void **state)
{
        static const struct {
                const char *phases;
                double most;
        } pairs[] = {
                {"think 2500ms\n gpu 22500ms", 0.98},
                {"think 12500ms\n gpu 12500ms", 0.77},
                {"think 5s\n gpu 5s\n think 5s\n gpu 5s\n think 5s\n gpu 5s", 0.71},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(pairs); i++) {
                double ratio = makespan(2, pairs[i].phases) / (2 * makespan(1, pairs[i].phases));

                if (ratio > pairs[i].most)
                        fail_msg("pair %u: %.3f of the time of one after the other", i, ratio);
        }
}

static void bursts_of_a_higher_priority_do_not_ping_pong(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\n until 10min\n"
            "job bursts\n priority 1\n memory 60GiB\n repeat 1000\n gpu 100ms\n think 200ms\n"
            "job batch\n memory 60GiB\n repeat forever\n gpu 1h\n");

        assert_in_range(d.r.handoffs, 0, 2);
        assert_int_equal(d.r.clients[0].ended_ns / NSEC_PER_SEC, 300);
}

static void an_idle_higher_priority_gives_way_and_comes_back_at_once(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\n until 30min\n"
            "job bursts\n priority 1\n memory 60GiB\n repeat forever\n gpu 1s\n think 30s\n"
            "job batch\n memory 60GiB\n kernel 50ms\n repeat forever\n gpu 1h\n");

        assert_true(d.r.clients[0].n_waits > 50);
        /* A wait covers the missing 43 GB at 25 GB/s, one kernel, and little more. */
        assert_true(model_wait(&d.r.clients[0], 1000) < 2 * NSEC_PER_SEC);
        assert_true((double)d.r.clients[1].gpu_ns > 0.7 * (double)d.r.end_ns);
}

/* The job "waves" needs the whole card at its peaks, and less than a quarter of it between them. */
static void clients_are_packed_by_their_peaks(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\n quantum 20s\n until 1h\n"
            "job waves\n memory 15GiB\n repeat forever\n gpu 900ms\n memory 70GiB\n gpu 100ms\n"
            " memory 15GiB\n"
            "job flat\n memory 50GiB\n repeat forever\n gpu 1h\n");

        /* There is a peak every second, but turns last twenty seconds. */
        assert_in_range(d.r.handoffs, 100, 200);
        assert_true((double)d.r.busy_ns > 0.8 * (double)d.r.end_ns);
}

static void a_peak_that_does_not_come_back_is_forgotten(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\n quantum 5s\n until 1h\n"
            "job once\n memory 70GiB\n repeat forever\n gpu 1s\n memory 15GiB\n gpu 2h\n"
            "job flat\n memory 50GiB\n repeat forever\n gpu 1h\n");

        assert_in_range(d.r.handoffs, 1, 10); /* once the peak is forgotten both run */
}

static void a_client_without_room_is_refused_and_others_go_on(void **state)
{
        DAY("card 80GiB\n bus 25GB/s\n"
            "job large\n memory 79GiB\n gpu 1s\njob small\n at 1s\n memory 10GiB\n gpu 1s\n");

        assert_true(d.r.clients[0].refused);
        assert_false(d.r.clients[1].refused);
        assert_int_equal(d.r.end_ns, 2 * NSEC_PER_SEC);
}

static void the_same_file_gives_the_same_results(void **state)
{
        const char *text = "card 80GiB\n bus 25GB/s\n until 2h\n seed 7\n"
                           "job a\n count 20\n every 1min random\n memory 30GiB\n repeat 20\n"
                           " gpu 10s random\n think 20s random\n";
        uint64_t events[2];

        for (unsigned i = 0; i < 2; i++) {
                DAY(text);
                events[i] = d.r.events ^ d.r.end_ns ^ d.r.in_bytes;
        }
        assert_int_equal(events[0], events[1]);
}

static void a_wrong_line_is_named_in_one_sentence(void **state)
{
        static const struct {
                const char *text, *error;
        } rows[] = {
                {"", "line 0: the file ends and says no card"},
                {"card 80GiB\n", "line 1: the file ends and says no bus"},
                {"card 80GiB\nbus 25GB/s\n", "line 2: the file ends and has no job"},
                {"card many\n", "line 1: 'many' is no size such as 40GiB"},
                {"card\n", "line 1: 'card' needs a value"},
                {"card 1GiB 2GiB\n", "line 1: 'card' takes 1 value at most"},
                {"# a card\n\nbus fast\n", "line 3: 'fast' is no rate such as 50GB/s"},
                {"bus 0GB/s\n", "line 1: '0GB/s' is no rate such as 50GB/s"},
                {"mode fair\n", "line 1: 'fair' is no mode: auto, exclusive or off"},
                {"quantum soon\n", "line 1: 'soon' is no duration such as 20s"},
                {"handoff_share 5\n", "line 1: '5' is no share such as 5%"},
                {"extent 1KiB\n", "line 1: an extent is 1MiB at least"},
                {"colour red\n", "line 1: there is no word 'colour'"},
                {"gpu 1s\n", "line 1: 'gpu' belongs to a job, and there is none yet"},
                {"job a\ncard 1GiB\n", "line 2: 'card' belongs before the first job"},
                {"job a\njob b\n", "line 2: the job before ('a') has no gpu or think line"},
                {"job a\ncount 0\n", "line 2: '0' is no number from 1 to 100000"},
                {"job a\ncount 1x\n", "line 2: '1x' is no number from 1 to 100000"},
                {"job a\ngpu 1s often\n",
                 "line 2: 'often' is not understood; only 'random' may stand there"},
                {"job a\ngpu 1s 2s often\n",
                 "line 2: 'often' is not understood; 'lognormal' or 'pareto' may stand there"},
                {"job a\ngpu 2s 1s pareto\n", "line 2: the second duration must be the longer one"},
                {"job a\ngpu 0s\n", "line 2: a phase takes 1us at least"},
                {"job a b c d e f g\n", "line 1: too many words"},
                {"card 1GiB\nbus 1GB/s\njob a\nmemory 1MiB\n",
                 "line 3: job 'a' has no gpu or think line"},
                {"card 1GiB\nbus 1GB/s\njob a\nrepeat forever\ngpu 1s\n",
                 "line 3: job 'a' repeats for ever, and no 'until' ends it"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                FILE *f = rows[i].text[0] ? fmemopen((void *)(uintptr_t)rows[i].text,
                                                     strlen(rows[i].text), "r")
                                          : fopen("/dev/null", "re");
                struct workload w;
                char error[256] = "";

                assert_non_null(f);
                assert_int_equal(workload_read(f, &w, error, sizeof(error)), -EINVAL);
                assert_string_equal(error, rows[i].error);
                (void)fclose(f);
        }
}

/* ---- the two rules that the scheduler is compared with ---- */

#define RULE(text, rule)                                      \
        struct day d __attribute__((cleanup(end_day))) = {0}; \
        run_rule(&d, text, rule)

static void run_rule(struct day *d, const char *text, enum baseline rule)
{
        read_day(d, text_file(text));
        assert_int_equal(baseline_run(&d->w, rule, &d->r), 0);
}

#define assert_seconds(ns, s) assert_near((double)(ns) / 1e9, s, 1e-5)

static void nobody_overtakes_the_first_in_the_queue(void **state)
{
        /* b does not fit beside a. c would, but waits behind b. Then b and c share the GPU. */
        RULE("card 60GB\n context 0\n bus 10GB/s\n"
             "job a\n memory 40GB\n gpu 10s\n"
             "job b\n memory 40GB\n gpu 10s\n"
             "job c\n memory 10GB\n gpu 10s\n",
             BASELINE_FCFS);

        assert_seconds(d.r.clients[0].ended_ns, 10);
        assert_seconds(d.r.clients[1].ended_ns, 30);
        assert_seconds(d.r.clients[2].ended_ns, 30);
        assert_seconds(model_wait(&d.r.clients[2], 1000), 10);
        assert_seconds(d.r.busy_ns, 30);
        assert_seconds(d.r.lost_ns, 0);
}

/* 0 to 10: a computes. 10 to 12: 20 GB of a go out for b. 12 to 22: b computes; a wants to
 * since 15. From 22: 20 GB of a come in, by the bus or by page faults, while 20 GB of b go out. */
static const char back_and_forth[] = "card 60GB\n context 0\n bus 10GB/s\n faults 5GB/s\n"
                                     "job a\n memory 40GB\n gpu 10s\n think 5s\n gpu 10s\n"
                                     "job b\n at 1s\n memory 40GB\n gpu 10s\n think 100s\n";

static void first_come_first_served_moves_memory_at_the_rate_of_the_bus(void **state)
{
        RULE(back_and_forth, BASELINE_FCFS);

        assert_seconds(d.r.clients[1].bursts[0].begun_ns, 12);
        assert_seconds(d.r.clients[0].bursts[1].wanted_ns, 15);
        assert_seconds(d.r.clients[0].bursts[1].begun_ns, 24);
        assert_seconds(d.r.clients[0].ended_ns, 34);
        assert_seconds(d.r.end_ns, 122);
        assert_seconds(d.r.lost_ns, 4);
        assert_int_equal(d.r.in_bytes, 20000000000);
        assert_int_equal(d.r.out_bytes, 40000000000);
}

static void a_turn_begins_with_page_faults(void **state)
{
        RULE(back_and_forth, BASELINE_TURNS);

        assert_seconds(d.r.clients[1].bursts[0].begun_ns, 12);
        assert_seconds(d.r.clients[0].bursts[1].begun_ns, 26);
        assert_seconds(d.r.clients[0].ended_ns, 36);
        assert_seconds(d.r.lost_ns, 6);
}

static void turns_are_exclusive_and_last_30_s(void **state)
{
        RULE("card 60GB\n bus 10GB/s\njob a\n memory 10GB\n gpu 20s\n gpu 20s\n"
             "job b\n memory 10GB\n gpu 40s\n",
             BASELINE_TURNS);

        assert_seconds(d.r.clients[0].ended_ns, 70); /* 0 to 30, 60 to 70 */
        assert_seconds(d.r.clients[1].ended_ns, 80); /* 30 to 60, 70 to 80 */
        assert_int_equal(d.r.clients[1].n_waits, 2);
        assert_seconds(model_wait(&d.r.clients[1], 1000), 30);
        assert_seconds(d.r.clients[0].gpu_ns, 40);
}

static void a_rule_refuses_a_program_without_room_and_goes_on(void **state)
{
        RULE("card 80GiB\n bus 25GB/s\n"
             "job large\n memory 81GiB\n gpu 1s\n"
             "job grows\n gpu 1s\n memory 90GiB\n gpu 1s\n"
             "job small\n at 1s\n memory 10GiB\n gpu 1s\n",
             BASELINE_FCFS);

        assert_true(d.r.clients[0].refused);
        assert_true(d.r.clients[1].refused);
        assert_false(d.r.clients[2].refused);
        assert_seconds(d.r.end_ns, 2);
}

static void programs_do_the_same_under_each_system(void **state)
{
        static const char text[] = "card 80GiB\n bus 25GB/s\n until 1h\n"
                                   "job a\n count 5\n every 1min random\n memory 30GiB\n"
                                   " repeat forever\n gpu 100ms 30s lognormal\n think 5s random\n";
        DAY(text);

        for (unsigned rule = BASELINE_FCFS; rule <= BASELINE_TURNS; rule++) {
                struct day other __attribute__((cleanup(end_day))) = {0};

                run_rule(&other, text, (enum baseline)rule);
                for (unsigned i = 0; i < d.r.n_clients; i++) {
                        const struct model_client *x = &d.r.clients[i], *y = &other.r.clients[i];

                        assert_int_equal(x->arrived_ns, y->arrived_ns);
                        assert_in_range(MIN(x->n_bursts, y->n_bursts), 20, 3600);
                        for (unsigned k = 0; k < MIN(x->n_bursts, y->n_bursts); k++)
                                assert_int_equal(x->bursts[k].alone_ns, y->bursts[k].alone_ns);
                }
        }
}

static void the_share_error_is_the_largest_shortfall_of_a_user(void **state)
{
        double error;
        uint32_t uid;

        /* a gets 0 to 30, b 30 to 45: 15 s of a fair share of 22.5 s. c asks for 0 s until then. */
        RULE("card 60GB\n bus 10GB/s\n until 45s\n"
             "job a\n user 1\n gpu 1h\njob b\n user 2\n gpu 1h\n"
             "job c\n user 3\n think 1min\n gpu 1h\n",
             BASELINE_TURNS);

        assert_int_equal(fair_error(&d.w, &d.r, &error, &uid), 0);
        assert_near(error, 1.0 / 3, 1e-6);
        assert_int_equal(uid, 2);
}

static void a_user_who_gets_what_he_asks_for_has_no_share_error(void **state)
{
        double error;
        uint32_t uid;

        DAY("card 60GB\n bus 10GB/s\n until 100s\n"
            "job a\n user 1\n memory 1GB\n repeat 10\n gpu 1s\n think 1s\n");

        assert_int_equal(fair_error(&d.w, &d.r, &error, &uid), 0);
        assert_near(error, 0, 1e-6);
}

/* ---- traces ---- */

static int read_trace(const char *text, struct workload *w, char error[static 256])
{
        static const char card[] = "card 80GiB\n bus 25GB/s\n";
        FILE *f = fmemopen((void *)(uintptr_t)card, strlen(card), "r");
        FILE *trace = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
        int e;

        assert_non_null(f);
        assert_non_null(trace);
        assert_int_equal(workload_read_card(f, w, error, 256), 0);
        e = trace_read(trace, w, error, 256);
        (void)fclose(f);
        (void)fclose(trace);
        return e;
}

static void bursts_of_a_trace_keep_their_order_and_their_start(void **state)
{
        struct day d __attribute__((cleanup(end_day))) = {0};
        const struct model_client *a, *b;
        char error[256] = "";

        assert_int_equal(read_trace("name,user,start_s,memory_GiB,burst_s,think_s\n"
                                    "a,1,5,10,2,1\n"
                                    "b,2,0.5,2,1,0\n"
                                    "\n# c does not come\n"
                                    "a,1,20,10,3,0\r\n"
                                    "a,1,21,12.5,4,2\n",
                                    &d.w, error),
                         0);
        assert_int_equal(model_run(&d.w, true, &d.r), 0);
        assert_null(d.r.broken);
        assert_int_equal(d.r.n_clients, 2);
        a = &d.r.clients[0];
        b = &d.r.clients[1];
        assert_string_equal(a->job->name, "a");
        assert_int_equal(a->job->uid, 1);
        assert_int_equal(a->n_bursts, 3);
        assert_seconds(a->bursts[0].wanted_ns, 5);
        assert_seconds(a->bursts[1].wanted_ns, 20);
        assert_seconds(a->bursts[2].wanted_ns, 23);
        assert_seconds(a->ended_ns, 29);
        assert_seconds(b->ended_ns, 1.5);
}

static void a_wrong_line_of_a_trace_is_named_in_one_sentence(void **state)
{
        static const struct {
                const char *text, *error;
        } rows[] = {
                {"\n", "line 1: the file ends and has no burst"},
                {"a,1,0,1,1\n", "line 1: 5 fields stand there instead of "
                                "name,user,start_s,memory_GiB,burst_s,think_s"},
                {"a,1,0,1,1,1,1\n", "line 1: 7 fields stand there instead of "
                                    "name,user,start_s,memory_GiB,burst_s,think_s"},
                {",1,0,1,1,1\n", "line 1: a name has 1 to 31 letters"},
                {"a,me,0,1,1,1\n", "line 1: 'me' is no user: a number from 0 to 2000000000"},
                {"a,1.5,0,1,1,1\n", "line 1: '1.5' is no user: a whole number"},
                {"a,1,-1,1,1,1\n", "line 1: '-1' is no start_s: a number from 0 to 1000000000"},
                {"a,1,0,1GiB,1,1\n", "line 1: '1GiB' is no memory_GiB: a number from 0 to 1000000"},
                {"a,1,0,1,nan,1\n", "line 1: 'nan' is no burst_s: a number from 0 to 1000000000"},
                {"a,1,0,1,1,\n", "line 1: '' is no think_s: a number from 0 to 1000000000"},
                {"a,1,0,1,0,1\n", "line 1: a burst takes 1us at least"},
                {"a,1,0,1,1,1\na,2,0,1,1,1\n", "line 2: 'a' belongs to user 1 since line 1"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct workload w;
                char error[256] = "";

                assert_int_equal(read_trace(rows[i].text, &w, error), -EINVAL);
                assert_string_equal(error, rows[i].error);
                workload_free(&w);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(clients_that_fit_never_wait_and_nothing_moves),
                cmocka_unit_test(a_program_alone_never_waits),
                cmocka_unit_test(times_follow_their_distribution),
                cmocka_unit_test(two_busy_clients_get_half_each_in_exclusive_mode),
                cmocka_unit_test(the_automatic_quantum_keeps_hand_offs_within_their_share),
                cmocka_unit_test(clients_that_run_together_pay_by_their_bytes),
                cmocka_unit_test(shares_hold_within_two_points_a_minute_where_memory_fits),
                cmocka_unit_test(shares_hold_within_five_points_in_five_minutes_past_memory),
                cmocka_unit_test(two_jobs_past_memory_end_sooner_together),
                cmocka_unit_test(bursts_of_a_higher_priority_do_not_ping_pong),
                cmocka_unit_test(an_idle_higher_priority_gives_way_and_comes_back_at_once),
                cmocka_unit_test(clients_are_packed_by_their_peaks),
                cmocka_unit_test(a_peak_that_does_not_come_back_is_forgotten),
                cmocka_unit_test(a_client_without_room_is_refused_and_others_go_on),
                cmocka_unit_test(a_wrong_line_is_named_in_one_sentence),
                cmocka_unit_test(nobody_overtakes_the_first_in_the_queue),
                cmocka_unit_test(first_come_first_served_moves_memory_at_the_rate_of_the_bus),
                cmocka_unit_test(a_turn_begins_with_page_faults),
                cmocka_unit_test(turns_are_exclusive_and_last_30_s),
                cmocka_unit_test(a_rule_refuses_a_program_without_room_and_goes_on),
                cmocka_unit_test(the_share_error_is_the_largest_shortfall_of_a_user),
                cmocka_unit_test(a_user_who_gets_what_he_asks_for_has_no_share_error),
                cmocka_unit_test(bursts_of_a_trace_keep_their_order_and_their_start),
                cmocka_unit_test(a_wrong_line_of_a_trace_is_named_in_one_sentence),
                /* These take seconds. A planted mistake that another test notices does not wait for
                   them. */
                cmocka_unit_test(unfair_clients_leave_others_their_share),
                cmocka_unit_test(the_same_file_gives_the_same_results),
                cmocka_unit_test(programs_do_the_same_under_each_system),
                cmocka_unit_test(turns_are_shared_between_users_first),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
