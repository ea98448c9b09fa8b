/* bench_table.c: owns the result as text and as JSON. Must never decide anything. */
#include "lab/bench/bench.h"

#include <string.h>

#include "base/macros.h"
#include "base/units.h"

static const char *const verdicts[] = {[BENCH_REFERENCE] = "reference",
                                       [BENCH_EQUAL] = "equal",
                                       [BENCH_CHECKED] = "right",
                                       [BENCH_DIFFERENT] = "DIFFERENT"};

void bench_describe(const struct bench_setting *s, char buf[static BENCH_LINE_MAX])
{
        char capacity[UNITS_TEXT_MAX], card[UNITS_TEXT_MAX];

        units_format_size(s->capacity, capacity);
        units_format_size(s->card_bytes, card);
        (void)snprintf(buf, BENCH_LINE_MAX, "%s%s, %s%s%s; driver %s; sublet %s; %s; seed %llu",
                       s->simulated ? "SIMULATED, no GPU's speed: " : "", s->card,
                       s->capacity < s->card_bytes ? capacity : card,
                       s->capacity < s->card_bytes ? " used of " : "",
                       s->capacity < s->card_bytes ? card : "", s->driver, SUBLET_VERSION,
                       s->torch ? "PyTorch" : "driver API", (unsigned long long)s->seed);
}

void bench_group_text(const struct bench_setting *s, const struct bench_row *row,
                      char buf[static BENCH_TEXT_MAX])
{
        char size[UNITS_TEXT_MAX];

        (void)snprintf(buf, BENCH_TEXT_MAX, "%s: %s, %u of %s", row->mix->name, row->role->name,
                       bench_role_programs(row->role, s->jobs),
                       s->torch && row->role->server
                               ? s->decoder
                               : units_format_size(bench_role_bytes(row->role, s->capacity), size));
}

static const char *size_text(uint64_t bytes, char buf[static UNITS_TEXT_MAX])
{
        return bytes == BENCH_UNKNOWN ? "-" : units_format_size(bytes, buf);
}

/* Returns what the second column of a group of rows shows. */
static const char *second_head(const struct bench_row *rows, size_t n, const struct bench_row *row)
{
        const struct bench_row *than = bench_compared_with(rows, n, row);

        if (row->role->figure == BENCH_DELAY)
                return "first, longest";
        return !than ? "" : than->way == BENCH_SERIAL ? "of serial" : "of alone";
}

static void print_row(FILE *out, const struct bench_row *rows, size_t n,
                      const struct bench_row *row)
{
        char way[BENCH_TEXT_MAX], time[32] = "", second[48] = "", handoffs[24] = "-", moved[72];
        char waiting[16] = "-";
        char from[UNITS_TEXT_MAX], to[UNITS_TEXT_MAX];
        const double seconds = bench_median(row->seconds, row->n);
        const double waited = bench_median(row->waiting, row->n);
        const uint64_t count = bench_median_count(row->handoffs, row->n);
        const struct bench_row *than = bench_compared_with(rows, n, row);

        bench_way_text(row, way);
        if (row->state != BENCH_MEASURED) {
                (void)fprintf(out, "  %-25s %s%s\n", way,
                              row->state == BENCH_FAILED ? "FAILED: " : "", row->note);
                return;
        }
        (void)snprintf(time, sizeof(time), "%.*f s", seconds < 10 ? 2 : 1, seconds);
        if (row->role->figure == BENCH_DELAY)
                (void)snprintf(second, sizeof(second), "%.2f, %.2f s",
                               bench_longest(row->first, row->n),
                               bench_longest(row->longest, row->n));
        else if (than)
                (void)snprintf(second, sizeof(second), "%.2f",
                               seconds / bench_median(than->seconds, than->n));
        if (count != BENCH_UNKNOWN)
                (void)snprintf(handoffs, sizeof(handoffs), "%llu", (unsigned long long)count);
        if (waited >= 0)
                (void)snprintf(waiting, sizeof(waiting), "%.0f %%", 100 * waited);
        (void)snprintf(moved, sizeof(moved), "%s / %s",
                       size_text(bench_median_count(row->moved_out, row->n), from),
                       size_text(bench_median_count(row->moved_in, row->n), to));
        (void)fprintf(out, "  %-25s %8s %15s %9s %8s  %-21s %s\n", way, time, second, handoffs,
                      waiting, moved, verdicts[row->verdict]);
}

void bench_print_table(FILE *out, const struct bench_setting *setting, const struct bench_row *rows,
                       size_t n)
{
        char line[BENCH_LINE_MAX], group[BENCH_TEXT_MAX];

        bench_describe(setting, line);
        (void)fprintf(out, "%s\n", line);
        for (size_t i = 0; i < n; i++) {
                if (bench_begins_group(rows, i)) {
                        const bool median =
                                setting->repeat > 1 || rows[i].role->figure == BENCH_DELAY;

                        bench_group_text(setting, &rows[i], group);
                        (void)fprintf(out, "\n%s\n  %-25s %8s %15s %9s %8s  %-21s %s\n", group, "",
                                      median ? "median" : "time", second_head(rows, n, &rows[i]),
                                      "hand-offs", "waiting", "moved out / in", "results");
                }
                print_row(out, rows, n, &rows[i]);
        }
}

static json_t *count_json(uint64_t count)
{
        return count == BENCH_UNKNOWN ? json_null() : json_integer((json_int_t)count);
}

static json_t *row_json(const struct bench_setting *setting, const struct bench_row *row)
{
        static const char *const ways[] = {[BENCH_ALONE] = "alone",
                                           [BENCH_SERIAL] = "serial",
                                           [BENCH_ALONE_SUBLET] = "alone_sublet",
                                           [BENCH_PLAIN] = "plain",
                                           [BENCH_MANAGED] = "managed",
                                           [BENCH_SUBLET] = "sublet"};
        static const char *const states[] = {[BENCH_MEASURED] = "measured",
                                             [BENCH_LEFT_OUT] = "left out",
                                             [BENCH_FAILED] = "failed"};
        json_t *seconds = json_array(), *first = json_array(), *longest = json_array(),
               *waiting = json_array(), *json;
        const bool measured = row->state == BENCH_MEASURED && row->n > 0;

        for (unsigned i = 0; i < row->n; i++) {
                (void)json_array_append_new(seconds, json_real(row->seconds[i]));
                if (row->waiting[i] >= 0)
                        (void)json_array_append_new(waiting, json_real(row->waiting[i]));
                if (row->role->figure != BENCH_DELAY)
                        continue;
                (void)json_array_append_new(first, json_real(row->first[i]));
                (void)json_array_append_new(longest, json_real(row->longest[i]));
        }
        json = json_pack(
                "{ss ss si sI ss ss? ss ss so so so}", "mix", row->mix->name, "what",
                row->role->name, "programs", (int)bench_role_programs(row->role, setting->jobs),
                "bytes_each", (json_int_t)bench_role_bytes(row->role, setting->capacity), "way",
                ways[row->way], "quantum", row->quantum, "state", states[row->state], "note",
                row->note, "seconds", seconds, "first_s", first, "longest_s", longest);
        if (!json)
                return NULL;
        (void)json_object_set_new(json, "median_s",
                                  measured ? json_real(bench_median(row->seconds, row->n))
                                           : json_null());
        (void)json_object_set_new(json, "waiting", waiting);
        (void)json_object_set_new(json, "moved_out",
                                  count_json(bench_median_count(row->moved_out, row->n)));
        (void)json_object_set_new(json, "moved_in",
                                  count_json(bench_median_count(row->moved_in, row->n)));
        (void)json_object_set_new(json, "handoffs",
                                  count_json(bench_median_count(row->handoffs, row->n)));
        (void)json_object_set_new(json, "results",
                                  measured ? json_string(verdicts[row->verdict]) : json_null());
        return json;
}

json_t *bench_json(const struct bench_setting *s, const struct bench_row *rows, size_t n)
{
        json_t *quanta = json_array(), *list = json_array();

        for (unsigned q = 0; q < s->n_quanta; q++)
                (void)json_array_append_new(quanta, json_string(s->quanta[q]));
        for (size_t i = 0; i < n; i++)
                (void)json_array_append_new(list, row_json(s, &rows[i]));
        return json_pack(
                "{si ss ss sb s{ss sI ss ss sI} s{ss sI si sf si so sI ss} so}", "schema", 1,
                "time", s->time, "version", SUBLET_VERSION, "simulated", (int)s->simulated,
                "machine", "gpu", s->card, "gpu_memory", (json_int_t)s->card_bytes, "driver",
                s->driver, "host", s->machine, "host_memory", (json_int_t)s->host_bytes, "settings",
                "program", s->torch ? "torch" : "driver", "capacity", (json_int_t)s->capacity,
                "jobs", (int)s->jobs, "duration_s", s->duration, "repeat", (int)s->repeat, "quanta",
                quanta, "seed", (json_int_t)s->seed, "decoder", s->decoder, "rows", list);
}
