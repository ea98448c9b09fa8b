/* cli_bench.h: shared by the tests of subcommands' parts: cli_fail()'s messages are kept, stdout is
 * captured, and the parts of sublet lie where a test puts them. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "cli/commands.h"
#include "cli/parts.h"

struct cli_bench {
        char said[1024];                          /* the last sentence of cli_fail */
        unsigned failures;                        /* its calls */
        char parts[PART_SIMULATOR_STAT + 1][128]; /* their paths; "": it does not exist */
};
extern struct cli_bench cli_bench;

/* For cmocka: no message yet, and each part at /parts/N. */
int cli_bench_begin(void **state);

/* From catch to caught, stdout is kept; the caller frees the text. */
void cli_bench_catch(void);
char *cli_bench_caught(void);

/* NAME in the folder; valid until the next call. */
char *cli_bench_path(const char *folder, const char *name);
/* A file that its owner may run. */
void cli_bench_write(const char *path, const char *text);
