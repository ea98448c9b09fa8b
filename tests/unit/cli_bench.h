/* cli_bench.h: shared by the tests of subcommands: it keeps the messages of cli_fail(), captures
 * stdout, and lets a test set the paths of sublet's parts. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "client/common/cli.h"
#include "client/common/part_paths.h"

struct cli_bench {
        char said[1024];                 /* last message of cli_fail() */
        unsigned failures;               /* calls of cli_fail() */
        char parts[PART_RANKS + 1][128]; /* path of each part; "": it does not exist */
};
extern struct cli_bench cli_bench;

/* Set-up for cmocka: there is no message yet, and part N lies at /parts/N. */
int cli_bench_begin(void **state);

/* Capture stdout from cli_bench_catch() on; cli_bench_caught() returns the text, which the caller
 * frees. */
void cli_bench_catch(void);
char *cli_bench_caught(void);

/* Returns the path of a name in a folder; valid until the next call. */
char *cli_bench_path(const char *folder, const char *name);
/* Writes a file that its owner may run. */
void cli_bench_write(const char *path, const char *text);
