/* status_jobs.c: owns the layout of the queue of jobs. Must never show a figure that the daemon did
 * not report. */
#include "client/status/status_jobs.h"

#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/figures/columns.h"
#include "client/figures/figures.h"

static const struct column {
        const char *title, *field;
        enum figure kind;
} columns[] = {
        {"JOB", "id", FIGURE_COUNT},           {"USER", "user", FIGURE_TEXT},
        {"NAME", "name", FIGURE_TEXT},         {"STATE", "state", FIGURE_TEXT},
        {"FOR", "since_s", FIGURE_SECONDS},    {"GPU", "gpu", FIGURE_COUNT},
        {"BESIDE", "beside", FIGURE_COUNT},    {"WAY", "way", FIGURE_TEXT},
        {"BOUND", "bound", FIGURE_TEXT},       {"PREDICTED", "predicted", FIGURE_TEXT},
        {"OBSERVED", "observed", FIGURE_TEXT},
};

/* Writes a cell. A progress is a fraction, for which there is no kind of figure. */
static void put(const json_t *job, const struct column *c, char cell[static FIGURE_MAX])
{
        const json_t *value = json_object_get(job, c->field);

        if (c->kind == FIGURE_TEXT && json_is_number(value))
                (void)snprintf(cell, FIGURE_MAX, "%.2f", json_number_value(value));
        else if (json_is_null(value))
                (void)snprintf(cell, FIGURE_MAX, "-");
        else
                figure_put(value, c->kind, cell);
}

void status_jobs_print(const json_t *status, FILE *out)
{
        const json_t *jobs = json_object_get(status, "jobs"), *job;
        int widths[ARRAY_SIZE(columns)];
        char cell[FIGURE_MAX];
        size_t k;

        if (json_array_size(jobs) == 0)
                return;
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
                widths[i] = (int)strlen(columns[i].title);
                json_array_foreach (jobs, k, job) {
                        put(job, &columns[i], cell);
                        widths[i] = MAX(widths[i], columns_of(cell));
                }
        }
        (void)fprintf(out, "\nJobs of sublet submit\n");
        for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
                (void)fprintf(out, "  %-*s", i + 1 < ARRAY_SIZE(columns) ? widths[i] : 0,
                              columns[i].title);
        (void)fputc('\n', out);
        json_array_foreach (jobs, k, job) {
                for (size_t i = 0; i < ARRAY_SIZE(columns); i++) {
                        put(job, &columns[i], cell);
                        (void)fprintf(
                                out, "  %s%*s", cell,
                                i + 1 < ARRAY_SIZE(columns) ? widths[i] - columns_of(cell) : 0, "");
                }
                (void)fputc('\n', out);
        }
}
