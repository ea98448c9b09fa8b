/* test_demo.c: sublet demo on a card that a test makes up: the choice of the card, the size of the
 * programs, and the verdict on their results. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "lab/demo/demo.h"
#include "client/driver/driver_ask.h"
#include "cli_bench.h"

#define ROWS 4
enum { REFERENCE, PLAIN, SHARED, KILLED };

static struct {
        int asks; /* result of driver_ask() */
        struct driver_report gpu, sim;
        struct demo_stage stage; /* the stage of the last row */
        struct demo_row rows[ROWS];
        unsigned n_rows, tables, opened, closed;
        int fails_at;     /* the row that cannot be run; -1: none */
        int incomplete;   /* the row in which a program fails; -1: none */
        int different;    /* the row with other results; -1: none */
        int not_replaced; /* 1: the killed daemon is not replaced */
        int signal;
} now;

/* ---- fakes of other modules ---- */

int driver_ask(const char *folder, struct driver_report *ret)
{
        *ret = folder ? now.sim : now.gpu;
        return folder ? 0 : now.asks;
}

int demo_nvml_open(const char *folder, const char *pci_bus_id, struct demo_nvml **ret)
{
        now.opened++;
        *ret = (struct demo_nvml *)&now;
        return 0;
}

void demo_nvml_close(struct demo_nvml *nvml)
{
        now.closed += nvml == (struct demo_nvml *)&now;
}

void lab_catch_interrupt(void)
{
}

int lab_interrupted(void)
{
        return now.signal;
}

int demo_run(const struct demo_stage *stage, const struct demo_row *row, struct demo_result *ret)
{
        int at = (int)now.n_rows;
        char path[PATHS_DIR_MAX + 16];

        assert_true(at < ROWS);
        now.stage = *stage;
        now.rows[now.n_rows++] = *row;
        if (at == 0) {
                /* A directory as a daemon would leave it. */
                (void)snprintf(path, sizeof(path), "%s/1", stage->folder);
                assert_int_equal(mkdir(path, 0700), 0);
                (void)snprintf(path, sizeof(path), "%s/1/lock", stage->folder);
                assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
        }
        *ret = (struct demo_result){.daemon_killed = row->kill_daemon && !now.not_replaced};
        for (unsigned k = 0; k < DEMO_JOBS; k++) {
                ret->jobs[k].outcome = DEMO_COMPLETED;
                ret->jobs[k].rounds = (row->rounds ? row->rounds : 42) * stage->phases;
        }
        if (at == now.incomplete)
                ret->jobs[at == 0 ? 0 : 1].outcome = DEMO_FAILED;
        ret->handoffs = at == now.different;
        ret->seconds = at == REFERENCE ? 8 : 4;
        return at == now.fails_at ? CLI_FAILED : CLI_OK;
}

int demo_same_results(const struct demo_result *a, const struct demo_result *b)
{
        return !a->handoffs && b->jobs[0].rounds == a->jobs[0].rounds;
}

void demo_print_table(const struct demo_row *rows, const struct demo_result *results, unsigned n)
{
        assert_int_equal(n, ROWS);
        now.tables++;
}

/* ---- scenes ---- */

static int begin(void **state)
{
        memset(&now, 0, sizeof(now));
        now.fails_at = now.incomplete = now.different = -1;
        now.gpu.stage = now.sim.stage = DRIVER_ANSWERED;
        now.gpu.n_gpus = now.sim.n_gpus = 1;
        now.gpu.gpus[0] = (struct driver_gpu){.name = "a card", .total_bytes = 2 * GIB, .vmm = 1};
        now.sim.gpus[0] = (struct driver_gpu){.name = "simulated", .vmm = 1};
        (void)cli_bench_begin(state);
        (void)strcpy(cli_bench.parts[PART_SIMULATOR_STAT], "/bin/true");
        return 0;
}

static char *printed;

static int demo(const char *option, const char *more)
{
        const struct cli_command self = {"demo", demo_main, "", "", demo_options};
        char *argv[] = {(char *)"demo", (char *)option, (char *)more, NULL};
        int r;

        now.n_rows = 0;
        free(printed);
        cli_bench_catch();
        r = demo_main(&self, 1 + !!option + !!more, argv);
        printed = cli_bench_caught();
        if (now.n_rows)
                assert_int_equal(access(now.stage.folder, F_OK), -1); /* the folder was removed */
        return r;
}

static int end(void **state)
{
        free(printed);
        printed = NULL;
        return 0;
}

/* ---- the tests ---- */

static void on_a_gpu_two_programs_need_a_little_more_than_it_has(void **state)
{
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_false(now.stage.simulated);
        assert_string_equal(now.stage.card, "a card");
        assert_int_equal(now.n_rows, ROWS);
        assert_int_equal(now.stage.card_bytes, 2 * GIB);
        assert_in_range(now.stage.job_bytes, 2 * GIB / 100 * 52, 2 * GIB / 100 * 53);
        assert_int_equal(now.opened, 1);
        assert_int_equal(now.closed, 1);
        assert_int_equal(now.tables, 1);
        assert_non_null(strstr(printed, "on one card of 2 GiB (a card)"));
        assert_null(strstr(printed, "simulated"));
        assert_null(strstr(printed, "--sim"));
        assert_non_null(strstr(printed, " run -- python3 your-program.py\n"));
        assert_non_null(strstr(printed, " doctor\n"));
        assert_non_null(strstr(printed, "Under sublet both took 50 % of the time"));
        assert_int_equal(demo("--fast", NULL), CLI_OK);
        assert_true(now.stage.phases * now.stage.seconds < 4);
}

static void every_row_does_the_rounds_of_the_first(void **state)
{
        now.asks = -EIO;
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_int_equal(now.n_rows, ROWS);
        for (unsigned i = 0; i < ROWS; i++) {
                const struct demo_row *r = &now.rows[i];

                assert_int_equal(r->rounds, i == REFERENCE ? 0 : 42);
                assert_int_equal(!!r->shared, i == SHARED || i == KILLED);
                assert_int_equal(!!r->one_after_the_other, i == REFERENCE);
                assert_int_equal(!!r->kill_daemon, i == KILLED);
        }
}

static void without_a_gpu_the_card_and_the_next_commands_are_simulated(void **state)
{
        now.asks = -EIO;
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_true(now.stage.simulated);
        assert_string_equal(now.stage.card, "simulated");
        assert_int_equal(now.stage.card_bytes, 256 * MIB);
        assert_int_equal(now.stage.job_bytes, 135 * MIB);
        assert_string_equal(getenv("SIMCUDA_SESSION"), now.stage.session);
        assert_string_equal(getenv("SIMCUDA_MEMORY"), "256MiB");
        assert_non_null(strstr(printed, "simulated: there is no GPU here"));
        assert_non_null(strstr(printed, " run --sim -- /parts/3 600MiB\n"));
        assert_non_null(strstr(printed, " top --sim\n"));
        assert_non_null(strstr(printed, " doctor --sim\n"));
        assert_int_equal(now.closed, 1);
        assert_int_equal(demo("--fast", NULL), CLI_OK);
        assert_int_equal(now.stage.card_bytes, 128 * MIB);
        assert_string_equal(getenv("SIMCUDA_MEMORY"), "128MiB");
}

static void a_gpu_is_left_alone_if_it_cannot_be_shared(void **state)
{
        struct driver_gpu *gpu = &now.gpu.gpus[0], before = *gpu;

        now.gpu.n_gpus = 0;
        assert_int_equal(demo("--gpu", NULL), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "there is no GPU here"));
        now.gpu.n_gpus = 1;
        now.gpu.stage = DRIVER_LOOKING;
        assert_int_equal(demo("--gpu", NULL), CLI_FAILED);
        now.gpu.stage = DRIVER_ANSWERED;
        gpu->vmm = 0;
        assert_int_equal(demo("--gpu", NULL), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "virtual memory management"));
        gpu->vmm = -1;
        assert_int_equal(demo("--gpu", NULL), CLI_FAILED);
        *gpu = before;
        gpu->compute_mode = 1;
        assert_int_equal(demo("--gpu", NULL), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "compute mode"));
        gpu->compute_mode = -1; /* the mode is unknown */
        assert_int_equal(demo("--gpu", NULL), CLI_OK);
        assert_false(now.stage.simulated);
        *gpu = before;
        gpu->total_bytes = UINT64_C(1) << 50;
        assert_int_equal(demo("--gpu", NULL), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "host memory is too small"));
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_true(now.stage.simulated);
}

static void a_gpu_in_use_is_taken_only_on_request(void **state)
{
        struct driver_gpu *gpu = &now.gpu.gpus[0];

        gpu->total_bytes = 4 * GIB;
        gpu->used_bytes = GIB;
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_false(now.stage.simulated);
        assert_int_equal(now.stage.card_bytes, 4 * GIB);
        assert_true(now.stage.job_bytes < 3 * GIB / 100 * 53); /* a part of the free bytes */
        gpu->used_bytes = GIB + 1;
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_true(now.stage.simulated);
        assert_non_null(strstr(printed, "somebody uses the GPU"));
        assert_int_equal(demo("--gpu", NULL), CLI_OK);
        assert_false(now.stage.simulated);
        gpu->used_bytes = DRIVER_UNKNOWN;
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_true(now.stage.simulated);
        assert_int_equal(demo("--gpu", NULL), CLI_OK);
        assert_false(now.stage.simulated);
        assert_true(now.stage.job_bytes > 2 * GIB); /* more than half of the whole card */
}

static void a_wrong_result_under_sublet_is_a_failure(void **state)
{
        now.asks = -EIO;
        for (int i = 0; i < ROWS; i++) {
                bool must = i != PLAIN;

                now.incomplete = i;
                assert_int_equal(demo(NULL, NULL), must ? CLI_FAILED : CLI_OK);
                now.incomplete = -1;
                now.different = i;
                assert_int_equal(demo(NULL, NULL), must ? CLI_FAILED : CLI_OK);
                now.different = -1;
                now.fails_at = i;
                assert_int_equal(demo(NULL, NULL), CLI_FAILED);
                assert_int_equal(now.n_rows, i + 1);
                assert_null(strstr(printed, "Next:"));
                now.fails_at = -1;
        }
        now.not_replaced = 1;
        assert_int_equal(demo(NULL, NULL), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "was not replaced"));
}

/* A program that fails alone explains all failures in later rows. */
static void a_program_that_fails_alone_ends_the_demo(void **state)
{
        now.incomplete = REFERENCE;
        assert_int_equal(demo(NULL, NULL), CLI_FAILED);
        assert_int_equal(now.n_rows, 1);
        assert_int_equal(now.tables, 0);
        assert_non_null(strstr(cli_bench.said, "program A did not complete"));
}

static void an_interrupted_demo_says_that_nothing_is_left(void **state)
{
        now.signal = SIGINT;
        now.fails_at = 2;
        assert_int_equal(demo(NULL, NULL), 128 + SIGINT);
        assert_int_equal(now.closed, 1);
        assert_non_null(strstr(cli_bench.said, "nothing is left behind"));
}

static void without_the_simulator_there_is_no_demo(void **state)
{
        now.asks = -EIO;
        now.sim.stage = DRIVER_NOT_STARTED;
        assert_int_equal(demo(NULL, NULL), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "does not work"));
        cli_bench.parts[PART_SIMULATOR][0] = 0;
        assert_int_equal(demo(NULL, NULL), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "is missing"));
        assert_int_equal(demo("word", NULL), CLI_USAGE);
        assert_int_equal(demo("--word", NULL), CLI_USAGE);
        assert_int_equal(demo("--gpu", "word"), CLI_USAGE);
        assert_int_equal(now.n_rows, 0);
}

static void a_simulated_card_that_is_left_behind_is_named(void **state)
{
        now.asks = -EIO;
        (void)strcpy(cli_bench.parts[PART_SIMULATOR_STAT], "/bin/false");
        assert_int_equal(demo(NULL, NULL), CLI_OK);
        assert_int_equal(cli_bench.failures, 1);
        assert_non_null(strstr(cli_bench.said, now.stage.session));
}

#define DEMO_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                DEMO_TEST(on_a_gpu_two_programs_need_a_little_more_than_it_has),
                DEMO_TEST(every_row_does_the_rounds_of_the_first),
                DEMO_TEST(without_a_gpu_the_card_and_the_next_commands_are_simulated),
                DEMO_TEST(a_gpu_is_left_alone_if_it_cannot_be_shared),
                DEMO_TEST(a_gpu_in_use_is_taken_only_on_request),
                DEMO_TEST(a_wrong_result_under_sublet_is_a_failure),
                DEMO_TEST(a_program_that_fails_alone_ends_the_demo),
                DEMO_TEST(an_interrupted_demo_says_that_nothing_is_left),
                DEMO_TEST(without_the_simulator_there_is_no_demo),
                DEMO_TEST(a_simulated_card_that_is_left_behind_is_named),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
