/* options.c: owns the form of a program's command line and of its help. Must never act on an
 * option. */
#include "base/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct option_row version = {"version", NULL, "print the version", NULL, 0, NULL};
static const struct option_row help = {"help", NULL, "print this", NULL, 0, NULL};

int options_fail(const struct options_table *t, const char *format, ...)
{
        va_list args;

        (void)fprintf(stderr, "%s: ", t->program);
        va_start(args, format);
        (void)vfprintf(stderr, format, args);
        va_end(args);
        (void)fputc('\n', stderr);
        return OPTIONS_EXIT_USAGE;
}

int options_set_text(void *field, const char *value)
{
        *(const char **)field = value;
        return *value ? 0 : -ENODATA;
}

int options_set_path(void *field, const char *value)
{
        if (value[0] != '/' || strlen(value) > OPTIONS_PATH_MAX)
                return -EINVAL;
        *(const char **)field = value;
        return 0;
}

int options_set_true(void *field, const char *value)
{
        *(bool *)field = true;
        return 0;
}

static bool is_row(const struct option_row *row, const char *arg, size_t n)
{
        return n > 2 && strncmp(arg, "--", 2) == 0 && strlen(row->name) == n - 2 &&
               strncmp(arg + 2, row->name, n - 2) == 0;
}

static const struct option_row *find_row(const struct options_table *t, const char *arg, size_t n)
{
        for (size_t i = 0; i < t->n; i++)
                if (is_row(&t->rows[i], arg, n))
                        return &t->rows[i];
        return is_row(&version, arg, n) ? &version : is_row(&help, arg, n) ? &help : NULL;
}

static int wrong_number(const struct options_table *t, const struct option_row *row)
{
        return options_fail(t, "--%s %s%s", row->name, row->argument ? "needs " : "takes no value",
                            row->argument ? row->argument : "");
}

static int set(const struct options_table *t, const struct option_row *row, void *options,
               const char *value, char *error, size_t size)
{
        int r;

        (void)snprintf(error, size, "malformed value \"%.100s\"", value ? value : "");
        r = row->set((char *)options + row->at, value);
        if (r == -ENODATA)
                return wrong_number(t, row);
        return r < 0 ? options_fail(t, "--%s: %s", row->name, error) : 0;
}

int options_parse(const struct options_table *t, void *options, int argc, char *argv[], char *error,
                  size_t size)
{
        bool wants_help = false, wants_version = false;
        int r = 0;

        for (size_t i = 0; i < t->n && r == 0; i++)
                if (t->rows[i].initial)
                        r = set(t, &t->rows[i], options, t->rows[i].initial, error, size);
        for (int i = 1; i < argc && r == 0; i++) {
                const char *arg = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i], *value = NULL;
                const size_t n = strcspn(arg, "=");
                const struct option_row *row = find_row(t, arg, n);

                if (!row)
                        return options_fail(t,
                                            "unknown %s \"%.100s\": %s --help lists what there is",
                                            arg[0] == '-' ? "option" : "argument", arg, t->program);
                if (arg[n] == '=')
                        value = arg + n + 1;
                else if (row->argument)
                        value = argv[++i]; /* NULL: the command line ends here */
                if (row->argument ? !value : value != NULL)
                        return wrong_number(t, row);
                if (row->set)
                        r = set(t, row, options, value, error, size);
                wants_help |= row == &help;
                wants_version |= row == &version;
        }
        if (r || (!wants_help && !wants_version))
                return r;
        if (wants_help)
                t->print_help(t);
        else
                (void)printf("%s " SUBLET_VERSION "\n", t->program);
        return OPTIONS_HELPED;
}

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
        for (size_t i = 0; i < t->n; i++)
                print_row(&t->rows[i], t->width);
        print_row(&version, t->width);
        print_row(&help, t->width);
}
