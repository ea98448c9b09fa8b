/* finding.h: how doctor says what it found, and what to do about it. */
#pragma once

enum finding { OK, WARN, FAIL };

/* Prints a finding on a line of its own. */
void print_finding(enum finding finding, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* Prints what to do about the finding before. */
void print_remedy(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns the worst finding so far. */
enum finding finding_worst(void);
