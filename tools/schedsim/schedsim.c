/* schedsim.c: runs the scheduler on a simulated workload: reads a workload file, prints the report.
 * Owns the command line; must never print anything but the report on stdout. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "model.h"

static const char usage[] =
        "usage: schedsim [--clients] [--check] WORKLOAD\n"
        "\n"
        "Runs the scheduler of subletd on a workload file (docs/scheduler.md), in simulated time, "
        "and prints\n"
        "makespan, hand-offs, bytes moved and how long clients waited. It is a model, not a "
        "measurement.\n"
        "\n"
        "  --clients  a line for each client, too\n"
        "  --check    every invariant of the scheduler after every event (slow)\n";

int main(int argc, char **argv)
{
        struct workload w;
        struct model_result r;
        char error[256];
        const char *path = NULL;
        bool clients = false, check = false;
        _cleanup_fclose_ FILE *f = NULL;
        int status = 0;

        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--clients") == 0) {
                        clients = true;
                } else if (strcmp(argv[i], "--check") == 0) {
                        check = true;
                } else if (strcmp(argv[i], "--help") == 0) {
                        (void)fputs(usage, stdout);
                        return 0;
                } else if (argv[i][0] == '-' || path) {
                        fprintf(stderr, "schedsim: '%s' is not understood; --help tells more\n",
                                argv[i]);
                        return 2;
                } else {
                        path = argv[i];
                }
        }
        if (!path) {
                (void)fputs(usage, stderr);
                return 2;
        }
        f = fopen(path, "re");
        if (!f) {
                fprintf(stderr, "schedsim: %s: %s\n", path, strerror(errno));
                return 1;
        }
        if (workload_read(f, &w, error, sizeof(error)) < 0) {
                fprintf(stderr, "schedsim: %s: %s\n", path, error);
                return 1;
        }
        if (model_run(&w, check, &r) < 0) {
                fprintf(stderr, "schedsim: out of memory\n");
                workload_free(&w);
                return 1;
        }
        report_jobs(stdout, &w, &r);
        if (clients)
                report_clients(stdout, &r);
        if (r.broken) {
                fprintf(stderr, "schedsim: after %.6f s: %s\n", (double)r.end_ns / 1e9, r.broken);
                status = 1;
        }
        model_free(&r);
        workload_free(&w);
        return status;
}
