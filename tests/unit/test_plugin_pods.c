/* test_plugin_pods.c: from a pod's annotations to the daemon's classes. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "kubernetes/plugin/pod_classes.h"
#include "kubernetes/plugin/plugin_pod.h"

#define UID "0f9b3c1e-5a0d-4c6e-9d55-6f1f3e2a7b10"

static char complaints[4096];

static void complain(const char *sentence, void *userdata)
{
        (void)strcat(strcat(complaints, sentence), "\n");
}

static const struct pod_bounds generous = {
        .priority_most = 20, .minimum_most = 950, .weight_most = 100000};

/* Reads a pod whose annotations are this text of JSON. */
static int read_pod(const char *annotations, const struct pod_bounds *bounds, struct pod *ret)
{
        json_t *pod = json_pack("{s:{s:s, s:s, s:s, s:s, s:o}, s:{s:[{s:{s:{s:s}}}]}, s:{s:s}}",
                                "metadata", "uid", UID, "namespace", "lab", "name", "a",
                                "creationTimestamp", "2026-11-27T10:00:00Z", "annotations",
                                json_loads(annotations, 0, NULL), "spec", "containers", "resources",
                                "limits", "sublet.dev/gpu", "1", "status", "phase", "Running");
        int r;

        assert_non_null(pod);
        complaints[0] = '\0';
        r = pod_read(pod, "sublet.dev/gpu", bounds, complain, NULL, ret);
        json_decref(pod);
        return r;
}

static void each_annotation_is_read(void **state)
{
        struct pod pod;

        assert_int_equal(
                read_pod("{\"sublet.dev/minimum\": \"30%\", \"sublet.dev/maximum\": \"0.5\", "
                         "\"sublet.dev/memory-cap\": \"20Gi\", \"sublet.dev/priority\": "
                         "\"-3\", \"sublet.dev/weight\": \"1.5\", \"sublet.dev/group\": "
                         "\"ranks\", \"sublet.dev/memory-request\": \"1G\"}",
                         &generous, &pod),
                0);
        assert_string_equal(complaints, "");
        assert_int_equal(pod.wishes.minimum, 300);
        assert_int_equal(pod.wishes.maximum, 500);
        assert_int_equal(pod.wishes.memory_cap, 20 * GIB);
        assert_int_equal(pod.wishes.memory_request, 1000000000);
        assert_true(pod.wishes.has_priority);
        assert_int_equal(pod.wishes.priority, -3);
        assert_int_equal(pod.wishes.weight, 1500);
        assert_string_equal(pod.wishes.group, "ranks");
}

static void shares_and_sizes_are_read_as_they_are_written(void **state)
{
        static const struct {
                const char *minimum;
                unsigned got; /* 0: left out */
        } shares[] = {{"30%", 300}, {"2.5%", 25}, {"0.3", 300},
                      {".5", 500},  {"1", 950},   {"0", 0},
                      {"0%", 0},    {"101%", 0},  {"1.01", 0},
                      {"-0.1", 0},  {"", 0},      {"%", 0},
                      {"30 %", 0},  {"nan", 0},   {"0x1p-1", 0},
                      {"0,3", 0},   {"1e-1", 0},  {"9999999999999999999%", 0}};
        static const struct {
                const char *cap;
                uint64_t got;
        } sizes[] = {{"20Gi", 20 * GIB},
                     {"20GiB", 20 * GIB},
                     {"2G", 2000000000},
                     {"2GB", 2000000000},
                     {"512Mi", 512 * MIB},
                     {"1073741824", GIB},
                     {"1048576", MIB},
                     {"64k", 0},
                     {"1048575", 0},
                     {"8192m", 0},
                     {"0.3Gi", 322122548},
                     {"1e9", 1000000000},
                     {"20g", 0},
                     {"64K", 0},
                     {"128m", 0},
                     {"2GiBB", 0},
                     {"0", 0},
                     {"-1", 0},
                     {"Gi", 0},
                     {"1 apple", 0},
                     {"", 0}};
        struct pod pod;
        char text[256];

        for (size_t i = 0; i < ARRAY_SIZE(shares); i++) {
                (void)snprintf(text, sizeof(text), "{\"sublet.dev/minimum\": \"%s\"}",
                               shares[i].minimum);
                assert_int_equal(read_pod(text, &generous, &pod), 0);
                assert_int_equal(pod.wishes.minimum, shares[i].got);
                assert_int_equal(complaints[0] != '\0', shares[i].got == 0 || shares[i].got == 950);
        }
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                (void)snprintf(text, sizeof(text), "{\"sublet.dev/memory-cap\": \"%s\"}",
                               sizes[i].cap);
                assert_int_equal(read_pod(text, &generous, &pod), 0);
                assert_int_equal(pod.wishes.memory_cap, sizes[i].got);
                assert_int_equal(complaints[0] != '\0', sizes[i].got == 0);
        }
}

/* Kubernetes' m is a thousandth: "8192m" is 8.192 bytes. */
static void a_cap_below_1_mib_is_left_out_and_named(void **state)
{
        struct pod pod;

        assert_int_equal(read_pod("{\"sublet.dev/memory-cap\": \"8192m\", "
                                  "\"sublet.dev/memory-request\": \"64Ki\"}",
                                  &generous, &pod),
                         0);
        assert_int_equal(pod.wishes.memory_cap, 0);
        assert_int_equal(pod.wishes.memory_request, 0);
        assert_non_null(strstr(complaints, "pod lab/a: sublet.dev/memory-cap is \"8192m\", less "
                                           "than 1Mi: it is left out\n"));
        assert_non_null(strstr(complaints, "sublet.dev/memory-request is \"64Ki\", less than 1Mi"));
}

static void the_owners_bounds_hold(void **state)
{
        const struct pod_bounds bounds = {
                .priority_most = 2, .minimum_most = 250, .weight_most = 1500};
        struct pod pod;

        assert_int_equal(read_pod("{\"sublet.dev/minimum\": \"30%\", \"sublet.dev/priority\": "
                                  "\"3\", \"sublet.dev/weight\": \"100\"}",
                                  &bounds, &pod),
                         0);
        assert_int_equal(pod.wishes.minimum, 250);
        assert_int_equal(pod.wishes.priority, 2);
        assert_non_null(strstr(complaints, "pod lab/a: sublet.dev/minimum is 30%, more than this "
                                           "node's owner allows: it is lowered to 25%"));
        assert_int_equal(pod.wishes.weight, 1500);
        assert_non_null(strstr(complaints, "lowered to 2\n"));
        assert_non_null(strstr(complaints, "sublet.dev/weight is 100, more than this node's owner "
                                           "allows: it is lowered to 1.5\n"));
}

static void a_minimum_above_the_maximum_is_left_out(void **state)
{
        struct pod pod;

        assert_int_equal(read_pod("{\"sublet.dev/minimum\": \"30%\", \"sublet.dev/maximum\": "
                                  "\"20%\"}",
                                  &generous, &pod),
                         0);
        assert_int_equal(pod.wishes.minimum, 0);
        assert_int_equal(pod.wishes.maximum, 200);
}

static void no_name_ends_a_line_of_the_file(void **state)
{
        json_t *object =
                json_pack("{s:{s:s, s:s, s:s}, s:{s:[{s:{s:{s:s}}}]}}", "metadata", "uid", UID,
                          "namespace", "x\n[default]\npriority = 20", "name", "y]\r;", "spec",
                          "containers", "resources", "limits", "sublet.dev/gpu", "2");
        struct pod pod;

        assert_int_equal(pod_read(object, "sublet.dev/gpu", &generous, complain, NULL, &pod), 0);
        assert_string_equal(pod.namespace, "x--default--priority---20");
        assert_string_equal(pod.name, "y---");
        json_decref(object);
}

static void strange_pods_are_none(void **state)
{
        static const char *const texts[] = {
                "{}",
                "[]",
                "{\"metadata\": {\"uid\": \"../../etc/passwd\"}}",
                "{\"metadata\": {\"uid\": 7}}",
                "{\"metadata\": {\"uid\": \"0f9b3c1e-5a0d-4c6e-9d55-6f1f3e2a7b1\"}}",
        };
        struct pod pod;

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                json_t *object = json_loads(texts[i], 0, NULL);

                assert_int_equal(pod_read(object, "r/r", &generous, complain, NULL, &pod), -EINVAL);
                json_decref(object);
        }
}

static void pods_without_the_resource_are_not_ours(void **state)
{
        static const char *const texts[] = {
                "{\"metadata\": {\"uid\": \"" UID "\"}}",
                "{\"metadata\": {\"uid\": \"" UID
                "\"}, \"spec\": {\"containers\": [{\"resources\": "
                "{\"limits\": {\"r/r\": \"0\"}}}]}}",
                "{\"metadata\": {\"uid\": \"" UID
                "\"}, \"spec\": {\"containers\": [{\"resources\": "
                "{\"limits\": {\"r/r\": \"1\"}}}]}, \"status\": {\"phase\": \"Failed\"}}",
        };
        struct pod pod;

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                json_t *object = json_loads(texts[i], 0, NULL);

                assert_int_equal(pod_read(object, "r/r", &generous, complain, NULL, &pod), -ENOENT);
                assert_string_equal(pod.uid, UID);
                json_decref(object);
        }
}

/* ---- classes ---- */

static struct pod make(unsigned n, unsigned minimum)
{
        struct pod pod = {.wishes = {.minimum = minimum, .minimum_most = 950}};

        (void)snprintf(pod.uid, sizeof(pod.uid), "%08u-0000-4000-8000-000000000000", n);
        (void)snprintf(pod.created, sizeof(pod.created), "2026-11-27T10:%02u:00Z", n % 60);
        (void)snprintf(pod.name, sizeof(pod.name), "p%u", n);
        (void)snprintf(pod.namespace, sizeof(pod.namespace), "lab");
        return pod;
}

static unsigned count(const char *text, const char *part)
{
        unsigned n = 0;

        for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
                n++;
        return n;
}

static void the_newest_minima_give_way(void **state)
{
        struct pod pods[] = {make(3, 300), make(1, 400), make(2, 300), make(4, 100)};
        bool left[4];
        unsigned minima;
        char *text;

        classes_sort(pods, 4);
        assert_string_equal(pods[0].name, "p1");
        /* 40 + 30 + (30: no room) + 10 % */
        text = classes_text(pods, 4, 0, 0, left, &minima);
        assert_int_equal(minima, 3);
        assert_false(left[0] || left[1] || left[3]);
        assert_true(left[2]);
        assert_int_equal(count(text, "minimum = "), 3);
        free(text);
        for (unsigned without = 1; without <= 5; without++) {
                text = classes_text(pods, 4, 0, without, left, &minima);
                assert_int_equal(minima, without < 3 ? 3 - without : 0);
                assert_int_equal(count(text, "minimum = "), minima);
                assert_int_equal(count(text, "[pod "), 4);
                assert_int_equal(left[0], without >= 3);
                free(text);
        }
}

static void a_full_group_goes_on_in_another_class(void **state)
{
        enum { N = CLASSES_GROUP_MAX + 2 };
        struct pod pods[N];
        bool left[N];
        unsigned minima;
        char *text;

        for (unsigned i = 0; i < N; i++) {
                pods[i] = make(i, 10);
                (void)snprintf(pods[i].wishes.group, sizeof(pods[i].wishes.group), "g");
        }
        classes_sort(pods, N);
        text = classes_text(pods, N, 0, 0, left, &minima);
        assert_int_equal(count(text, "[class g-"), 2);
        assert_int_equal(count(text, "group = yes"), 2);
        assert_int_equal(minima, 2); /* a class has its minimum once */
        free(text);
}

static void a_groups_class_keeps_its_name_when_its_oldest_pod_ends(void **state)
{
        struct pod pods[] = {make(1, 10), make(2, 10), make(3, 10)};
        char *before, *after, name[64];
        bool left[3];
        unsigned minima;

        for (unsigned i = 0; i < 3; i++)
                (void)snprintf(pods[i].wishes.group, sizeof(pods[i].wishes.group), "g");
        (void)snprintf(pods[2].namespace, sizeof(pods[2].namespace), "other");
        before = classes_text(pods, 3, 0, 0, left, &minima);
        after = classes_text(pods + 1, 2, 0, 0, left, &minima);
        assert_int_equal(count(before, "[class g-"), 2);
        (void)snprintf(name, sizeof(name), "%.21s", strstr(before, "[class g-"));
        assert_int_equal(count(before, name), 1); /* another namespace is another group */
        assert_int_equal(count(after, name), 1);
        free(before);
        free(after);
}

static void no_line_of_the_file_is_too_long(void **state)
{
        struct pod pod = make(1, 10);
        bool left[1];
        unsigned minima;
        char *text;

        memset(pod.name, 'n', sizeof(pod.name) - 1);
        memset(pod.namespace, 'm', sizeof(pod.namespace) - 1);
        pod.name[sizeof(pod.name) - 1] = pod.namespace[sizeof(pod.namespace) - 1] = '\0';
        text = classes_text(&pod, 1, 0, 0, left, &minima);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
                assert_in_range(strcspn(line, "\n"), 0, 190);
        /* and no name of a class either */
        assert_in_range(strcspn(strstr(text, "[class ") + 7, "]"), 1, 31);
        free(text);
}

static void requests_of_memory_become_minima_of_the_smallest_card(void **state)
{
        struct pod pod = make(1, 0);
        bool left[1];
        unsigned minima;
        char *text;

        pod.wishes.memory_request = 20 * GIB;
        pod.wishes.minimum_most = 500;
        text = classes_text(&pod, 1, 80 * GIB, 0, left, &minima);
        assert_non_null(strstr(text, "minimum = 23.7%"));
        free(text);
        text = classes_text(&pod, 1, 24 * GIB, 0, left, &minima);
        assert_non_null(strstr(text, "minimum = 50.0%")); /* the owner's bound */
        free(text);
        text = classes_text(&pod, 1, 0, 0, left, &minima); /* no card is known */
        assert_null(strstr(text, "[class"));
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_annotation_is_read),
                cmocka_unit_test(shares_and_sizes_are_read_as_they_are_written),
                cmocka_unit_test(a_cap_below_1_mib_is_left_out_and_named),
                cmocka_unit_test(the_owners_bounds_hold),
                cmocka_unit_test(a_minimum_above_the_maximum_is_left_out),
                cmocka_unit_test(no_name_ends_a_line_of_the_file),
                cmocka_unit_test(strange_pods_are_none),
                cmocka_unit_test(pods_without_the_resource_are_not_ours),
                cmocka_unit_test(the_newest_minima_give_way),
                cmocka_unit_test(a_full_group_goes_on_in_another_class),
                cmocka_unit_test(a_groups_class_keeps_its_name_when_its_oldest_pod_ends),
                cmocka_unit_test(no_line_of_the_file_is_too_long),
                cmocka_unit_test(requests_of_memory_become_minima_of_the_smallest_card),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
