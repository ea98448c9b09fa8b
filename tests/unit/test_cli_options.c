/* test_cli_options.c: the parsing of command lines, and the messages about wrong ones. */
#include "unit.h"

#include "base/macros.h"
#include "cli_bench.h"

static const struct cli_option more[] = {
        [0] = {"plain", CLI_REQUIRED, "WORD", "is never seen: an earlier row has the name"},
        [1] = {"sim", CLI_OPTIONAL, "a=1,b=2,c=3", "may take settings"},
        {0},
};
static const struct cli_option options[] = {
        [0] = {"plain", CLI_NONE, NULL, "takes nothing", .letter = 'p'},
        [1] = {"name", CLI_REQUIRED, "NAME", "takes a name", .letter = 'n'},
        [2] = {.more = more},
};
static const struct cli_command command = {"try", NULL, "[options]", "tries", options};

static struct {
        unsigned n;
        int option[8];
        const char *argument[8];
        int answer; /* result of take() for each option */
} taken;

static int take(int option, const char *argument, void *userdata)
{
        assert_ptr_equal(userdata, &taken);
        taken.option[taken.n] = option;
        taken.argument[taken.n++] = argument;
        return taken.answer;
}

static int begin(void **state)
{
        memset(&taken, 0, sizeof(taken));
        return cli_bench_begin(state);
}

static char *line[16];
static int words;

/* Parses a command line. said: the words after the command's own name, up to NULL. */
static int parse(int stop_at_first, const char *const *said)
{
        int argc = 1;

        line[0] = (char *)"try";
        for (; said[argc - 1]; argc++)
                line[argc] = (char *)said[argc - 1];
        line[argc] = NULL;
        words = -1;
        return cli_parse(&command, argc, line, stop_at_first, take, &taken, &words);
}
#define PARSE(stop_at_first, ...) parse(stop_at_first, (const char *const[]){__VA_ARGS__, NULL})

static void options_are_taken_in_order_and_words_are_left(void **state)
{
        assert_int_equal(PARSE(0, "--name", "a", "one", "--plain", "two", "--name=b=c", "--sim",
                               "--sim=x", "three"),
                         CLI_OK);
        assert_int_equal(taken.n, 5);
        assert_int_equal(taken.option[0], 1);
        assert_string_equal(taken.argument[0], "a");
        assert_int_equal(taken.option[1], 0);
        assert_null(taken.argument[1]);
        assert_string_equal(taken.argument[2], "b=c");
        assert_int_equal(taken.option[3], 3); /* counted on from the first table */
        assert_null(taken.argument[3]);       /* an optional argument comes only after '=' */
        assert_string_equal(taken.argument[4], "x");
        assert_int_equal(words, 3);
        assert_string_equal(line[0], "one");
        assert_string_equal(line[1], "two");
        assert_string_equal(line[2], "three");
        assert_null(line[3]);
}

static void options_alone_leave_no_words(void **state)
{
        assert_int_equal(parse(0, (const char *const[]){NULL}), CLI_OK);
        assert_int_equal(words, 0);
        assert_null(line[0]);
        assert_int_equal(PARSE(1, "--plain"), CLI_OK);
        assert_int_equal(words, 0);
        assert_null(line[0]);
}

static void a_letter_stands_for_its_option(void **state)
{
        assert_int_equal(PARSE(0, "-p", "-n", "x", "word"), CLI_OK);
        assert_int_equal(taken.n, 2);
        assert_int_equal(words, 1);
        assert_null(taken.argument[0]);
        assert_string_equal(taken.argument[1], "x");
}

static void two_dashes_end_the_options(void **state)
{
        assert_int_equal(PARSE(0, "--plain", "--", "--plain", "--", "-x"), CLI_OK);
        assert_int_equal(taken.n, 1);
        assert_int_equal(words, 3);
        assert_string_equal(line[0], "--plain");
        assert_string_equal(line[1], "--");
        assert_string_equal(line[2], "-x");
        assert_int_equal(PARSE(1, "--", "--plain"), CLI_OK);
        assert_int_equal(words, 1);
        assert_string_equal(line[0], "--plain");
}

static void the_first_word_ends_the_options_where_a_command_follows(void **state)
{
        assert_int_equal(PARSE(1, "--plain", "python", "--plain", "--nonsense"), CLI_OK);
        assert_int_equal(taken.n, 1);
        assert_int_equal(words, 3);
        assert_string_equal(line[0], "python");
        assert_string_equal(line[2], "--nonsense");
}

static void a_dash_and_negative_numbers_are_words(void **state)
{
        assert_int_equal(PARSE(0, "-", "-0", "-9x", "--plain"), CLI_OK);
        assert_int_equal(taken.n, 1);
        assert_int_equal(words, 3);
        assert_string_equal(line[2], "-9x");
}

static void a_wrong_option_is_named_and_nothing_is_run(void **state)
{
        static const struct {
                const char *const said[3];
                const char *names;
        } cases[] = {
                {{"--nonsense"}, "'--nonsense'"},
                {{"-x"}, "'-x'"},
                {{"-pp"}, "'-pp'"},
                {{"-n"}, "--name needs an argument, NAME"},
                {{"-/"}, "'-/'"},
                {{"-:"}, "'-:'"},
                {{"--nam", "a"}, "'--nam'"},
                {{"--names", "a"}, "'--names'"},
                {{"--plain=1"}, "'1'"},
                {{"--plain="}, "--plain takes no argument"},
                {{"--name"}, "--name needs an argument, NAME"},
                {{"--", "--plain"}, NULL},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                int r = parse(0, cases[i].said);

                assert_int_equal(r, cases[i].names ? CLI_USAGE : CLI_OK);
                if (cases[i].names && !strstr(cli_bench.said, cases[i].names))
                        fail_msg("%s: %s", cases[i].said[0], cli_bench.said);
                assert_int_equal(taken.n, 0);
        }
        assert_int_equal(cli_bench.failures, ARRAY_SIZE(cases) - 1);
}

static void an_empty_argument_is_an_argument(void **state)
{
        assert_int_equal(PARSE(0, "--name", "", "--name=", "--sim="), CLI_OK);
        assert_int_equal(taken.n, 3);
        for (unsigned i = 0; i < 3; i++)
                assert_string_equal(taken.argument[i], "");
}

static void a_refused_option_ends_the_parsing(void **state)
{
        taken.answer = CLI_FAILED;
        assert_int_equal(PARSE(0, "--plain", "--name", "a"), CLI_FAILED);
        assert_int_equal(taken.n, 1);
        assert_int_equal(words, -1);
}

static void help_is_printed_and_is_no_failure(void **state)
{
        static const char expected[] = "usage: sublet try [options]\n"
                                       "tries\n"
                                       "\n"
                                       "  --plain, -p       takes nothing\n"
                                       "  --name, -n NAME   takes a name\n"
                                       "  --sim[=a=1,b=2,c=3]\n"
                                       "                    may take settings\n";
        static const char *const asked[] = {"--help", "-h"};

        for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
                char *text;
                int r;

                cli_bench_catch();
                r = PARSE(0, asked[i], "--nonsense");
                text = cli_bench_caught();
                assert_int_equal(r, -1);
                assert_int_equal(cli_parsed(r), CLI_OK);
                assert_string_equal(text, expected);
                free(text);
        }
        assert_int_equal(cli_parsed(CLI_USAGE), CLI_USAGE);
        assert_int_equal(cli_bench.failures, 0);
}

static void a_command_without_options_knows_none(void **state)
{
        static const struct cli_command bare = {"bare", NULL, "", "is bare", NULL};
        char *argv[] = {(char *)"bare", (char *)"--plain", NULL}, *text;

        assert_int_equal(cli_parse(&bare, 2, argv, 0, take, &taken, &words), CLI_USAGE);
        cli_bench_catch();
        cli_print_help(&bare);
        text = cli_bench_caught();
        assert_string_equal(text, "usage: sublet bare \nis bare\n");
        free(text);
}

/* The left column has sixteen characters; a longer entry gets a line of its own. */
static void long_options_have_a_line_of_their_own(void **state)
{
        static const struct cli_option edge[] = {
                [0] = {"twelve-ch", CLI_REQUIRED, "DIR5", "fits"},
                [1] = {"twelve-of", CLI_REQUIRED, "DIR56", "does not"},
                {0},
        };
        static const struct cli_command edges = {"edge", NULL, "X", "Y", edge};
        char *text;

        cli_bench_catch();
        cli_print_help(&edges);
        text = cli_bench_caught();
        assert_non_null(strstr(text, "  --twelve-ch DIR5  fits\n"));
        assert_non_null(strstr(text, "  --twelve-of DIR56\n                    does not\n"));
        free(text);
}

#define OPTIONS_TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                OPTIONS_TEST(options_are_taken_in_order_and_words_are_left),
                OPTIONS_TEST(options_alone_leave_no_words),
                OPTIONS_TEST(a_letter_stands_for_its_option),
                OPTIONS_TEST(two_dashes_end_the_options),
                OPTIONS_TEST(the_first_word_ends_the_options_where_a_command_follows),
                OPTIONS_TEST(a_dash_and_negative_numbers_are_words),
                OPTIONS_TEST(a_wrong_option_is_named_and_nothing_is_run),
                OPTIONS_TEST(an_empty_argument_is_an_argument),
                OPTIONS_TEST(a_refused_option_ends_the_parsing),
                OPTIONS_TEST(help_is_printed_and_is_no_failure),
                OPTIONS_TEST(a_command_without_options_knows_none),
                OPTIONS_TEST(long_options_have_a_line_of_their_own),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
