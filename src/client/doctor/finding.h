/* finding.h: what doctor found, and what to do about it. Findings are collected, because the worst
 * one stands in the first line. */
#pragma once

enum finding { OK, WARN, FAIL };

/* Notes a finding. */
void finding_add(enum finding finding, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
/* Notes what to do about the last finding. */
void finding_remedy(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns the worst finding so far. */
enum finding finding_worst(void);
/* Prints each finding with its remedy as one line: the worst ones first, and of equal ones the one
 * that was noted first. */
void findings_print(void);
