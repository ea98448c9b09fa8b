/* test_demo_view.c: the demo's output: the picture, the lines where no picture can be redrawn, and
 * the table at the end. */
#include "unit.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/macros.h"
#include "lab/demo/demo.h"
#include "cli_bench.h"

static struct demo_stage stage;
static struct demo_row row;
static struct demo_result result;
static struct demo_screen screen;

static int begin(void **state)
{
        stage = (struct demo_stage){.card_bytes = 50 * MIB}; /* a cell of the bar is a MiB */
        row = (struct demo_row){.title = "together"};
        result = (struct demo_result){.to_card = DEMO_UNKNOWN, .to_host = DEMO_UNKNOWN};
        for (unsigned k = 0; k < DEMO_JOBS; k++)
                result.jobs[k] = (struct demo_job){.program.pid = 1,
                                                   .backed = DEMO_UNKNOWN,
                                                   .evicted = DEMO_UNKNOWN,
                                                   .state = "running"};
        return cli_bench_begin(state);
}

static char *drawn(uint64_t used, double seconds)
{
        cli_bench_catch();
        demo_screen_draw(&screen, &stage, &row, &result, used, seconds);
        return cli_bench_caught();
}

static void has(const char *text, const char *part)
{
        if (!strstr(text, part))
                fail_msg("no '%s' in: %s", part, text);
}

static void without_a_terminal_a_line_is_printed_at_intervals(void **state)
{
        char *text;

        cli_bench_catch();
        demo_screen_begin(&screen, &row);
        text = cli_bench_caught();
        assert_string_equal(text, "\ntogether\n");
        free(text);
        assert_false(screen.terminal);
        result.jobs[0].allocated = 1;
        result.jobs[0].round = 2;
        result.jobs[0].rounds = 9;
        result.jobs[1].program.pid = 0;
        text = drawn(DEMO_UNKNOWN, 0);
        assert_string_equal(text, "    0.0 s  A computes  round 2 of 9; B not started\n");
        free(text);
        text = drawn(MIB, 1.9);
        assert_string_equal(text, "");
        free(text);
        result.jobs[1].program.pid = 1;
        result.jobs[0].pauses = 1;
        text = drawn(MIB, 2.0);
        assert_string_equal(text, "    2.0 s  A pauses    round 2 of 9; B starts    round 0\n");
        free(text);
        text = drawn(MIB, 3.9);
        assert_string_equal(text, "");
        free(text);
        result.seconds = 4.25;
        cli_bench_catch();
        demo_screen_end(&screen, &result);
        text = cli_bench_caught();
        assert_string_equal(text, "  ended after 4.2 s\n");
        free(text);
}

static void the_picture_shows_which_program_holds_the_cards_memory(void **state)
{
        char *text, bar[64];

        screen = (struct demo_screen){.terminal = 1};
        row.shared = 1;
        stage.simulated = 1;
        result.jobs[0].allocated = 13 * MIB;
        result.jobs[0].backed = 10 * MIB;
        result.jobs[0].evicted = 3 * MIB;
        result.jobs[1].backed = 20 * MIB + MIB / 2 + 1;
        result.handoffs = 7;
        text = drawn(35 * MIB + MIB / 2, 1.25);
        memset(bar, 'A', 10);
        memset(bar + 10, 'B', 21); /* more than half a cell is rounded up */
        memset(bar + 31, '#', 4);  /* half a cell is rounded down */
        memset(bar + 35, '.', 15);
        bar[50] = 0;
        has(text, bar);
        has(text, "] 35.5 MiB of 50 MiB\n");
        has(text, "  A  running   round 0, on the card 10 MiB, off it 3 MiB\n");
        has(text, "off it N/A\n");
        has(text, "  1.2 s, 7 hand-offs\n");
        assert_null(strstr(text, "\033[4A"));
        free(text);
        /* The next picture overwrites the last one. */
        result.to_card = 5 * MIB;
        result.to_host = 6 * MIB;
        result.daemon_killed = 1;
        result.jobs[0].outcome = DEMO_COMPLETED;
        text = drawn(DEMO_UNKNOWN, 2);
        assert_ptr_equal(strstr(text, "\033[4A"), text);
        memset(bar, 'B', 21); /* an ended program holds no memory */
        memset(bar + 21, '.', 29);
        has(text, bar);
        has(text, "] N/A of 50 MiB\n");
        has(text, "  A  completed\n");
        has(text, "  2.0 s, 7 hand-offs, daemon killed and back, 6 MiB out, 5 MiB in\n");
        free(text);
        cli_bench_catch();
        demo_screen_end(&screen, &result);
        text = cli_bench_caught();
        assert_string_equal(text, "");
        free(text);
}

static void without_sublet_the_bar_shows_the_total_use_of_the_card(void **state)
{
        char *text, bar[64];

        screen = (struct demo_screen){.terminal = 1};
        stage.simulated = 0;
        result.jobs[0].backed = 10 * MIB; /* a figure left from an earlier row */
        result.to_card = MIB;
        result.to_host = MIB;
        result.jobs[0].outcome = DEMO_FAILED;
        (void)strcpy(result.jobs[0].trouble, "killed by signal 9");
        result.jobs[1].outcome = DEMO_NO_MEMORY;
        text = drawn(60 * MIB, 1);
        memset(bar, '#', 50);
        bar[50] = ']';
        bar[51] = 0;
        has(text, bar);
        has(text, "  A  failed: killed by signal 9\n");
        has(text, "  B  out of memory\n");
        has(text, "  1.0 s\n"); /* no bytes: the driver of a GPU does not count them */
        free(text);
}

/* A line that wraps would take two lines, which the next picture would not overwrite. */
static void a_line_is_cut_at_the_width_of_the_terminal(void **state)
{
        struct winsize size = {.ws_row = 24, .ws_col = 20};
        int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1, before;
        char text[512], *line;
        size_t used = 0;
        ssize_t n;

        if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
            (slave = open(ptsname(master), O_RDWR | O_NOCTTY)) < 0)
                skip(); /* no terminal can be opened here */
        assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
        (void)setenv("TERM", "xterm", 1);
        (void)fflush(stdout);
        before = dup(STDOUT_FILENO);
        assert_true(dup2(slave, STDOUT_FILENO) >= 0);
        demo_screen_begin(&screen, &row);
        (void)setenv("TERM", "dumb", 1);
        demo_screen_draw(&screen, &stage, &row, &result, MIB, 1);
        (void)fflush(stdout);
        for (text[0] = 0; !strstr(text, "  1.0 s"); text[used += (size_t)n] = 0)
                if ((n = read(master, text + used, sizeof(text) - 1 - used)) <= 0)
                        break;
        /* A terminal that cannot be drawn over counts as none. */
        assert_true(screen.terminal);
        demo_screen_begin(&screen, &row);
        (void)fflush(stdout);
        assert_true(dup2(before, STDOUT_FILENO) >= 0);
        (void)close(before);
        (void)close(slave);
        assert_false(screen.terminal);
        line = strstr(text, "\033[K");
        assert_non_null(line);
        for (unsigned lines = 0; line; line = strstr(line, "\033[K"), lines++) {
                line += 3;
                assert_true(strcspn(line, "\r\n") <= 19);
                if (lines == 0)
                        assert_int_equal(strcspn(line, "\r\n"), 19);
        }
        (void)close(master);
}

static struct demo_result done(const char *a, const char *b)
{
        struct demo_result r = {.seconds = 1.5, .to_card = MIB, .to_host = 2 * MIB};

        r.jobs[0].outcome = a ? DEMO_COMPLETED : DEMO_NO_MEMORY;
        r.jobs[1].outcome = b ? DEMO_COMPLETED : DEMO_NO_MEMORY;
        (void)snprintf(r.jobs[0].digest, sizeof(r.jobs[0].digest), "%s", a ? a : "");
        (void)snprintf(r.jobs[1].digest, sizeof(r.jobs[1].digest), "%s", b ? b : "");
        return r;
}

static void results_are_the_same_if_all_common_digests_are(void **state)
{
        struct demo_result whole = done("x", "y"), one = done("x", NULL), none = done(NULL, NULL),
                           other = done("x", "z"), swapped = done("y", "x"), wrong = done("x", "y");

        assert_true(demo_same_results(&whole, &whole));
        assert_true(demo_same_results(&one, &whole));
        assert_true(demo_same_results(&whole, &one));
        assert_false(demo_same_results(&none, &whole)); /* there is no common digest */
        assert_false(demo_same_results(&whole, &none));
        assert_false(demo_same_results(&other, &whole));
        assert_false(demo_same_results(&swapped, &whole));
        wrong.jobs[1].mismatches = 1;
        assert_false(demo_same_results(&wrong, &whole));
        assert_false(demo_same_results(&whole, &wrong));
}

static void the_table_has_a_line_of_80_columns_for_each_row(void **state)
{
        const struct demo_row rows[] = {{.title = "reference"},
                                        {.title = "plain"},
                                        {.title = "sublet, daemon killed", .shared = 1},
                                        {.title = "wrong", .shared = 1}};
        struct demo_result results[] = {done("x", "y"), done("x", NULL), done("x", "y"),
                                        done("q", "y")};
        char *text;

        results[2].seconds = 123.5;
        results[2].to_card = 999 * MIB;
        results[2].counted_by_clients = 1;
        results[3].to_card = DEMO_UNKNOWN;
        cli_bench_catch();
        demo_print_table(rows, results, ARRAY_SIZE(rows));
        text = cli_bench_caught();
        has(text, "                       A          B                time       moved  results\n"
                  "reference              completed  completed       1.5 s           -  reference\n"
                  "plain                  completed  out of memory   1.5 s           -  "
                  "incomplete\n"
                  "sublet, daemon killed  completed  completed     123.5 s >= 1001 MiB  "
                  "identical\n"
                  "wrong                  completed  completed       1.5 s         N/A  "
                  "DIFFERENT\n");
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
                assert_true(strcspn(line, "\n") <= 80);
        has(text, "as both programs had reported");
        free(text);
        cli_bench_catch();
        demo_print_table(rows, results, 2);
        text = cli_bench_caught();
        assert_null(strstr(text, "reported"));
        free(text);
}

#define VIEW_TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                VIEW_TEST(without_a_terminal_a_line_is_printed_at_intervals),
                VIEW_TEST(the_picture_shows_which_program_holds_the_cards_memory),
                VIEW_TEST(without_sublet_the_bar_shows_the_total_use_of_the_card),
                VIEW_TEST(a_line_is_cut_at_the_width_of_the_terminal),
                VIEW_TEST(results_are_the_same_if_all_common_digests_are),
                VIEW_TEST(the_table_has_a_line_of_80_columns_for_each_row),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
