/* bench.h: the parts of sublet bench: measuring, and the three forms of its result. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "lab/bench/bench_plan.h"
#include "lab/bench/bench_run.h"

/* Measures the mixes in every way, setting->repeat times, and prints a line to stderr after each
 * run. *ret_rows is freed by the caller, also after a failure. CLI_OK, or an exit status after a
 * message. */
int bench_measure(const struct bench_stage *stage, const struct bench_setting *setting,
                  const struct bench_mix *const *mixes, size_t n_mixes, struct bench_row **ret_rows,
                  size_t *ret_n);

/* ---- the result; pure ---- */

/* Writes the table that people read. */
void bench_print_table(FILE *out, const struct bench_setting *setting, const struct bench_row *rows,
                       size_t n);
/* Writes an SVG picture with a bar for each row, as figures 12.1 to 12.3 of the thesis have. */
void bench_print_plot(FILE *out, const struct bench_setting *setting, const struct bench_row *rows,
                      size_t n);
/* Returns everything as JSON, a new reference; NULL: out of memory. */
json_t *bench_json(const struct bench_setting *setting, const struct bench_row *rows, size_t n);

/* Writes what is true of all rows in one line: the card, the driver, what was measured. */
#define BENCH_LINE_MAX 320
void bench_describe(const struct bench_setting *setting, char buf[static BENCH_LINE_MAX]);
/* Writes the heading of a role's rows: "small_50: all programs, 2 of 22.5 GiB". */
void bench_group_text(const struct bench_setting *setting, const struct bench_row *row,
                      char buf[static BENCH_TEXT_MAX]);
