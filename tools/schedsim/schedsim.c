/* schedsim.c: runs the scheduler on a simulated workload: reads a workload file, prints the report.
 * Owns the command line; must never print anything but the report on stdout. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "model.h"

static const char usage[] =
        "usage: schedsim [OPTION...] WORKLOAD\n"
        "\n"
        "Runs the scheduler of subletd on a workload file (docs/scheduling.md), in simulated time, "
        "and prints\n"
        "makespan, hand-offs, bytes moved and how long clients waited. It is a model, not a "
        "measurement.\n"
        "\n"
        "  --as SYSTEM   who decides: sublet (default), fcfs (first come, first served) or turns\n"
        "                (exclusive turns of 30 s, page faults)\n"
        "  --trace FILE  adds the bursts of a CSV file, a line for each:\n"
        "                name,user,start_s,memory_GiB,burst_s,think_s\n"
        "  --clients     a line for each client, too\n"
        "  --bursts      a line of CSV for each burst, too\n"
        "  --check       every invariant of the scheduler after every event (slow)\n";

struct options {
        const char *workload, *trace, *as;
        bool clients, bursts, check, help;
};

/* Returns 0, or 2 after a sentence on stderr. */
static int parse(int argc, char **argv, struct options *ret)
{
        const struct {
                const char *name;
                bool *flag;
                const char **value;
        } options[] = {
                {"--as", NULL, &ret->as},           {"--trace", NULL, &ret->trace},
                {"--clients", &ret->clients, NULL}, {"--bursts", &ret->bursts, NULL},
                {"--check", &ret->check, NULL},     {"--help", &ret->help, NULL},
        };

        for (int i = 1; i < argc; i++) {
                size_t k = 0;

                while (k < ARRAY_SIZE(options) && strcmp(argv[i], options[k].name) != 0)
                        k++;
                if (k < ARRAY_SIZE(options) && options[k].flag) {
                        *options[k].flag = true;
                } else if (k < ARRAY_SIZE(options) && i + 1 < argc) {
                        *options[k].value = argv[++i];
                } else if (k < ARRAY_SIZE(options)) {
                        fprintf(stderr, "schedsim: '%s' needs a value\n", argv[i]);
                        return 2;
                } else if (argv[i][0] == '-' || ret->workload) {
                        fprintf(stderr, "schedsim: '%s' is not understood; --help tells more\n",
                                argv[i]);
                        return 2;
                } else {
                        ret->workload = argv[i];
                }
        }
        return 0;
}

static FILE *open_file(const char *path)
{
        FILE *f = fopen(path, "re");

        if (!f)
                fprintf(stderr, "schedsim: %s: %s\n", path, strerror(errno));
        return f;
}

/* Returns 0, or -1 after a sentence on stderr. */
static int read_files(const struct options *o, struct workload *ret)
{
        _cleanup_fclose_ FILE *f = open_file(o->workload);
        _cleanup_fclose_ FILE *trace = f && o->trace ? open_file(o->trace) : NULL;
        char error[256];

        if (!f || (o->trace && !trace))
                return -1;
        if ((o->trace ? workload_read_card : workload_read)(f, ret, error, sizeof(error)) < 0) {
                fprintf(stderr, "schedsim: %s: %s\n", o->workload, error);
                return -1;
        }
        if (trace && trace_read(trace, ret, error, sizeof(error)) < 0) {
                fprintf(stderr, "schedsim: %s: %s\n", o->trace, error);
                workload_free(ret);
                return -1;
        }
        return 0;
}

static int run_as(const struct options *o, const struct workload *w, struct model_result *ret)
{
        if (strcmp(o->as, "fcfs") == 0)
                return baseline_run(w, BASELINE_FCFS, ret);
        if (strcmp(o->as, "turns") == 0)
                return baseline_run(w, BASELINE_TURNS, ret);
        return model_run(w, o->check, ret);
}

int main(int argc, char **argv)
{
        struct options o = {.as = "sublet"};
        struct workload w;
        struct model_result r;
        int status = parse(argc, argv, &o);

        if (status)
                return status;
        if (o.help || !o.workload) {
                (void)fputs(usage, o.help ? stdout : stderr);
                return o.help ? 0 : 2;
        }
        if (strcmp(o.as, "sublet") != 0 && strcmp(o.as, "fcfs") != 0 &&
            strcmp(o.as, "turns") != 0) {
                fprintf(stderr, "schedsim: '%s' is no system: sublet, fcfs or turns\n", o.as);
                return 2;
        }
        if (read_files(&o, &w) < 0)
                return 1;
        if (run_as(&o, &w, &r) < 0) {
                fprintf(stderr, "schedsim: out of memory\n");
                workload_free(&w);
                return 1;
        }
        report_jobs(stdout, &w, &r);
        if (o.clients)
                report_clients(stdout, &r);
        if (o.bursts)
                report_bursts(stdout, &r);
        if (r.broken) {
                fprintf(stderr, "schedsim: after %.6f s: %s\n", (double)r.end_ns / 1e9, r.broken);
                status = 1;
        }
        model_free(&r);
        workload_free(&w);
        return status;
}
