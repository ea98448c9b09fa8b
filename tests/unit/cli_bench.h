/* cli_bench.h: what the tests of subcommands' parts share: what is said to stderr by cli_fail() is
 * kept, what goes to stdout is caught, and the parts of sublet lie where a test says. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "cli/commands.h"
#include "cli/parts.h"

struct cli_bench {
        char said[1024];                          /* the last sentence of cli_fail */
        unsigned failures;                        /* its calls */
        char parts[PART_SIMULATOR_STAT + 1][128]; /* their paths; "": not there */
};
extern struct cli_bench cli_bench;

/* For cmocka: nothing said, each part at /parts/N. */
int cli_bench_begin(void **state);

/* From catch to caught, stdout is kept; the text is the caller's. */
void cli_bench_catch(void);
char *cli_bench_caught(void);

/* NAME in the folder; valid until the next call. */
char *cli_bench_path(const char *folder, const char *name);
/* A file that its owner may run. */
void cli_bench_write(const char *path, const char *text);
