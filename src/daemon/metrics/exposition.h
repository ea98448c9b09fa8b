/* exposition.h: metrics as text, in the Prometheus text format 0.0.4 or as OpenMetrics 1.0.
 *
 * Samples are added in any order; the text has them family by family, as both formats ask for.
 * Pure: no I/O, no clock. Without memory a text is cut off, and exposition_write() says so. Not
 * thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metric {
#define METRIC(id, type, unit, name, help) METRIC_##id,
#include "daemon/metrics/metrics.def"
        METRIC_COUNT,
};

enum exposition_format { EXPOSITION_TEXT, EXPOSITION_OPENMETRICS, EXPOSITION_FORMATS };

/* The labels of a sample, ready to print. */
#define LABELS_MAX 3072
struct labels {
        size_t used;
        char text[LABELS_MAX];
};

/* Adds a label. Quotes and backslashes in the value are escaped; what may not be shown becomes a
 * question mark (base/text.h). A label that does not fit is left out. */
void labels_add(struct labels *l, const char *name, const char *value);

/* Counts values in fixed buckets: durations in nanoseconds, or bytes. All zero: an empty one. */
#define HISTOGRAM_BUCKETS 17 /* the last one has no bound */
struct histogram {
        uint64_t n[HISTOGRAM_BUCKETS], sum;
};
void histogram_add(struct histogram *h, enum metric m, uint64_t value);

struct exposition;

/* Returns NULL if there is no memory. */
struct exposition *exposition_new(void);
void exposition_free(struct exposition *e); /* NULL is a no-op */

/* Add a sample. labels: may be empty. Figures that are shown in seconds are given in
 * nanoseconds. */
void exposition_add(struct exposition *e, enum metric m, const struct labels *l, uint64_t value);
void exposition_add_signed(struct exposition *e, enum metric m, const struct labels *l, int value);
/* Adds a sample with one more label. */
void exposition_add_with(struct exposition *e, enum metric m, struct labels *l, const char *name,
                         const char *label, uint64_t value);
void exposition_add_histogram(struct exposition *e, enum metric m, const struct labels *l,
                              const struct histogram *h);

/* Writes everything. 0, or -ENOMEM. The caller frees *ret_text. */
int exposition_write(const struct exposition *e, enum exposition_format format, char **ret_text,
                     size_t *ret_size);

/* Chooses the format by the header Accept of the request; NULL: there is none. */
enum exposition_format exposition_negotiate(const char *accept);
const char *exposition_content_type(enum exposition_format format);
