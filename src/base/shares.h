/* shares.h: shares of a GPU's time, weights and priorities, as people write them for a program, a
 * class, a job or a pod. Pure.
 *
 * A number is written with digits and a point, whatever the locale: no sign, no exponent. Digits
 * behind what the unit can hold are dropped. The parsers return 0 or -EINVAL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define SHARES_ALL          1000u /* thousandths: all of the time; the weight 1 */
#define SHARES_MAXIMUM_MIN  10u   /* thousandths: the smallest maximum that is allowed */
#define SHARES_MINIMA_MAX   950u  /* thousandths: all minima together; hand-offs take the rest */
#define SHARES_PRIORITY_MAX 20    /* priorities go from -20 to 20; the highest goes first */

/* Parses a percentage such as "30%" or "2.5%" into thousandths, from `least` to `most`. */
int shares_parse_percent(const char *text, unsigned least, unsigned most, unsigned *ret);
/* Parses a part such as "30%" or "0.3" into thousandths, from `least` to `most`. */
int shares_parse_part(const char *text, unsigned least, unsigned most, unsigned *ret);
/* Parses a share of the time, "MIN:MAX", "MIN" or ":MAX", each from 0 to 1, into thousandths. */
int shares_parse_range(const char *text, unsigned *ret_minimum, unsigned *ret_maximum);
/* True if a share that cannot be parsed may have been meant to have a maximum: "0.2-0.8" or ":x",
 * but not "30%" or "2", which are a number alone. */
bool shares_may_bound(const char *text);
/* Parses a weight from 0.01 to 100 into thousandths. */
int shares_parse_weight(const char *text, unsigned *ret);
/* Parses a priority from -20 to 20. */
int shares_parse_priority(const char *text, int *ret);

#define SHARES_TEXT_MAX 24

/* Writes thousandths without zeroes at the end: "2.5", "0.25", "1". Returns ret. */
const char *shares_format(unsigned thousandths, char ret[static SHARES_TEXT_MAX]);
/* Writes thousandths as a percentage: "2.5%", "100%". Returns ret. */
const char *shares_format_percent(unsigned thousandths, char ret[static SHARES_TEXT_MAX]);
