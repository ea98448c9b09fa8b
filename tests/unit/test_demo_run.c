/* test_demo_run.c: one row of the demo, with shell scripts as programs and daemon: the order of
 * starts, the reports of the programs, and that no process is left behind. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ask/ask.h"
#include "base/macros.h"
#include "client/talk/control_order.h"
#include "lab/demo/demo.h"
#include "client/launch/launch.h"
#include "cli_bench.h"

static char folder[] = "/tmp/sublet-demo-run-XXXXXX";
static struct demo_stage stage;
static struct demo_result result;
static struct {
        unsigned status, stops, drawn, begun, ended, cleared;
        int moved; /* result of demo_moved() */
        uint64_t in, out;
        uint64_t handoffs[8]; /* hand-offs in the answers to "status"; the last is repeated */
        unsigned n_handoffs;
        unsigned interrupt_at; /* the picture at which Ctrl-C is pressed */
} now;

/* ---- fakes of other modules ---- */

static char *path_of(const char *name)
{
        return cli_bench_path(folder, name);
}

static void write_file(const char *name, const char *text)
{
        cli_bench_write(path_of(name), text);
}

static const char *read_file(const char *name)
{
        static char text[1024];
        FILE *f = fopen(path_of(name), "r");
        size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

        text[n] = 0;
        if (f)
                (void)fclose(f);
        return text;
}

int launch_complete(struct launch *l)
{
        l->variables[0] = (struct launch_variable){"LD_PRELOAD", strdup("")};
        l->variables[1] = (struct launch_variable){"OF_LAUNCH", strdup(l->daemon)};
        l->n_variables = 2;
        return CLI_OK;
}

void launch_clear(struct launch *l)
{
        for (unsigned i = 0; i < l->n_variables; i++)
                free(l->variables[i].value);
        now.cleared++;
}

/* Answers in place of the daemon. The answer to "status" has figures of both programs. */
int ask_daemon(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer)
{
        const char *word = json_string_value(json_object_get(order, "order"));
        const bool stop = strcmp(word, "stop") == 0, status = strcmp(word, "status") == 0;
        unsigned at = MIN(now.status, now.n_handoffs - 1);
        int supervisor;

        assert_int_equal(kind, PATHS_PRIVATE);
        json_decref(order);
        if (stop) {
                now.stops++;
                if (sscanf(read_file("supervisor"), "%d", &supervisor) == 1)
                        (void)kill(-supervisor, SIGKILL); /* the supervisor and its worker */
        }
        if (!status) {
                *ret_answer = json_object();
                return 0;
        }
        *ret_answer = json_pack(
                "{s:[{s:I,s:[{s:i,s:s,s:i,s:i,s:i,s:i},{s:i,s:n,s:i,s:i,s:i,s:i},{s:i,s:i}]}]}",
                "gpus", "handoffs", (json_int_t)now.handoffs[at], "clients", "pid",
                (int)result.jobs[0].program.pid, "state", "running", "backed", 10, "evicted", 1,
                "moved_out", 2, "moved_in", 3, "pid", (int)result.jobs[1].program.pid, "state",
                "backed", 20, "evicted", 4, "moved_out", 5, "moved_in", 6, "pid", 1, "backed", 99);
        assert_non_null(*ret_answer);
        if (++now.status >= now.n_handoffs)
                write_file("enough", "");
        return 0;
}

int demo_moved(const char *session, uint64_t *ret_to_card, uint64_t *ret_to_host)
{
        *ret_to_card = now.in;
        *ret_to_host = now.out;
        now.in += 100; /* bytes moved until the next call */
        now.out += 10;
        return now.moved;
}

uint64_t demo_nvml_used(struct demo_nvml *nvml)
{
        return DEMO_UNKNOWN;
}

void demo_screen_begin(struct demo_screen *screen, const struct demo_row *row)
{
        now.begun++;
}

void demo_screen_draw(struct demo_screen *screen, const struct demo_stage *s,
                      const struct demo_row *row, const struct demo_result *r, uint64_t card_used,
                      double seconds)
{
        if (++now.drawn == now.interrupt_at)
                (void)raise(SIGINT);
}

void demo_screen_end(struct demo_screen *screen, const struct demo_result *r)
{
        now.ended++;
}

/* ---- scenes ---- */

static unsigned descriptors_before;

static unsigned descriptors(void)
{
        unsigned n = 0;

        for (int fd = 0; fd < 256; fd++)
                n += fcntl(fd, F_GETFD) >= 0;
        return n;
}

static int begin(void **state)
{
        memset(&now, 0, sizeof(now));
        now.n_handoffs = 1;
        now.moved = -ENOENT;
        (void)cli_bench_begin(state);
        descriptors_before = descriptors();
        (void)strcpy(folder + strlen(folder) - 6, "XXXXXX");
        assert_non_null(mkdtemp(folder));
        stage = (struct demo_stage){.job_bytes = 4096, .phases = 2, .seconds = 1.5};
        (void)snprintf(stage.folder, sizeof(stage.folder), "%s", folder);
        (void)snprintf(cli_bench.parts[PART_DEMO_JOB], sizeof(cli_bench.parts[0]), "%s",
                       path_of("job"));
        (void)snprintf(cli_bench.parts[PART_DAEMON], sizeof(cli_bench.parts[0]), "%s",
                       path_of("daemon"));
        write_file("daemon", "#!/bin/sh\necho \"$* ${LD_PRELOAD+preloaded} $OF_LAUNCH\" > "
                             "${3%/*}/daemon-args\n");
        return 0;
}

static int end(void **state)
{
        char command[128];

        (void)snprintf(command, sizeof(command), "rm -r %s", folder);
        assert_int_equal(system(command), 0);
        for (unsigned k = 0; k < DEMO_JOBS; k++)
                assert_true(result.jobs[k].program.pid <= 0 ||
                            waitpid(result.jobs[k].program.pid, NULL, WNOHANG) <
                                    0); /* no child is left */
        assert_true(result.jobs[0].program.output < 0 && result.jobs[1].program.output < 0);
        assert_int_equal(descriptors(), descriptors_before);
        return 0;
}

/* Runs the row with this script as both programs. $1 .. are its arguments, $D is the folder. */
static int run(const struct demo_row *row, const char *script)
{
        char text[1024];

        (void)snprintf(text, sizeof(text), "#!/bin/sh\nD=%s\n%s\n", folder, script);
        write_file("job", text);
        return demo_run(&stage, row, &result);
}

#define LOG(words) "echo \"$SUBLET_NAME " words "\" >> $D/log\n"

static void all_reports_of_both_programs_are_read(void **state)
{
        const struct demo_row row = {.rounds = 7};

        assert_int_equal(run(&row, LOG("$*") "echo allocated $1; echo pause; echo round 6\n"
                                             "echo done 14 2 digest$2"),
                         CLI_OK);
        for (unsigned k = 0; k < DEMO_JOBS; k++) {
                const struct demo_job *job = &result.jobs[k];

                assert_int_equal(job->outcome, DEMO_COMPLETED);
                assert_int_equal(job->allocated, 4096);
                assert_true(job->pauses);
                assert_int_equal(job->rounds, 14);
                assert_int_equal(job->round, 14);
                assert_int_equal(job->mismatches, 2);
                assert_int_equal(job->backed, DEMO_UNKNOWN);
        }
        /* Each program has contents of its own. */
        assert_string_equal(result.jobs[0].digest, "digest24301");
        assert_string_equal(result.jobs[1].digest, "digest24302");
        assert_non_null(strstr(read_file("log"), "A 4096B 24301 2 1.5 7\n"));
        assert_non_null(strstr(read_file("log"), "B 4096B 24302 2 1.5 7\n"));
        assert_string_equal(read_file("daemon-args"), ""); /* no daemon: the row is not shared */
        assert_int_equal(result.to_card, DEMO_UNKNOWN);
        assert_int_equal(result.handoffs, 0);
        assert_int_equal(now.status + now.stops, 0);
        assert_true(now.begun == 1 && now.ended == 1 && now.cleared == 1 && now.drawn > 0);
        assert_true(result.seconds > 0);
}

static void the_second_program_starts_after_the_first_has_ended(void **state)
{
        const struct demo_row row = {.one_after_the_other = 1};

        assert_int_equal(
                run(&row, LOG("begins, $5") "echo allocated 1\n" LOG("ends") "echo done 6 0 x"),
                CLI_OK);
        /* The second program does as many rounds as the first. */
        assert_string_equal(read_file("log"), "A begins, 0\nA ends\nB begins, 3\nB ends\n");
        assert_int_equal(result.jobs[1].rounds, 6);
}

static void the_second_program_starts_when_the_first_has_its_memory(void **state)
{
        const struct demo_row row = {.rounds = 1};

        assert_int_equal(run(&row,
                             "if [ $SUBLET_NAME = A ]; then\n" LOG(
                                     "has") "echo allocated 1\n"
                                            "while [ ! -e $D/b ]; do sleep 0.01; done; else\n" LOG(
                                                    "begins") "touch $D/b; fi\necho done 1 0 x"),
                         CLI_OK);
        assert_string_equal(read_file("log"), "A has\nB begins\n");
}

static void a_program_that_finds_no_memory_is_no_failure(void **state)
{
        const struct demo_row row = {.rounds = 1};

        assert_int_equal(run(&row, "echo allocated 9\n"
                                   "if [ $SUBLET_NAME = B ]; then echo memory 3; exit 0; fi\n"
                                   "echo pause; echo compute; echo done 1 0 x"),
                         CLI_OK);
        assert_int_equal(result.jobs[0].outcome, DEMO_COMPLETED);
        assert_false(result.jobs[0].pauses);
        assert_int_equal(result.jobs[1].outcome, DEMO_NO_MEMORY);
        assert_int_equal(result.jobs[1].allocated, 3);
        assert_string_equal(result.jobs[1].trouble, "");
}

static void the_cause_of_a_failed_program_is_reported(void **state)
{
        static const struct {
                const char *script, *trouble;
        } cases[] = {
                {"echo failed cuLaunchKernel 700; exit 1", "cuLaunchKernel answered 700"},
                {"kill -9 $$", "killed by signal 9"},
                {"exit 3", "ended with status 3"},
                {"echo allocated 1", "ended with status 0"},
                {"echo done 1 0 x; exit 1", "ended with status 1"},
                {"echo failed cuInit 100", "cuInit answered 100"},
        };
        const struct demo_row row = {.rounds = 1};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(run(&row, cases[i].script), CLI_OK);
                for (unsigned k = 0; k < DEMO_JOBS; k++) {
                        assert_int_equal(result.jobs[k].outcome, DEMO_FAILED);
                        assert_string_equal(result.jobs[k].trouble, cases[i].trouble);
                }
        }
}

static void lines_are_read_whole_however_they_arrive(void **state)
{
        const struct demo_row row = {.rounds = 1};

        assert_int_equal(run(&row,
                             "printf 'allo'; sleep 0.05; printf 'cated 12\\nround 3\\nnoise\\n'\n"
                             "printf '%0300d\\n' 7\nprintf 'round 4\\ndone 4 '\n"
                             "sleep 0.05; echo 0 digest"),
                         CLI_OK);
        for (unsigned k = 0; k < DEMO_JOBS; k++) {
                assert_int_equal(result.jobs[k].allocated, 12);
                assert_int_equal(result.jobs[k].outcome, DEMO_COMPLETED);
                assert_int_equal(result.jobs[k].rounds, 4);
                assert_string_equal(result.jobs[k].digest, "digest");
        }
}

static void programs_that_share_have_a_daemon_and_the_library(void **state)
{
        const struct demo_row row = {.rounds = 1, .shared = 1};
        char args[256], dir[PATHS_DIR_MAX];
        struct stat st;

        assert_int_equal(run(&row, LOG("${LD_PRELOAD+preloaded} $SUBLET_QUIET $OF_LAUNCH") "echo "
                                                                                           "done 1 "
                                                                                           "0 x"),
                         CLI_OK);
        assert_int_equal(sscanf(read_file("daemon-args"), "--private --dir %94s", dir), 1);
        assert_int_equal(stat(dir, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        /* The daemon itself is not under sublet. */
        (void)snprintf(args, sizeof(args), "--private --dir %s  %s\n", dir, dir);
        assert_string_equal(read_file("daemon-args"), args);
        (void)snprintf(args, sizeof(args), "A preloaded 1 %s\n", dir);
        assert_non_null(strstr(read_file("log"), args));
        assert_int_equal(now.stops, 1);
        /* The next row uses another directory, because the first daemon may still be ending. */
        assert_int_equal(run(&row, "echo done 1 0 x"), CLI_OK);
        assert_null(strstr(read_file("daemon-args"), dir));
}

static void programs_that_do_not_share_have_no_library(void **state)
{
        const struct demo_row row = {.rounds = 1};

        assert_int_equal(run(&row, LOG("${LD_PRELOAD+preloaded}") "echo done 1 0 x"), CLI_OK);
        assert_null(strstr(read_file("log"), "preloaded"));
        assert_non_null(strstr(read_file("log"), "A"));
}

/* A daemon that was restarted counts from 0 again. */
static void a_result_adds_the_daemons_figures_of_both_programs(void **state)
{
        const struct demo_row row = {.rounds = 1, .shared = 1};
        static const uint64_t handoffs[] = {3, 5, 5, 1, 2};

        memcpy(now.handoffs, handoffs, sizeof(handoffs));
        now.n_handoffs = ARRAY_SIZE(handoffs);
        assert_int_equal(run(&row, "echo allocated 1\n"
                                   "while [ ! -e $D/enough ]; do sleep 0.01; done\n"
                                   "echo done 1 0 x"),
                         CLI_OK);
        assert_int_equal(result.handoffs, 5 + 2);
        assert_string_equal(result.jobs[0].state, "running");
        assert_string_equal(result.jobs[1].state, "");
        assert_int_equal(result.jobs[0].backed, 10);
        assert_int_equal(result.jobs[1].backed, 20);
        assert_int_equal(result.jobs[0].evicted, 1);
        assert_int_equal(result.jobs[1].evicted, 4);
        /* The driver does not count here, so the clients' figures are used. */
        assert_true(result.counted_by_clients);
        assert_int_equal(result.to_card, 3 + 6);
        assert_int_equal(result.to_host, 2 + 5);
}

static void a_row_counts_only_its_own_bytes_of_the_driver(void **state)
{
        const struct demo_row row = {.rounds = 1, .shared = 1};

        now.moved = 0;
        now.in = 1000;
        now.out = 500;
        assert_int_equal(run(&row, "echo done 1 0 x"), CLI_OK);
        assert_false(result.counted_by_clients);
        assert_in_range(result.to_card, 100, 900);
        assert_int_equal(result.to_card % 100, 0);
        assert_int_equal(result.to_host, result.to_card / 10);
}

static void a_daemon_killed_midway_is_seen_to_be_replaced(void **state)
{
        const struct demo_row row = {.rounds = 2, .shared = 1, .kill_daemon = 1};

        write_file("daemon", "#!/bin/sh\nD=${3%/*}\n"
                             "setsid sh -c 'while :; do sleep 60 & wait; done' > /dev/null 2>&1 &\n"
                             "echo $! > $D/supervisor; echo $! > $3/lock\n");
        now.n_handoffs = 8;
        assert_int_equal(run(&row, "echo allocated 1; echo round 2\n"
                                   "while [ ! -e $D/enough ]; do sleep 0.01; done\n"
                                   "echo done 4 0 x"),
                         CLI_OK);
        assert_true(result.daemon_killed);
        /* The daemon is not killed before half of the rounds are done. */
        now.status = 0;
        assert_int_equal(unlink(path_of("enough")), 0);
        assert_int_equal(run(&row, "echo allocated 1; echo round 1\n"
                                   "while [ ! -e $D/enough ]; do sleep 0.01; done\n"
                                   "echo memory 1"),
                         CLI_OK);
        assert_false(result.daemon_killed);
}

static void without_its_parts_the_demo_starts_nothing(void **state)
{
        const struct demo_row row = {.rounds = 1, .shared = 1};

        write_file("daemon", "#!/bin/sh\nexit 1\n");
        assert_int_equal(run(&row, LOG("")), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "did not start"));
        cli_bench.parts[PART_DAEMON][0] = 0;
        assert_int_equal(run(&row, LOG("")), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "the daemon is missing"));
        assert_int_equal(now.begun, 0);
        assert_int_equal(now.stops, 1); /* a failed start stops what may have started */
        cli_bench.parts[PART_DEMO_JOB][0] = 0;
        assert_int_equal(demo_run(&stage, &(struct demo_row){0}, &result), CLI_FAILED);
        assert_non_null(strstr(cli_bench.said, "program is missing"));
        assert_string_equal(read_file("log"), "");
        assert_int_equal(now.cleared, 3);
}

/* This test and the next are the last ones, because the process stays interrupted. */
static void an_interrupt_ends_both_programs(void **state)
{
        const struct demo_row row = {.rounds = 1};

        lab_catch_interrupt();
        assert_int_equal(lab_interrupted(), 0);
        now.interrupt_at = 2;
        assert_int_equal(run(&row, "echo allocated 1; exec sleep 60"), CLI_FAILED);
        assert_int_equal(lab_interrupted(), SIGINT);
        assert_string_equal(result.jobs[0].trouble, "killed by signal 9");
        assert_string_equal(result.jobs[1].trouble, "killed by signal 9");
}

#define DEMO_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

/* Otherwise the daemon would start later, when nobody stops it any more. */
static void an_interrupt_does_not_end_the_wait_for_the_daemon(void **state)
{
        const struct demo_row row = {.rounds = 1, .shared = 1};

        write_file("daemon", "#!/bin/sh\nkill -INT $PPID\nsleep 0.2\necho > ${3%/*}/up\n");
        assert_int_equal(run(&row, "echo allocated 1; sleep 60"), CLI_FAILED);
        assert_string_equal(read_file("up"), "\n");
        assert_null(strstr(cli_bench.said, "did not start"));
        assert_int_equal(now.stops, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                DEMO_TEST(all_reports_of_both_programs_are_read),
                DEMO_TEST(the_second_program_starts_after_the_first_has_ended),
                DEMO_TEST(the_second_program_starts_when_the_first_has_its_memory),
                DEMO_TEST(a_program_that_finds_no_memory_is_no_failure),
                DEMO_TEST(the_cause_of_a_failed_program_is_reported),
                DEMO_TEST(lines_are_read_whole_however_they_arrive),
                DEMO_TEST(programs_that_share_have_a_daemon_and_the_library),
                DEMO_TEST(programs_that_do_not_share_have_no_library),
                DEMO_TEST(a_result_adds_the_daemons_figures_of_both_programs),
                DEMO_TEST(a_row_counts_only_its_own_bytes_of_the_driver),
                DEMO_TEST(a_daemon_killed_midway_is_seen_to_be_replaced),
                DEMO_TEST(without_its_parts_the_demo_starts_nothing),
                DEMO_TEST(an_interrupt_ends_both_programs),
                DEMO_TEST(an_interrupt_does_not_end_the_wait_for_the_daemon),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
