/* command_trace.c: sublet trace. Must never change anything but the file that it writes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/trace/trace_view.h"

struct request {
        struct target target;
        uint64_t last_ns;
};

const struct option_row trace_options[] = {
        TARGET_OPTION_ROWS(offsetof(struct request, target)),
        {"last", "DURATION", "leave out what is older, such as 5min", options_set_duration,
         offsetof(struct request, last_ns), .form = "a duration such as 5min"},
        {0},
};

static uint64_t number(const json_t *answer, const char *field)
{
        const json_int_t n = json_integer_value(json_object_get(answer, field));

        return n > 0 ? (uint64_t)n : 0;
}

/* Finds the arrays in the answer. False: they are not what this release knows. */
static bool find_arrays(const json_t *answer, const void *bytes, struct trace_input *ret)
{
        const uint64_t programs = number(answer, "programs"), records = number(answer, "records");

        if (number(answer, "schema") != HISTORY_SCHEMA || programs > HISTORY_PROGRAMS ||
            records > HISTORY_RECORDS ||
            programs * sizeof(*ret->programs) + records * sizeof(*ret->records) !=
                    number(answer, "bytes"))
                return false;
        ret->programs = bytes;
        ret->n_programs = programs;
        ret->records = (const void *)(ret->programs + programs);
        ret->n_records = records;
        ret->now_ns = number(answer, "now_ns");
        return true;
}

static int write_json(const struct trace_view *v, const char *path)
{
        const bool to_stdout = strcmp(path, "-") == 0;
        FILE *out = to_stdout ? stdout : fopen(path, "we");
        json_t *trace;
        int r;

        if (!out)
                return cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
        trace = trace_json(v);
        r = trace ? json_dumpf(trace, out, JSON_COMPACT | JSON_REAL_PRECISION(15)) : -1;
        json_decref(trace);
        (void)putc('\n', out);
        if (to_stdout)
                return CLI_OK;
        if (fclose(out) != 0 || r < 0)
                return cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
        (void)printf("%s: open it in https://ui.perfetto.dev\n", path);
        return CLI_OK;
}

static int show(const struct request *q, const json_t *answer, const void *bytes, const char *path)
{
        struct trace_input in = {0};
        struct trace trace;
        const struct trace_view view = {&in, &trace, answer};
        const char *release;
        int r = CLI_OK;

        if (!find_arrays(answer, bytes, &in)) {
                release = json_string_value(json_object_get(answer, "version"));
                return cli_fail(CLI_FAILED,
                                "subletd is of another release (%s), not %s: restart it",
                                release ? release : "unknown", SUBLET_VERSION);
        }
        in.from_ns = q->last_ns ? sub_sat(in.now_ns, q->last_ns) : 0;
        if (trace_read(&in, &trace) < 0)
                return cli_fail(CLI_FAILED, "out of memory");
        if (trace.n == 0)
                r = cli_fail(CLI_FAILED, "no program has used a GPU in this time");
        else if (path)
                r = write_json(&view, path);
        else
                trace_print(&view, stdout);
        free(trace.events);
        return r;
}

int trace_main(const struct cli_command *self, int argc, char **argv)
{
        _cleanup_free_ void *bytes = NULL;
        struct request q = {0};
        json_t *answer;
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_WORDS, &q, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words > 1)
                return cli_fail(CLI_USAGE, "trace takes one file, not also '%s'", argv[1]);
        r = control_order_bytes(&q.target, json_pack("{ss}", "order", "trace"), &answer, &bytes);
        if (r != CLI_OK)
                return r;
        r = show(&q, answer, bytes, words ? argv[0] : NULL);
        json_decref(answer);
        return r;
}
