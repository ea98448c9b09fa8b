/* units.h: numbers, sizes, rates and durations as people write them, and times.
 *
 * Sizes: "512B", "64MiB", "1.5GiB", "16k", "2GB". A number needs its unit, except 0 and, as a size,
 * bytes from 1 MiB on. Binary suffixes (k, m, g, t, KiB, MiB, GiB, TiB) are powers of 1024; KB, MB,
 * GB, TB powers of 1000. Rates: a size followed by "/s". Durations: "250ms", "5s", "2min", "100us".
 * Counts are decimal digits alone: libsublet.so reads them without strtoull() and scanf(), which
 * newer headers bind to symbols that older C libraries lack. The parsers return 0, -EINVAL
 * (malformed) or -ERANGE (too large). Nothing allocates; thread-safe. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

int units_parse_size(const char *text, uint64_t *ret_bytes);
int units_parse_rate(const char *text, uint64_t *ret_bytes_per_s);
int units_parse_duration(const char *text, uint64_t *ret_ns);
int units_parse_count(const char *text, uint64_t *ret_count);

#define UNITS_TEXT_MAX 32

/* Writes a size: "41.8 GiB", "0 B", "512 MiB". Returns buf. */
const char *units_format_size(uint64_t bytes, char buf[static UNITS_TEXT_MAX]);
/* Writes a duration: "1.2 s", "35 ms", "3 min 20 s". Returns buf. */
const char *units_format_duration(uint64_t ns, char buf[static UNITS_TEXT_MAX]);
/* Writes a time in UTC, as ISO 8601 has it: "2026-11-27T10:26:15Z". Returns buf. */
const char *units_format_utc(time_t when, char buf[static UNITS_TEXT_MAX]);
