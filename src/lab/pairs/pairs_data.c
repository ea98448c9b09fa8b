/* pairs_data.c: owns the data file. Must never lose a line that an earlier run wrote. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/macros.h"
#include "base/units.h"
#include "lab/pairs/bench_pairs.h"

#define VERSION       2
#define LINE_MAX_SIZE (1U << 20)
#define DIGITS        6

int pairs_results_add(struct pairs_results *r, const struct pairs_result *result)
{
        if (r->n == r->room) {
                const size_t room = r->room ? 2 * r->room : 256;
                struct pairs_result *more = reallocarray(r->items, room, sizeof(*more));

                if (!more)
                        return -ENOMEM;
                r->items = more;
                r->room = room;
        }
        r->items[r->n++] = *result;
        return 0;
}

/* ---- reading ---- */

struct reading {
        const struct job *card;
        struct pairs_job *jobs;
        size_t n_jobs;
        struct pairs_results *results;
        bool begun, other_gpu, no_data;
};

static int find(const struct reading *r, const char *name)
{
        return name ? pairs_find_job(r->jobs, r->n_jobs, name) : -1;
}

/* Files of the first version have a number instead of a text. */
static void take_loops(const json_t *loops, char ret[static PAIRS_LOOPS_MAX])
{
        const char *text = json_string_value(loops);

        if (json_is_integer(loops))
                (void)snprintf(ret, PAIRS_LOOPS_MAX, "%lld", (long long)json_integer_value(loops));
        else if (text && text[strspn(text, "0123456789,")] == 0)
                (void)snprintf(ret, PAIRS_LOOPS_MAX, "%s", text);
}

static void take_job(struct reading *r, const json_t *line)
{
        const int i = find(r, text_at(json_object_get(line, "job"), "name"));

        if (i < 0)
                return;
        r->jobs[i].recorded = true;
        r->jobs[i].eager = json_is_true(json_object_get(line, "eager"));
        take_loops(json_object_get(line, "loops"), r->jobs[i].loops);
}

static void count_alone(struct pairs_alone *a, double rate)
{
        a->least = a->n ? MIN(a->least, rate) : rate;
        a->most = MAX(a->most, rate);
        a->sum += rate;
        a->n++;
}

static void take_alone(struct reading *r, const json_t *line)
{
        const int i = find(r, text_at(line, "alone"));
        const double rate = json_number_value(json_object_get(line, "rate"));

        if (i >= 0 && rate > 0)
                count_alone(&r->jobs[i].alone[strcmp(text_at(line, "way"), "shared") == 0], rate);
}

static void take_pair(struct reading *r, const json_t *line)
{
        const json_t *pair = json_object_get(line, "pair"),
                     *progress = json_object_get(line, "progress");
        const int a = find(r, json_string_value(json_array_get(pair, 0))),
                  b = find(r, json_string_value(json_array_get(pair, 1)));
        struct pairs_result result = {.a = (unsigned)a, .b = (unsigned)b};

        if (a < 0 || b < 0 || way_read(text_at(line, "way"), &result.way) < 0)
                return;
        for (unsigned i = 0; i < 2; i++)
                result.progress[i] = json_number_value(json_array_get(progress, i));
        (void)pairs_results_add(r->results, &result);
}

static void take_line(struct reading *r, const json_t *line)
{
        if (!r->begun) {
                r->no_data = json_integer_value(json_object_get(line, "sublet_pairs")) != VERSION;
                r->other_gpu = strcmp(text_at(line, "gpu"), r->card->measured.gpu) != 0;
                r->begun = true;
        } else if (json_object_get(line, "job")) {
                take_job(r, line);
        } else if (json_object_get(line, "pair")) {
                take_pair(r, line);
        } else if (json_object_get(line, "alone")) {
                take_alone(r, line);
        }
}

/* Reads all lines that are complete. Returns where the last one ends. */
static off_t read_lines(FILE *file, struct reading *r)
{
        _cleanup_free_ char *line = NULL;
        size_t room = 0;
        off_t end = 0;
        ssize_t n;

        while ((n = getline(&line, &room, file)) > 0 && line[n - 1] == '\n') {
                json_auto_t *json =
                        n < (ssize_t)LINE_MAX_SIZE ? json_loadb(line, (size_t)n, 0, NULL) : NULL;

                if (json_is_object(json))
                        take_line(r, json);
                else if (!r->begun)
                        r->begun = r->no_data = true;
                end += n;
        }
        return end;
}

int pairs_data_open(struct pairs_data *d, const char *path, const struct job *card,
                    struct pairs_job *jobs, size_t n_jobs, struct pairs_results *results)
{
        struct reading r = {.card = card, .jobs = jobs, .n_jobs = n_jobs, .results = results};
        off_t end;

        *d = (struct pairs_data){.path = path, .file = fopen(path, "a+e")};
        if (!d->file)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", path);
        rewind(d->file);
        end = read_lines(d->file, &r);
        if (r.no_data || (end == 0 && fgetc(d->file) != EOF))
                return cli_fail(CLI_USAGE, "%s is no data of pairs: name another file", path);
        if (r.other_gpu)
                return cli_fail(CLI_USAGE, "%s was measured on another GPU: name another file",
                                path);
        clearerr(d->file);
        if (ftruncate(fileno(d->file), end) < 0 || fseek(d->file, 0, SEEK_END) < 0)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", path);
        d->begun = r.begun;
        return CLI_OK;
}

/* ---- writing ---- */

/* Writes the line, and takes over its reference. It is in the file before the next measurement, so
 * an interrupted run keeps what it has measured. */
static int write_line(struct pairs_data *d, json_t *line)
{
        const int r =
                line ? json_dumpf(line, d->file, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS)) : -1;

        json_decref(line);
        if (r < 0)
                return cli_fail(CLI_FAILED, "out of memory");
        if (fputc('\n', d->file) == EOF || fflush(d->file) != 0)
                return cli_fail(CLI_FAILED, "cannot write %s: %m", d->path);
        return CLI_OK;
}

int pairs_data_begin(struct pairs_data *d, const struct job *card, double idle_w)
{
        char utc[UNITS_TEXT_MAX];
        json_t *line;

        if (d->begun)
                return CLI_OK;
        d->begun = true;
        line = json_pack("{si,ss,ss,si,ss,ss}", "sublet_pairs", VERSION, "gpu", card->measured.gpu,
                         "driver", card->measured.driver, "sms", (int)card->measured.sms, "time",
                         units_format_utc(time(NULL), utc), "sublet", SUBLET_VERSION);
        if (line && isfinite(idle_w))
                (void)json_object_set_new(line, "idle_w", json_real(idle_w));
        return write_line(d, line);
}

int pairs_data_job(struct pairs_data *d, const struct pairs_job *job, const struct job *measured)
{
        json_t *json = job_to_json(measured), *line;

        if (!json)
                return cli_fail(CLI_FAILED, "out of memory");
        line = json_pack("{so,ss,sb,ss,sf}", "job", json, "family", job->family, "synthetic",
                         !job->torch, "loops", job->loops, "rate", job->alone[0].rate);
        if (line && job->torch)
                (void)json_object_set_new(line, "eager", json_boolean(job->eager));
        return write_line(d, line);
}

int pairs_data_alone(struct pairs_data *d, struct pairs_job *job, bool shared, double rate)
{
        struct pairs_alone *a = &job->alone[shared];

        count_alone(a, rate);
        a->rate = rate;
        a->at_ns = clock_now_ns();
        return write_line(d, json_pack("{ss,ss,sf,sI}", "alone", job->name, "way",
                                       way_names[shared ? WAY_SHARED : WAY_SLICED], "rate", rate,
                                       "time", (json_int_t)time(NULL)));
}

int pairs_data_pair(struct pairs_data *d, const struct pairs_job *jobs,
                    const struct pairs_result *result, double seconds, json_int_t handoffs)
{
        json_t *line =
                json_pack("{s[ss],ss,s[ff],s[ff],s[ff],sf,sI}", "pair", jobs[result->a].name,
                          jobs[result->b].name, "way", way_names[result->way], "progress",
                          result->progress[0], result->progress[1], "rates", result->rates[0],
                          result->rates[1], "alone", result->alone[0], result->alone[1], "seconds",
                          seconds, "time", (json_int_t)time(NULL));

        if (line && handoffs > 0)
                (void)json_object_set_new(line, "handoffs", json_integer(handoffs));
        return write_line(d, line);
}

void pairs_data_close(struct pairs_data *d)
{
        if (d->file)
                (void)fclose(d->file);
        d->file = NULL;
}
