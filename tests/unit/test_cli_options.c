/* test_cli_options.c: the parsing of command lines, and the messages about wrong ones. */
#include "unit.h"

#include "base/macros.h"
#include "cli_bench.h"

/* What is taken: each row's field. */
struct options {
        bool plain;
        struct inner {
                const char *plain, *sim;
        } inner;
        const char *name;
        unsigned count;
};

static struct {
        unsigned n;
        const struct option_row *row[8];
        const char *argument[8];
        int answer; /* result of set() for each option */
} taken;

static int take(const struct option_row *row, void *field, const char *value)
{
        taken.row[taken.n] = row;
        taken.argument[taken.n++] = value;
        if (row->argument)
                *(const char **)field = value;
        else
                *(bool *)field = true;
        return taken.answer;
}

static const struct option_row more[] = {
        {"plain", "WORD", "is never seen: an earlier row has the name", take,
         offsetof(struct inner, plain)},
        {"sim", "a=1,b=2,c=3", "may take settings", take, offsetof(struct inner, sim),
         .optional = true},
        {0},
};
static const struct option_row rows[] = {
        {"plain", NULL, "takes nothing", take, offsetof(struct options, plain), .letter = 'p'},
        {"name", "NAME", "takes a name", take, offsetof(struct options, name), .letter = 'n'},
        {.more = more, .at = offsetof(struct options, inner)},
};
static const struct cli_command command = {"try", NULL, "[options]", "tries", rows};
static struct options options;

static int begin(void **state)
{
        memset(&taken, 0, sizeof(taken));
        memset(&options, 0, sizeof(options));
        return cli_bench_begin(state);
}

static char *line[16];
static int words;

/* Parses a command line. said: the words after the command's own name, up to NULL. */
static int parse(enum options_words how, const char *const *said)
{
        int argc = 1;

        line[0] = (char *)"try";
        for (; said[argc - 1]; argc++)
                line[argc] = (char *)said[argc - 1];
        line[argc] = NULL;
        words = -1;
        return cli_parse(&command, argc, line, how, &options, &words);
}
#define PARSE(how, ...) parse(how, (const char *const[]){__VA_ARGS__, NULL})

static void options_are_taken_in_order_and_words_are_left(void **state)
{
        assert_int_equal(PARSE(OPTIONS_WORDS, "--name", "a", "one", "--plain", "two", "--name=b=c",
                               "--sim", "--sim=x", "three"),
                         CLI_OK);
        assert_int_equal(taken.n, 5);
        assert_ptr_equal(taken.row[0], &rows[1]);
        assert_string_equal(taken.argument[0], "a");
        assert_ptr_equal(taken.row[1], &rows[0]);
        assert_null(taken.argument[1]);
        assert_string_equal(taken.argument[2], "b=c");
        assert_ptr_equal(taken.row[3], &more[1]);
        assert_null(taken.argument[3]); /* an optional argument comes only after '=' */
        assert_string_equal(taken.argument[4], "x");
        assert_true(options.plain);
        assert_string_equal(options.name, "b=c");
        assert_string_equal(options.inner.sim, "x");
        assert_null(options.inner.plain);
        assert_int_equal(words, 3);
        assert_string_equal(line[0], "one");
        assert_string_equal(line[1], "two");
        assert_string_equal(line[2], "three");
        assert_null(line[3]);
}

static void options_alone_leave_no_words(void **state)
{
        assert_int_equal(parse(OPTIONS_WORDS, (const char *const[]){NULL}), CLI_OK);
        assert_int_equal(words, 0);
        assert_null(line[0]);
        assert_int_equal(PARSE(OPTIONS_COMMAND, "--plain"), CLI_OK);
        assert_int_equal(words, 0);
        assert_null(line[0]);
}

static void a_letter_stands_for_its_option(void **state)
{
        assert_int_equal(PARSE(OPTIONS_WORDS, "-p", "-n", "x", "word"), CLI_OK);
        assert_int_equal(taken.n, 2);
        assert_int_equal(words, 1);
        assert_null(taken.argument[0]);
        assert_string_equal(taken.argument[1], "x");
}

static void two_dashes_end_the_options(void **state)
{
        assert_int_equal(PARSE(OPTIONS_WORDS, "--plain", "--", "--plain", "--", "-x"), CLI_OK);
        assert_int_equal(taken.n, 1);
        assert_int_equal(words, 3);
        assert_string_equal(line[0], "--plain");
        assert_string_equal(line[1], "--");
        assert_string_equal(line[2], "-x");
        assert_int_equal(PARSE(OPTIONS_COMMAND, "--", "--plain"), CLI_OK);
        assert_int_equal(words, 1);
        assert_string_equal(line[0], "--plain");
}

static void the_first_word_ends_the_options_where_a_command_follows(void **state)
{
        assert_int_equal(PARSE(OPTIONS_COMMAND, "--plain", "python", "--plain", "--nonsense"),
                         CLI_OK);
        assert_int_equal(taken.n, 1);
        assert_int_equal(words, 3);
        assert_string_equal(line[0], "python");
        assert_string_equal(line[2], "--nonsense");
}

static void a_dash_and_negative_numbers_are_words(void **state)
{
        assert_int_equal(PARSE(OPTIONS_WORDS, "-", "-0", "-9x", "--plain"), CLI_OK);
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
                {{"--nonsense"}, "unknown option \"--nonsense\": sublet try --help"},
                {{"-x"}, "unknown option \"-x\": sublet try --help"},
                {{"-pp"}, "unknown option \"-pp\": sublet try --help"},
                {{"-n"}, "--name needs NAME"},
                {{"-/"}, "unknown option \"-/\": sublet try --help"},
                {{"-:"}, "unknown option \"-:\": sublet try --help"},
                {{"--nam", "a"}, "unknown option \"--nam\": sublet try --help"},
                {{"--names", "a"}, "unknown option \"--names\": sublet try --help"},
                {{"--plain=1"}, "--plain takes no value"},
                {{"--plain="}, "--plain takes no value"},
                {{"--name"}, "--name needs NAME"},
                {{"--", "--plain"}, NULL},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                int r = parse(OPTIONS_WORDS, cases[i].said);

                assert_int_equal(r, cases[i].names ? CLI_USAGE : CLI_OK);
                if (cases[i].names && !strstr(cli_bench.said, cases[i].names))
                        fail_msg("%s: %s", cases[i].said[0], cli_bench.said);
                assert_int_equal(taken.n, 0);
        }
        assert_int_equal(cli_bench.failures, ARRAY_SIZE(cases) - 1);
}

static void an_empty_argument_is_an_argument(void **state)
{
        assert_int_equal(PARSE(OPTIONS_WORDS, "--name", "", "--name=", "--sim="), CLI_OK);
        assert_int_equal(taken.n, 3);
        for (unsigned i = 0; i < 3; i++)
                assert_string_equal(taken.argument[i], "");
}

static void a_refused_option_ends_the_parsing(void **state)
{
        taken.answer = CLI_FAILED;
        assert_int_equal(PARSE(OPTIONS_WORDS, "--plain", "--name", "a"), CLI_FAILED);
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
                r = PARSE(OPTIONS_WORDS, asked[i], "--nonsense");
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

        assert_int_equal(cli_parse(&bare, 2, argv, OPTIONS_WORDS, NULL, &words), CLI_USAGE);
        cli_bench_catch();
        cli_print_help(&bare);
        text = cli_bench_caught();
        assert_string_equal(text, "usage: sublet bare \nis bare\n");
        free(text);
}

static void a_word_is_refused_where_there_are_only_options(void **state)
{
        assert_int_equal(PARSE(OPTIONS_NO_WORDS, "--plain", "word"), CLI_USAGE);
        assert_non_null(strstr(cli_bench.said, "unknown argument \"word\": sublet try --help"));
        assert_int_equal(PARSE(OPTIONS_NO_WORDS, "--plain"), CLI_OK);
}

static void values_are_checked_and_the_sentence_says_what_they_must_be(void **state)
{
        static const struct option_row valued[] = {
                {"n", "N", "a count", options_set_count, 0, .parameter = 3},
                {"t", "TIME", "a time", options_set_duration, 8, .form = "a time such as 2s"},
                {"s", "TIME", "a time", options_set_seconds, 16, "3s", "a time such as 2s"},
                {"f", "FILE", "a file", options_set_text, 24},
                {0},
        };
        static const struct cli_command values = {"try", NULL, "", "tries", valued};
        static const struct {
                const char *option, *value, *says; /* says NULL: the value is good */
        } cases[] = {
                {"--n", "3", NULL},
                {"--n", "0", "--n is a number from 1 to 3, not '0'"},
                {"--n", "4", "--n is a number from 1 to 3, not '4'"},
                {"--n", "1x", "--n is a number from 1 to 3, not '1x'"},
                {"--t", "5ms", NULL},
                {"--t", "0", "--t is a time such as 2s, not '0'"},
                {"--f", "", "--f needs FILE"},
                {"--f", "x", NULL},
        };
        struct {
                unsigned n;
                uint64_t ns;
                double s;
                const char *file;
        } got = {0};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char *argv[] = {(char *)"try", (char *)cases[i].option, (char *)cases[i].value,
                                NULL};

                assert_int_equal(cli_parse(&values, 3, argv, OPTIONS_WORDS, &got, &words),
                                 cases[i].says ? CLI_USAGE : CLI_OK);
                if (cases[i].says)
                        assert_string_equal(cli_bench.said, cases[i].says);
        }
        assert_int_equal(got.n, 3);
        assert_int_equal(got.ns, 5000000);
        assert_true(got.s > 2.99 && got.s < 3.01);
        assert_string_equal(got.file, "x");
}

/* A command that keeps another command's options sees each with the place of its own. */
static void a_row_may_take_the_options_of_its_more(void **state)
{
        static const struct option_row keeping[] = {
                {.set = take, .more = more, .at = offsetof(struct options, name)},
        };
        static const struct cli_command keeper = {"try", NULL, "", "tries", keeping};
        char *argv[] = {(char *)"try", (char *)"--sim=a=2", NULL};

        assert_int_equal(cli_parse(&keeper, 2, argv, OPTIONS_WORDS, &options, &words), CLI_OK);
        assert_ptr_equal(taken.row[0], &more[1]);
        assert_string_equal(options.name, "a=2");
        assert_null(options.inner.sim);
}

/* The left column has sixteen characters; a longer entry gets a line of its own. */
static void long_options_have_a_line_of_their_own(void **state)
{
        static const struct option_row edge[] = {
                {"twelve-ch", "DIR5", "fits"},
                {"twelve-of", "DIR56", "does not"},
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
                OPTIONS_TEST(a_word_is_refused_where_there_are_only_options),
                OPTIONS_TEST(values_are_checked_and_the_sentence_says_what_they_must_be),
                OPTIONS_TEST(a_row_may_take_the_options_of_its_more),
                OPTIONS_TEST(long_options_have_a_line_of_their_own),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
