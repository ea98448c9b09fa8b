/* figures.h: how status and top write figures and texts of the daemon's JSON in few columns.
 *
 * A figure that the daemon does not know (null, or a missing field) is written as N/A, never as 0.
 * Pure. */
#pragma once

#include <jansson.h>

#define FIGURE_MAX     80
#define FIGURE_UNKNOWN "N/A"

enum figure { FIGURE_TEXT, FIGURE_COUNT, FIGURE_SIZE, FIGURE_SECONDS };

/* Writes a size like "41.8G", in steps of 1024 as ls -h; writing "iB" would cost 24 columns a
 * line. */
void figure_size(double bytes, char cell[static FIGURE_MAX]);
/* Writes a duration like "3.2s", "47s", "3m20s", "2h05m", "4d11h". */
void figure_seconds(double s, char cell[static FIGURE_MAX]);
/* Copies what may be shown of a text: another user's program may have any name. */
void figure_text(const char *text, char cell[static FIGURE_MAX]);
void figure_put(const json_t *value, enum figure kind, char cell[static FIGURE_MAX]);

/* Returns in words who may use the card, if not all programs may: "exclusive compute mode: ...".
 * NULL: all may, or the daemon does not know. */
const char *figure_compute_mode(const json_t *gpu);

/* Returns a number; 0: not known. */
double figure_number(const json_t *object, const char *field);
/* Returns a text; "N/A": not known. Not for a terminal, except texts that the daemon made up. */
const char *figure_string(const json_t *object, const char *field);
