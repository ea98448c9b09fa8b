/* ini_lines.h: lines of a file for libinih's ini_parse_stream(), which does not number lines and
 * misreads some of them. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct ini_lines {
        FILE *file;
        int number;     /* number of the line that was read last */
        bool too_long;  /* the line that was read last is too long; no more lines are read */
        bool has_key;   /* the section has had a key so far */
        bool continued; /* libinih adds the line to the value of the key before it */
};

/* Reads a line; ini_parse_stream() calls it. lines: a struct ini_lines. */
char *ini_lines_read(char *buf, int size, void *lines);
/* Returns what is wrong with the value that libinih makes of the line; NULL: nothing. is_list: the
 * key's value may go on in more lines. */
const char *ini_lines_problem(const struct ini_lines *l, const char *value, bool is_list);

#define INI_LINES_TOO_LONG "the line has more than 198 characters"
