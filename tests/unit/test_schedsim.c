/* test_schedsim.c: results of the scheduler's rules over hours, on the model of tools/schedsim, and
 * checks of its workload files. */
#include "unit.h"

#include <errno.h>
#include <math.h>

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

static void run_day(struct day *d, const char *text)
{
        FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
        char error[256] = "";

        assert_non_null(f);
        if (workload_read(f, &d->w, error, sizeof(error)) < 0)
                fail_msg("%s", error);
        (void)fclose(f);
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

/* Between two bursts the job is idle for less time than a hand-off costs. */
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

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(clients_that_fit_never_wait_and_nothing_moves),
                cmocka_unit_test(a_program_alone_never_waits),
                cmocka_unit_test(times_follow_their_distribution),
                cmocka_unit_test(two_busy_clients_get_half_each_in_exclusive_mode),
                cmocka_unit_test(the_automatic_quantum_keeps_hand_offs_within_their_share),
                cmocka_unit_test(turns_are_shared_between_users_first),
                cmocka_unit_test(bursts_of_a_higher_priority_do_not_ping_pong),
                cmocka_unit_test(an_idle_higher_priority_gives_way_and_comes_back_at_once),
                cmocka_unit_test(clients_are_packed_by_their_peaks),
                cmocka_unit_test(a_peak_that_does_not_come_back_is_forgotten),
                cmocka_unit_test(a_client_without_room_is_refused_and_others_go_on),
                cmocka_unit_test(the_same_file_gives_the_same_results),
                cmocka_unit_test(a_wrong_line_is_named_in_one_sentence),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
