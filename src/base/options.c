/* options.c: owns the form of a command line and of its help. Must never act on an option. */
#include "base/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/shares.h"
#include "base/units.h"

static const struct option_row version = {"version", .help = "print the version"};
static const struct option_row help = {"help", .help = "print this"};

int options_fail(const struct options_table *t, const char *format, ...)
{
        char line[1024];
        va_list args;

        va_start(args, format);
        (void)vsnprintf(line, sizeof(line), format, args);
        va_end(args);
        if (t->fail)
                return t->fail(OPTIONS_EXIT_USAGE, "%s", line);
        (void)fprintf(stderr, "%s: %s\n", t->program, line);
        return OPTIONS_EXIT_USAGE;
}

int options_set_text(const struct option_row *row, void *field, const char *value)
{
        if (!*value)
                return -ENODATA;
        *(const char **)field = value;
        return 0;
}

int options_set_path(const struct option_row *row, void *field, const char *value)
{
        if (value[0] != '/' || strlen(value) > OPTIONS_PATH_MAX)
                return -EINVAL;
        *(const char **)field = value;
        return 0;
}

int options_set_true(const struct option_row *row, void *field, const char *value)
{
        *(bool *)field = true;
        return 0;
}

int options_set_count(const struct option_row *row, void *field, const char *value)
{
        uint64_t n;

        if (units_parse_count(value, &n) < 0 || n == 0 || n > row->parameter)
                return -EINVAL;
        *(unsigned *)field = (unsigned)n;
        return 0;
}

int options_set_number(const struct option_row *row, void *field, const char *value)
{
        return units_parse_count(value, field);
}

int options_set_duration(const struct option_row *row, void *field, const char *value)
{
        uint64_t ns;

        if (units_parse_duration(value, &ns) < 0 || ns == 0)
                return -EINVAL;
        *(uint64_t *)field = ns;
        return 0;
}

int options_set_seconds(const struct option_row *row, void *field, const char *value)
{
        uint64_t ns;

        if (options_set_duration(row, &ns, value) < 0)
                return -EINVAL;
        *(double *)field = (double)ns / (double)NSEC_PER_SEC;
        return 0;
}

int options_set_part(const struct option_row *row, void *field, const char *value)
{
        unsigned thousandths;

        if (shares_parse_part(value, 10, 990, &thousandths) < 0)
                return -EINVAL;
        *(double *)field = thousandths / 1000.0;
        return 0;
}

int options_set_word(const struct option_row *row, void *field, const char *value)
{
        for (unsigned i = 0; row->words[i]; i++)
                if (strcmp(row->words[i], value) == 0) {
                        *(unsigned *)field = i;
                        return 0;
                }
        return -EINVAL;
}

/* ---- rows ---- */

/* A row, and where its fields are. */
struct place {
        const struct option_row *row;     /* NULL: there are no more */
        const struct option_row *instead; /* the row whose set() is called; NULL: `row` */
        size_t at;
};

/* If the row ends a table, goes on to the table that its `more` names. */
static struct place settle(struct place p)
{
        while (p.row && !p.row->name) {
                if (p.row->set)
                        p.instead = p.row;
                p.at += p.row->at;
                p.row = p.row->more;
        }
        return p;
}

static struct place first(const struct option_row *rows)
{
        return settle((struct place){.row = rows});
}

static struct place next(struct place p)
{
        p.row++;
        return settle(p);
}

const struct option_row *options_row(const struct option_row *rows, unsigned index)
{
        struct place p = first(rows);

        while (p.row && index--)
                p = next(p);
        return p.row;
}

static bool is_called(const struct option_row *row, const char *name, size_t n)
{
        return strlen(row->name) == n && strncmp(name, row->name, n) == 0;
}

/* Finds the option of this name, which has n bytes without the dashes. */
static struct place find(const struct options_table *t, const char *name, size_t n, bool letter)
{
        struct place p = first(t->rows);

        while (p.row && (letter ? n != 1 || p.row->letter != *name : !is_called(p.row, name, n)))
                p = next(p);
        if (!p.row && (letter ? n == 1 && *name == 'h' : is_called(&help, name, n)))
                p.row = &help;
        else if (!p.row && !letter && !t->command && is_called(&version, name, n))
                p.row = &version;
        return p;
}

/* ---- reading ---- */

static int unknown(const struct options_table *t, const char *what, const char *arg)
{
        return options_fail(t, "unknown %s \"%.100s\": %s%s%s --help lists what there is", what,
                            arg, t->program, t->command ? " " : "", t->command ? t->command : "");
}

static int wrong_number(const struct options_table *t, const struct option_row *row)
{
        return options_fail(t, "--%s %s%s", row->name, row->argument ? "needs " : "takes no value",
                            row->argument ? row->argument : "");
}

static int set(const struct options_table *t, struct place p, void *options, const char *value,
               char *error, size_t size)
{
        const struct option_row *row = p.row;
        void *field = (char *)options + p.at + (p.instead ? 0 : row->at);
        int r;

        if (!row->set)
                return 0;
        (void)snprintf(error, size, "malformed value \"%.100s\"", value ? value : "");
        r = (p.instead ? p.instead : row)->set(row, field, value);
        if (r == -ENODATA)
                return wrong_number(t, row);
        if (r < 0 && row->form)
                return options_fail(t, "--%s is %s, not '%s'", row->name, row->form,
                                    value ? value : "");
        if (r < 0 && row->set == options_set_count)
                return options_fail(t, "--%s is a number from 1 to %u, not '%s'", row->name,
                                    row->parameter, value);
        return r < 0 ? options_fail(t, "--%s: %s", row->name, error) : r;
}

/* Reads the option at argv[*i], and moves *i behind it. */
static int read_option(const struct options_table *t, void *options, char *argv[], int *i,
                       char *error, size_t size)
{
        const char *arg = argv[(*i)++], *value = NULL;
        const bool is_long = arg[1] == '-';
        const char *name = arg + 1 + is_long;
        const size_t n = is_long ? strcspn(name, "=") : strlen(name);
        const struct place p = find(t, name, n, !is_long);

        if (!p.row)
                return unknown(t, "option", arg);
        if (name[n] == '=')
                value = name + n + 1;
        else if (p.row->argument && !p.row->optional)
                value = argv[*i] ? argv[(*i)++] : NULL;
        if (p.row->argument ? !value && !p.row->optional : value != NULL)
                return wrong_number(t, p.row);
        if (p.row == &help)
                t->print_help(t);
        else if (p.row == &version)
                (void)printf("%s " SUBLET_VERSION "\n", t->program);
        else
                return set(t, p, options, value, error, size);
        return OPTIONS_HELPED;
}

/* True if the argument is no option. A lone dash is none, nor is a dash before a digit (a negative
 * number). */
static bool is_word(const char *arg)
{
        return arg[0] != '-' || !arg[1] || (arg[1] >= '0' && arg[1] <= '9');
}

int options_parse(const struct options_table *t, void *options, int argc, char *argv[], char *error,
                  size_t size)
{
        int words = 0, i = 1, r = 0;

        for (struct place p = first(t->rows); p.row && r == 0; p = next(p))
                if (p.row->initial)
                        r = set(t, p, options, p.row->initial, error, size);
        while (i < argc && r == 0) {
                if (t->words != OPTIONS_NO_WORDS && strcmp(argv[i], "--") == 0) {
                        i++;
                        break;
                }
                if (!is_word(argv[i]))
                        r = read_option(t, options, argv, &i, error, size);
                else if (t->words == OPTIONS_NO_WORDS)
                        r = unknown(t, "argument", argv[i]);
                else if (t->words == OPTIONS_COMMAND)
                        break;
                else
                        argv[words++] = argv[i++];
        }
        if (r || t->words == OPTIONS_NO_WORDS)
                return r;
        while (i < argc)
                argv[words++] = argv[i++];
        argv[words] = NULL;
        return 0;
}

/* ---- help ---- */

static void print_row(const struct option_row *row, int width)
{
        const char *text = row->help, *end;
        char left[40];

        (void)snprintf(left, sizeof(left), "--%s%s%s", row->name, row->argument ? " " : "",
                       row->argument ? row->argument : "");
        while ((end = strchr(text, '\n'))) {
                (void)printf("  %-*s %.*s\n", width, left, (int)(end - text), text);
                left[0] = '\0';
                text = end + 1;
        }
        (void)printf("  %-*s %s", width, left, text);
        if (row->initial && strlen(row->initial) + strlen(text) > 60)
                (void)printf("\n  %-*s (%s)\n", width, "", row->initial);
        else if (row->initial)
                (void)printf(" (%s)\n", row->initial);
        else
                (void)printf("\n");
}

void options_print(const struct options_table *t)
{
        for (struct place p = first(t->rows); p.row; p = next(p))
                print_row(p.row, t->width);
        print_row(&version, t->width);
        print_row(&help, t->width);
}
