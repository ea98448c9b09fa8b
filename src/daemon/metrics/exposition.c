/* exposition.c: owns the text of the metrics: names, labels, figures, and the order of both
 * formats. Must never write a text that a scraper refuses, whatever a program calls itself. */
#include "daemon/metrics/exposition.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/text.h"

#define FIGURE_MAX 32

enum type { INFO, GAUGE, COUNTER, HISTOGRAM };
enum unit { none, seconds, bytes };

static const struct family {
        enum type type;
        enum unit unit;
        const char *name, *help;
} families[METRIC_COUNT] = {
#define METRIC(id, type, unit, name, help) [METRIC_##id] = {type, unit, name, help},
#include "daemon/metrics/metrics.def"
};

static const char *const type_names[] = {
        [INFO] = "info", [GAUGE] = "gauge", [COUNTER] = "counter", [HISTOGRAM] = "histogram"};
static const char *const unit_names[] = {[seconds] = "seconds", [bytes] = "bytes"};
static const char *const suffixes[] = {[INFO] = "_info", [GAUGE] = "", [COUNTER] = "_total"};

/* The upper bounds of the buckets, in nanoseconds or bytes, and as labels. */
static const struct bound {
        uint64_t most;
        const char *text;
} bounds[][HISTOGRAM_BUCKETS - 1] = {
        [seconds] = {{NSEC_PER_MSEC, "0.001"},
                     {5 * NSEC_PER_MSEC, "0.005"},
                     {10 * NSEC_PER_MSEC, "0.01"},
                     {25 * NSEC_PER_MSEC, "0.025"},
                     {50 * NSEC_PER_MSEC, "0.05"},
                     {100 * NSEC_PER_MSEC, "0.1"},
                     {250 * NSEC_PER_MSEC, "0.25"},
                     {500 * NSEC_PER_MSEC, "0.5"},
                     {NSEC_PER_SEC, "1.0"},
                     {2500 * NSEC_PER_MSEC, "2.5"},
                     {5 * NSEC_PER_SEC, "5.0"},
                     {10 * NSEC_PER_SEC, "10.0"},
                     {30 * NSEC_PER_SEC, "30.0"},
                     {60 * NSEC_PER_SEC, "60.0"},
                     {300 * NSEC_PER_SEC, "300.0"},
                     {1800 * NSEC_PER_SEC, "1800.0"}},
        [bytes] = {{4 * MIB, "4194304.0"},
                   {16 * MIB, "16777216.0"},
                   {64 * MIB, "67108864.0"},
                   {128 * MIB, "134217728.0"},
                   {256 * MIB, "268435456.0"},
                   {512 * MIB, "536870912.0"},
                   {GIB, "1073741824.0"},
                   {2 * GIB, "2147483648.0"},
                   {4 * GIB, "4294967296.0"},
                   {8 * GIB, "8589934592.0"},
                   {16 * GIB, "17179869184.0"},
                   {32 * GIB, "34359738368.0"},
                   {64 * GIB, "68719476736.0"},
                   {128 * GIB, "137438953472.0"},
                   {256 * GIB, "274877906944.0"},
                   {512 * GIB, "549755813888.0"}},
};

/* ---- growing texts ---- */

struct text {
        char *data;
        size_t used, room;
        bool failed; /* there was no memory for a part of it */
};

struct exposition {
        struct text samples[METRIC_COUNT];
};

static void put(struct text *t, const char *part, size_t n)
{
        if (t->room - t->used < n) {
                const size_t room = MAX(2 * t->room, t->used + n + 1024);
                char *data = t->failed ? NULL : realloc(t->data, room);

                if (!data) {
                        t->failed = true;
                        return;
                }
                t->data = data;
                t->room = room;
        }
        memcpy(t->data + t->used, part, n);
        t->used += n;
}

static void put_text(struct text *t, const char *part)
{
        put(t, part, strlen(part));
}

/* ---- labels ---- */

static void put_label(struct labels *l, const char *part, size_t n)
{
        if (l->used + n < sizeof(l->text))
                memcpy(l->text + l->used, part, n);
        l->used += n;
}

void labels_add(struct labels *l, const char *name, const char *value)
{
        const size_t before = l->used;
        char clean[LABELS_MAX];

        if (before)
                put_label(l, ",", 1);
        put_label(l, name, strlen(name));
        put_label(l, "=\"", 2);
        for (const char *p = text_copy(clean, sizeof(clean), value); *p; p++) {
                if (*p == '"' || *p == '\\')
                        put_label(l, "\\", 1);
                put_label(l, p, 1);
        }
        put_label(l, "\"", 1);
        if (l->used >= sizeof(l->text))
                l->used = before;
}

/* ---- samples ---- */

static const char *print_figure(enum unit unit, uint64_t v, char ret[static FIGURE_MAX])
{
        if (unit == seconds)
                (void)snprintf(ret, FIGURE_MAX, "%llu.%09llu",
                               (unsigned long long)(v / NSEC_PER_SEC),
                               (unsigned long long)(v % NSEC_PER_SEC));
        else
                (void)snprintf(ret, FIGURE_MAX, "%llu", (unsigned long long)v);
        return ret;
}

static void put_sample(struct text *t, const char *name, const char *suffix, const struct labels *l,
                       const char *figure)
{
        put_text(t, name);
        put_text(t, suffix);
        if (l->used) {
                put(t, "{", 1);
                put(t, l->text, l->used);
                put(t, "}", 1);
        }
        put(t, " ", 1);
        put_text(t, figure);
        put(t, "\n", 1);
}

void exposition_add(struct exposition *e, enum metric m, const struct labels *l, uint64_t value)
{
        const struct family *f = &families[m];
        char figure[FIGURE_MAX];

        put_sample(&e->samples[m], f->name, suffixes[f->type], l,
                   print_figure(f->unit, value, figure));
}

void exposition_add_signed(struct exposition *e, enum metric m, const struct labels *l, int value)
{
        char figure[FIGURE_MAX];

        (void)snprintf(figure, sizeof(figure), "%d", value);
        put_sample(&e->samples[m], families[m].name, suffixes[families[m].type], l, figure);
}

void exposition_add_with(struct exposition *e, enum metric m, struct labels *l, const char *name,
                         const char *label, uint64_t value)
{
        const size_t before = l->used;

        labels_add(l, name, label);
        exposition_add(e, m, l, value);
        l->used = before;
}

/* ---- histograms ---- */

void histogram_add(struct histogram *h, enum metric m, uint64_t value)
{
        const struct bound *b = bounds[families[m].unit];
        unsigned i = 0;

        while (i < HISTOGRAM_BUCKETS - 1 && value > b[i].most)
                i++;
        h->n[i]++;
        h->sum = add_sat(h->sum, value);
}

void exposition_add_histogram(struct exposition *e, enum metric m, const struct labels *l,
                              const struct histogram *h)
{
        const struct family *f = &families[m];
        struct labels with = *l;
        char figure[FIGURE_MAX];
        uint64_t n = 0;

        for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
                n += h->n[i];
                with.used = l->used;
                labels_add(&with, "le",
                           i < HISTOGRAM_BUCKETS - 1 ? bounds[f->unit][i].text : "+Inf");
                put_sample(&e->samples[m], f->name, "_bucket", &with,
                           print_figure(none, n, figure));
        }
        put_sample(&e->samples[m], f->name, "_sum", l, print_figure(f->unit, h->sum, figure));
        put_sample(&e->samples[m], f->name, "_count", l, print_figure(none, n, figure));
}

/* ---- the whole ---- */

struct exposition *exposition_new(void)
{
        return calloc(1, sizeof(struct exposition));
}

void exposition_free(struct exposition *e)
{
        if (!e)
                return;
        for (unsigned m = 0; m < METRIC_COUNT; m++)
                free(e->samples[m].data);
        free(e);
}

/* The text format knows no type info, and gives a family the name of its samples. */
static void put_header(struct text *t, const struct family *f, enum exposition_format format)
{
        const bool open = format == EXPOSITION_OPENMETRICS;
        const char *suffix = open || f->type == HISTOGRAM ? "" : suffixes[f->type];
        const char *type = open || f->type != INFO ? type_names[f->type] : type_names[GAUGE];
        const char *const words[] = {"# HELP ", f->name, suffix, " ", f->help, "\n",
                                     "# TYPE ", f->name, suffix, " ", type,    "\n"};

        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                put_text(t, words[i]);
        if (open && f->unit != none) {
                put_text(t, "# UNIT ");
                put_text(t, f->name);
                put_text(t, " ");
                put_text(t, unit_names[f->unit]);
                put_text(t, "\n");
        }
}

int exposition_write(const struct exposition *e, enum exposition_format format, char **ret_text,
                     size_t *ret_size)
{
        struct text all = {0};

        for (unsigned m = 0; m < METRIC_COUNT; m++) {
                const struct text *samples = &e->samples[m];

                put_header(&all, &families[m], format);
                if (samples->used)
                        put(&all, samples->data, samples->used);
                all.failed |= samples->failed;
        }
        if (format == EXPOSITION_OPENMETRICS)
                put_text(&all, "# EOF\n");
        if (all.failed) {
                free(all.data);
                return -ENOMEM;
        }
        *ret_text = all.data;
        *ret_size = all.used;
        return 0;
}

/* ---- the choice of the format ---- */

/* Returns the quality of an item of Accept, in thousandths; 0: it is no number from 0 to 1. */
static int quality(const char *item, size_t n)
{
        for (size_t i = 0; i + 2 < n; i++)
                if (item[i] == ';' || item[i] == ' ')
                        if (strncasecmp(item + i + 1, "q=", 2) == 0) {
                                const double q = strtod(item + i + 3, NULL);

                                return q > 0 && q <= 1 ? (int)(1000 * q) : 0;
                        }
        return 1000;
}

/* Chooses OpenMetrics only for readers that name it: people who look get the older, simpler
 * format. */
enum exposition_format exposition_negotiate(const char *accept)
{
        static const char open[] = "application/openmetrics-text", text[] = "text/plain";
        int wants_open = 0, wants_text = 0;

        for (const char *p = accept ? accept : ""; *p;) {
                size_t n = strcspn(p, ",");

                if (strncasecmp(p, open, strlen(open)) == 0)
                        wants_open = MAX(wants_open, quality(p, n));
                else if (strncasecmp(p, text, strlen(text)) == 0)
                        wants_text = MAX(wants_text, quality(p, n));
                p += n;
                p += strspn(p, ", \t");
        }
        return wants_open && wants_open >= wants_text ? EXPOSITION_OPENMETRICS : EXPOSITION_TEXT;
}

const char *exposition_content_type(enum exposition_format format)
{
        return format == EXPOSITION_OPENMETRICS
                       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8";
}
