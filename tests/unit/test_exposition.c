/* test_exposition.c: the metrics as text, in both formats. */
#include "unit.h"

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/metrics/exposition.h"

static const struct row {
        const char *type, *unit, *name, *help;
} rows[] = {
#define METRIC(id, type, unit, name, help) {#type, #unit, name, help},
#include "daemon/metrics/metrics.def"
};

static bool ends_with(const char *text, const char *end)
{
        const size_t n = strlen(text), m = strlen(end);

        return n >= m && strcmp(text + n - m, end) == 0;
}

/* Returns the text of these samples; the caller frees it. */
static char *written(struct exposition *e, enum exposition_format format)
{
        char *text, *copy;
        size_t n;

        assert_int_equal(exposition_write(e, format, &text, &n), 0);
        copy = strndup(text, n);
        free(text);
        return copy;
}

static void names_follow_the_conventions(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                const struct row *r = &rows[i];

                assert_memory_equal(r->name, "sublet_", 7);
                assert_int_equal(strcmp(r->unit, "bytes") == 0, ends_with(r->name, "_bytes"));
                assert_int_equal(strcmp(r->unit, "seconds") == 0, ends_with(r->name, "_seconds"));
                for (size_t k = 0; k < ARRAY_SIZE(rows); k++)
                        assert_true(k == i || strcmp(r->name, rows[k].name) != 0);
                /* They make names of samples, so families may not end with them. */
                assert_false(ends_with(r->name, "_total") || ends_with(r->name, "_info") ||
                             ends_with(r->name, "_count") || ends_with(r->name, "_sum"));
                assert_false(ends_with(r->help, ".") || strpbrk(r->help, "\n\\|"));
        }
}

static void hostile_names_do_not_break_the_text(void **state)
{
        static const char *const table[][2] = {
                {"plain", "plain"},
                {"a\"b\\c\nd", "a\\\"b\\\\c?d"},
                {"\x1b[2J\r\t\x7f", "?[2J???"},
                {"\xc2\x9b\xff", "??"},
                {"Übung 学習 🚀", "Übung 学習 🚀"},
                {"\xe2\x80\xae"
                 "gnp", /* U+202E writes from the right */
                 "?gnp"},
                {"", ""},
        };

        for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
                struct labels l = {0};
                char wanted[128];

                labels_add(&l, "pid", "7");
                labels_add(&l, "name", table[i][0]);
                (void)snprintf(wanted, sizeof(wanted), "pid=\"7\",name=\"%s\"", table[i][1]);
                assert_int_equal(l.used, strlen(wanted));
                assert_memory_equal(l.text, wanted, l.used);
        }
}

static void a_label_that_does_not_fit_is_left_out_whole(void **state)
{
        struct labels l = {0};
        char value[LABELS_MAX];

        labels_add(&l, "a", "b");
        memset(value, '"', sizeof(value) - 1); /* twice as long when it is escaped */
        value[sizeof(value) - 1] = '\0';
        labels_add(&l, "long", value);
        labels_add(&l, "c", "d");
        assert_int_equal(l.used, strlen("a=\"b\",c=\"d\""));
        assert_memory_equal(l.text, "a=\"b\",c=\"d\"", l.used);
}

static void figures_keep_all_their_digits(void **state)
{
        struct exposition *e = exposition_new();
        struct labels l = {0};
        char *text;

        exposition_add(e, METRIC_CLIENTS, &l, UINT64_MAX);
        labels_add(&l, "gpu", "0");
        exposition_add(e, METRIC_GPU_LEASE, &l, 12 * NSEC_PER_SEC + 34);
        exposition_add_signed(e, METRIC_CLIENT_PRIORITY, &l, -20);
        exposition_add_with(e, METRIC_GPU_CLIENTS, &l, "state", "idle", 0);
        exposition_add(e, METRIC_GPU_CONTESTED, &l, 1);
        text = written(e, EXPOSITION_TEXT);
        assert_non_null(strstr(text, "\nsublet_clients 18446744073709551615\n"));
        assert_non_null(strstr(text, "\nsublet_gpu_lease_seconds_total{gpu=\"0\"} 12.000000034\n"));
        assert_non_null(strstr(text, "\nsublet_client_priority{gpu=\"0\"} -20\n"));
        assert_non_null(strstr(text, "\nsublet_gpu_clients{gpu=\"0\",state=\"idle\"} 0\n"));
        assert_non_null(strstr(text, "\nsublet_gpu_contested{gpu=\"0\"} 1\n"));
        free(text);
        exposition_free(e);
}

static void each_format_has_the_headers_that_it_asks_for(void **state)
{
        struct exposition *e = exposition_new();
        char *text = written(e, EXPOSITION_TEXT), *open = written(e, EXPOSITION_OPENMETRICS);

        assert_non_null(strstr(text, "# TYPE sublet_build_info gauge\n"));
        assert_non_null(strstr(text, "# TYPE sublet_gpu_lease_seconds_total counter\n"));
        assert_non_null(strstr(text, "# TYPE sublet_gpu_wait_seconds histogram\n"));
        assert_null(strstr(text, "# UNIT"));
        assert_null(strstr(text, "# EOF"));
        assert_non_null(strstr(open, "# TYPE sublet_build info\n"));
        assert_non_null(strstr(open, "# TYPE sublet_gpu_lease_seconds counter\n"
                                     "# UNIT sublet_gpu_lease_seconds seconds\n"));
        assert_true(ends_with(open, "\n# EOF\n"));
        free(text);
        free(open);
        exposition_free(e);
}

static void buckets_count_all_values_below_their_bound(void **state)
{
        struct exposition *e = exposition_new();
        struct histogram h = {0};
        struct labels l = {0};
        char *text;

        for (uint64_t ms = 0; ms <= 2000; ms += 500)
                histogram_add(&h, METRIC_GPU_WAIT, ms * NSEC_PER_MSEC);
        histogram_add(&h, METRIC_GPU_WAIT, UINT64_MAX / 2);
        exposition_add_histogram(e, METRIC_GPU_WAIT, &l, &h);
        text = written(e, EXPOSITION_OPENMETRICS);
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_bucket{le=\"0.001\"} 1\n"));
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_bucket{le=\"0.5\"} 2\n"));
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_bucket{le=\"1.0\"} 3\n"));
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_bucket{le=\"2.5\"} 5\n"));
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_bucket{le=\"1800.0\"} 5\n"));
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_bucket{le=\"+Inf\"} 6\n"));
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_sum 9223372041.854775807\n"));
        assert_non_null(strstr(text, "sublet_gpu_wait_seconds_count 6\n"));
        free(text);
        exposition_free(e);
}

static void the_reader_chooses_the_format(void **state)
{
        static const struct {
                const char *accept;
                enum exposition_format format;
        } table[] = {
                {NULL, EXPOSITION_TEXT},
                {"", EXPOSITION_TEXT},
                {"*/*", EXPOSITION_TEXT},
                {"text/html, application/xhtml+xml;q=0.9", EXPOSITION_TEXT},
                {"application/openmetrics-text", EXPOSITION_OPENMETRICS},
                {"Application/OpenMetrics-Text; version=1.0.0; charset=utf-8",
                 EXPOSITION_OPENMETRICS},
                /* Prometheus */
                {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                 "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                 EXPOSITION_OPENMETRICS},
                {"text/plain;version=0.0.4,application/openmetrics-text;q=0.5", EXPOSITION_TEXT},
                {"application/openmetrics-text;q=0", EXPOSITION_TEXT},
                {"application/openmetrics-text;q=1e999", EXPOSITION_TEXT},
                {"application/openmetrics-text;q=nan", EXPOSITION_TEXT},
                {",,;q=,\t", EXPOSITION_TEXT},
        };

        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                assert_int_equal(exposition_negotiate(table[i].accept), table[i].format);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_follow_the_conventions),
                cmocka_unit_test(hostile_names_do_not_break_the_text),
                cmocka_unit_test(a_label_that_does_not_fit_is_left_out_whole),
                cmocka_unit_test(figures_keep_all_their_digits),
                cmocka_unit_test(each_format_has_the_headers_that_it_asks_for),
                cmocka_unit_test(buckets_count_all_values_below_their_bound),
                cmocka_unit_test(the_reader_chooses_the_format),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
