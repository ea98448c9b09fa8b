/* command.c: owns what the subcommands share: options, messages, job files and the model. Must
 * never predict. */
#include "pairing/commands.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/program_name.h"
#include "base/standard.h"
#include "base/text.h"
#include "base/units.h"

int command_fail(int status, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        standard_say("sublet", format, args);
        va_end(args);
        return status;
}

static void print_help(const struct options_table *t)
{
        (void)printf("see sublet help %s\n", t->command);
}

int command_options(const char *command, int argc, char **argv, const struct option_row *rows,
                    void *options, int *ret_words)
{
        const struct options_table t = {.program = "sublet",
                                        .rows = rows,
                                        .print_help = print_help,
                                        .command = command,
                                        .words = OPTIONS_WORDS,
                                        .fail = command_fail};
        char error[160];
        const int r = options_parse(&t, options, argc, argv, error, sizeof(error));

        if (r == 0)
                for (*ret_words = 0; argv[*ret_words]; (*ret_words)++)
                        ;
        return r;
}

int command_set_size(const struct option_row *row, void *field, const char *value)
{
        uint64_t bytes;

        if (units_parse_size(value, &bytes) < 0 || bytes == 0)
                return -EINVAL;
        *(double *)field = (double)bytes;
        return 0;
}

int command_set_rate(const struct option_row *row, void *field, const char *value)
{
        uint64_t rate;

        if (units_parse_rate(value, &rate) < 0 || rate == 0)
                return -EINVAL;
        *(double *)field = (double)rate;
        return 0;
}

/* ---- input ---- */

static int read_jobs(struct command_input *in, char **paths, size_t n)
{
        in->jobs = calloc(n + 1, sizeof(*in->jobs));
        if (!in->jobs)
                return command_fail(STATUS_FAILED, "no memory for %zu jobs", n);
        for (size_t i = 0; i < n; i++) {
                char error[JOB_ERROR_MAX];

                if (job_read(paths[i], &in->jobs[i], error) < 0)
                        return command_fail(STATUS_FAILED, "%s", error);
                in->n++;
        }
        return STATUS_OK;
}

/* ---- names ---- */

/* True if another file has a job of the same name, and `of` returns the same for both paths. of
 * NULL: names alone count. A file that is given twice is one job. */
static bool is_ambiguous(const struct command_input *in, char **paths, size_t i,
                         const char *(*of)(const char *path))
{
        for (size_t k = 0; k < in->n; k++)
                if (strcmp(in->jobs[k].name, in->jobs[i].name) == 0 &&
                    strcmp(paths[k], paths[i]) != 0 &&
                    (!of || strcmp(of(paths[k]), of(paths[i])) == 0))
                        return true;
        return false;
}

/* Jobs of one script have the same name. Output has to tell them apart, so their files are added to
 * the names. */
static int tell_apart(struct command_input *in, char **paths)
{
        char(*names)[JOB_NAME_MAX] = calloc(in->n + 1, sizeof(*names));

        if (!names)
                return command_fail(STATUS_FAILED, "no memory for %zu jobs", in->n);
        for (size_t i = 0; i < in->n; i++) {
                const char *name = in->jobs[i].name, *file = paths[i];
                char label[2 * JOB_NAME_MAX];
                size_t rest, most;

                (void)strcpy(names[i], name);
                if (!is_ambiguous(in, paths, i, NULL))
                        continue;
                if (!is_ambiguous(in, paths, i, name_of_path))
                        file = name_of_path(file);
                /* Long names and long paths mostly differ at their ends. */
                if (strlen(file) > JOB_NAME_MAX / 2)
                        file += strlen(file) - JOB_NAME_MAX / 2;
                rest = strlen(file) + strlen(" ()") + 1;
                most = text_fit(name, JOB_NAME_MAX - rest);
                (void)snprintf(label, sizeof(label), "%.*s (%s)", (int)most, name, file);
                (void)text_copy(names[i], JOB_NAME_MAX, label);
        }
        for (size_t i = 0; i < in->n; i++)
                (void)strcpy(in->jobs[i].name, names[i]);
        free(names);
        return STATUS_OK;
}

/* ---- the model ---- */

static const char *card_of(const struct command_input *in)
{
        for (size_t i = 0; i < in->n; i++)
                if (*in->jobs[i].measured.gpu)
                        return in->jobs[i].measured.gpu;
        return "";
}

/* Reads the model of the card. Without one, pairs past memory can still be predicted. */
static int read_model(struct command_input *in)
{
        char path[PATH_MAX] = "", error[MODEL_ERROR_MAX];

        if (!in->model_path) {
                if (!in->allowed[WAY_SLICED] && !in->allowed[WAY_SHARED])
                        return STATUS_OK;
                if (model_find(card_of(in), path, sizeof(path), in->no_model) < 0)
                        return STATUS_OK;
        }
        if (model_read(in->model_path ? in->model_path : path, &in->model, error) < 0)
                return command_fail(STATUS_FAILED, "%s", error);
        in->has_model = true;
        return STATUS_OK;
}

int command_open(struct command_input *in, char **paths, size_t n)
{
        char error[PAIRS_ERROR_MAX];
        int status = read_jobs(in, paths, n);

        if (status == STATUS_OK)
                status = tell_apart(in, paths);
        if (status == STATUS_OK)
                status = read_model(in);
        if (status == STATUS_OK &&
            pairs_open(in->jobs, in->n, in->has_model ? &in->model : NULL, in->capacity_bytes,
                       in->quantum_s, &in->pairs, error) < 0)
                status = command_fail(STATUS_FAILED, "%s", error);
        return status;
}

void command_close(struct command_input *in)
{
        pairs_close(&in->pairs);
        model_free(&in->model);
        for (size_t i = 0; i < in->n; i++)
                job_free(&in->jobs[i]);
        free(in->jobs);
}

int command_print_json(json_t *json)
{
        const int r = json ? json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : -1;

        json_decref(json);
        if (r < 0)
                return command_fail(STATUS_FAILED, "cannot write the answer");
        (void)putchar('\n');
        return STATUS_OK;
}
