/* test_extender.c: what the scheduler's extender knows of a cluster, and where it finds a place.
 * The predictions are the test's own. */
#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/macros.h"
#include "kubernetes/extender/cluster.h"
#include "kubernetes/extender/pending.h"
#include "kubernetes/extender/place_jobs.h"
#include "kubernetes/extender/extender_pod.h"

/* ---- predictions ---- */

#define JOBS 6

/* What two jobs make together, each half; below 2 × the bound the bound is not kept. */
struct jobs {
        double sum[JOBS][JOBS];
};

static struct jobs table;

int jobs_predict(struct jobs *j, const struct jobs_pair *pair, double *ret_sum)
{
        const double sum = j->sum[pair->jobs[0]][pair->jobs[1]];

        if (sum == 0)
                return -ENOENT;
        if (sum / 2 < fmax(pair->bounds[0], pair->bounds[1]))
                return -ERANGE;
        *ret_sum = sum;
        return 0;
}

double jobs_slack(struct jobs *j, const struct jobs_pair *pair)
{
        return j->sum[pair->jobs[0]][pair->jobs[1]] / 2 / fmax(pair->bounds[0], pair->bounds[1]);
}

void jobs_why(struct jobs *j, const struct jobs_pair *pair, char ret[static JOBS_WHY_MAX])
{
        (void)snprintf(ret, JOBS_WHY_MAX, "%u beside %u", pair->jobs[0], pair->jobs[1]);
}

static void all_sums(double sum)
{
        for (unsigned a = 0; a < JOBS; a++)
                for (unsigned b = 0; b < JOBS; b++)
                        table.sum[a][b] = sum;
}

static void set_sum(unsigned a, unsigned b, double sum)
{
        table.sum[a][b] = table.sum[b][a] = sum;
}

static struct place_pod job(int number, double bound)
{
        return (struct place_pod){.job = number, .bound = bound, .gpus = 1};
}

static struct place try_place(unsigned gpus, const struct place_pod *running, size_t n,
                              struct place_pod one)
{
        struct place p = {0};

        assert_int_equal(place_try(&table, gpus, running, n, &one, &p), 0);
        return p;
}

/* ---- places ---- */

static void a_free_gpu_is_taken_alone(void **state)
{
        const struct place_pod running[] = {job(0, 0.5)};
        struct place p = try_place(2, running, 1, job(1, 0.9));

        assert_int_equal(p.how, PLACE_ALONE);
        assert_true(p.gain == 1);
        assert_int_equal(try_place(1, NULL, 0, job(1, 0.9)).how, PLACE_ALONE);
        assert_int_equal(try_place(0, NULL, 0, job(1, 0.9)).how, PLACE_NOT);
}

static void the_gain_is_what_the_node_makes_more(void **state)
{
        const struct place_pod running[] = {job(0, 0.5)};
        struct place p;

        all_sums(0.8);
        set_sum(0, 1, 1.5);
        p = try_place(1, running, 1, job(1, 0.6));
        assert_int_equal(p.how, PLACE_BESIDE);
        assert_true(fabs(p.gain - 0.5) < 1e-5);
        p = try_place(1, running, 1, job(2, 0.6));
        assert_int_equal(p.how, PLACE_NOT);
        assert_string_equal(p.why, "2 beside 0");
        p = try_place(1, running, 1, job(1, 0.8));
        assert_int_equal(p.how, PLACE_NOT);
}

static void the_bound_of_the_running_job_counts(void **state)
{
        const struct place_pod running[] = {job(0, 0.8)};

        all_sums(1.5);
        assert_int_equal(try_place(1, running, 1, job(1, 0.5)).how, PLACE_NOT);
}

static void pods_that_are_not_measured_share_with_nobody(void **state)
{
        const struct place_pod unknown = {.job = -ENOENT, .gpus = 1};
        const struct place_pod two = {.job = 0, .bound = 0.1, .gpus = 2};
        struct place_pod running[] = {unknown, job(0, 0.1)};

        all_sums(1.8);
        assert_int_equal(try_place(2, running, 2, job(1, 0.1)).how, PLACE_BESIDE);
        assert_int_equal(try_place(1, &unknown, 1, job(1, 0.1)).how, PLACE_NOT);
        assert_int_equal(try_place(2, &two, 1, job(1, 0.1)).how, PLACE_NOT);
        assert_int_equal(try_place(3, &two, 1, job(1, 0.1)).how, PLACE_ALONE);
        /* More of them than GPUs share among themselves. */
        running[1] = unknown;
        assert_int_equal(try_place(1, running, 2, job(1, 0.1)).how, PLACE_NOT);
}

/* The most that jobs from `at` on can make, if each is put on a GPU with one other at most; less
 * than 0: not all bounds are kept. */
static bool no_free_gpu;

static double best_by_hand(const struct place_pod *pods, size_t n, size_t at, int *gpus, int n_gpus)
{
        double best = -1;

        if (at == n) {
                double sum = 0;

                for (int g = 0; g < n_gpus; g++) {
                        const int *here = &gpus[2 * g];
                        double both = here[0] >= 0;

                        if (no_free_gpu && here[0] == (int)n - 1 && here[1] < 0)
                                return -1; /* the others would have to move */

                        if (here[1] >= 0) {
                                const struct jobs_pair p = {
                                        {(unsigned)pods[here[0]].job, (unsigned)pods[here[1]].job},
                                        {pods[here[0]].bound, pods[here[1]].bound}};

                                if (jobs_predict(&table, &p, &both) < 0)
                                        return -1;
                        }
                        sum += both;
                }
                return sum;
        }
        for (int g = 0; g < n_gpus; g++)
                for (int k = 0; k < 2; k++)
                        if (gpus[2 * g + k] < 0 && (k == 0 || gpus[2 * g] >= 0)) {
                                gpus[2 * g + k] = (int)at;
                                best = fmax(best, best_by_hand(pods, n, at + 1, gpus, n_gpus));
                                gpus[2 * g + k] = -1;
                                break;
                        }
        return best;
}

static double by_hand(const struct place_pod *pods, size_t n, int n_gpus)
{
        int gpus[8];

        for (size_t i = 0; i < ARRAY_SIZE(gpus); i++)
                gpus[i] = -1;
        return best_by_hand(pods, n, 0, gpus, n_gpus);
}

static void random_nodes_are_filled_as_by_trying_all_ways(void **state)
{
        unsigned beside = 0, refused = 0;

        srandom(5);
        for (unsigned round = 0; round < 3000; round++) {
                const int gpus = 1 + (int)(random() % 3);
                const size_t n = (size_t)random() % 6;
                struct place_pod pods[6];
                double before, after;
                struct place p;

                for (unsigned a = 0; a < JOBS; a++)
                        for (unsigned b = 0; b <= a; b++)
                                set_sum(a, b, (double)(random() % 10) / 10 + 1);
                for (size_t i = 0; i <= n; i++)
                        pods[i] = job((int)(random() % JOBS), (double)(random() % 4) / 10 + 0.5);
                no_free_gpu = false;
                before = by_hand(pods, n, gpus);
                no_free_gpu = n >= (size_t)gpus;
                after = by_hand(pods, n + 1, gpus);
                p = try_place((unsigned)gpus, pods, n, pods[n]);
                assert_int_equal(p.how == PLACE_NOT, after < 0);
                if (after >= 0)
                        assert_true(fabs(p.gain - (after - before)) < 1e-4);
                beside += p.how == PLACE_BESIDE;
                refused += p.how == PLACE_NOT;
        }
        assert_true(beside > 300 && refused > 300);
}

/* ---- pods and nodes ---- */

static const struct pod_rules rules = {
        .resource = "sublet.dev/gpu", .devices_per_gpu = 100, .bound = 0.7};

static struct pod read_pod(const char *text)
{
        json_t *json = json_loads(text, 0, NULL);
        struct pod pod;

        assert_non_null(json);
        assert_int_equal(pod_read(json, &rules, &pod), 0);
        json_decref(json);
        return pod;
}

#define POD(annotations, more)                                                             \
        "{\"metadata\":{\"uid\":\"u\",\"name\":\"n\",\"namespace\":\"s\",\"annotations\":" \
        "{" annotations "}},\"spec\":{" more "}}"
#define GPUS(n) "{\"resources\":{\"limits\":{\"sublet.dev/gpu\":" n "}}}"

static void gpus_are_counted_as_kubernetes_counts_them(void **state)
{
        assert_int_equal(read_pod(POD("", "")).gpus, 0);
        assert_int_equal(read_pod(POD("", "\"containers\":[" GPUS("\"1\"") "]")).gpus, 1);
        assert_int_equal(read_pod(POD("", "\"containers\":[" GPUS("\"1\"") "," GPUS("2") "]")).gpus,
                         3);
        assert_int_equal(
                read_pod(POD("", "\"containers\":[" GPUS("\"1\"") "],\"initContainers\":[" GPUS(
                                         "\"4\"") "]"))
                        .gpus,
                4);
        assert_int_equal(
                read_pod(POD("", "\"containers\":[" GPUS("-3") "," GPUS("\"x\"") "]")).gpus, 0);
}

static void bounds_are_parts_or_percentages(void **state)
{
        static const struct {
                const char *text;
                double bound;
                bool wrong;
        } rows[] = {{"0.8", 0.8, false}, {"55%", 0.55, false}, {"1", 0.7, true},
                    {"0", 0.7, true},    {"-0.5", 0.7, true},  {"0.5x", 0.7, true},
                    {"nan", 0.7, true},  {"1e-1", 0.7, true}};

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                char text[300];
                struct pod p;

                (void)snprintf(text, sizeof(text), POD("\"sublet.dev/qos\":\"%s\"", ""),
                               rows[i].text);
                p = read_pod(text);
                assert_true(fabs(p.bound - rows[i].bound) < 1e-9);
                assert_int_equal(p.bound_is_wrong, rows[i].wrong);
        }
}

static void products_are_compared_as_labels_write_them(void **state)
{
        assert_true(node_may_have("NVIDIA-H200", "NVIDIA H200"));
        assert_true(node_may_have("", "NVIDIA H200"));
        assert_true(node_may_have("NVIDIA-H200", ""));
        assert_false(node_may_have("NVIDIA-H200-NVL", "NVIDIA H200"));
        assert_false(node_may_have("NVIDIA-H20", "NVIDIA H200"));
}

/* ---- the cluster ---- */

static struct pod on(const char *uid, const char *node)
{
        struct pod p = {.gpus = 1, .bound = 0.7};

        (void)snprintf(p.uid, sizeof(p.uid), "%s", uid);
        (void)snprintf(p.node, sizeof(p.node), "%s", node);
        return p;
}

static size_t count(const struct cluster *c, const char *node)
{
        size_t n = 0;

        for (const struct cluster_pod *p = cluster_pods(c, node); p; p = p->next)
                n++;
        return n;
}

static void pods_move_end_and_are_listed_anew(void **state)
{
        struct cluster *c = cluster_new();
        struct node node = {.name = "a", .gpus = 2};
        struct pod p;

        assert_false(cluster_is_known(c));
        cluster_begin_pods(c);
        for (unsigned i = 0; i < 100; i++) {
                char uid[16];

                (void)snprintf(uid, sizeof(uid), "u%u", i);
                p = on(uid, i % 2 ? "a" : "b");
                assert_int_equal(cluster_put_pod(c, &p), 0);
                assert_int_equal(cluster_put_pod(c, &p), 0); /* told twice, there once */
        }
        cluster_end_pods(c);
        assert_int_equal(count(c, "a"), 50);
        p = on("u1", "b");
        assert_int_equal(cluster_put_pod(c, &p), 0);
        p = on("u3", "a");
        p.ended = true;
        assert_int_equal(cluster_put_pod(c, &p), 0);
        cluster_drop_pod(c, "u5");
        cluster_drop_pod(c, "never heard of");
        assert_int_equal(count(c, "a"), 47);
        assert_int_equal(count(c, "b"), 51);
        assert_null(cluster_node(c, "a"));
        cluster_begin_nodes(c);
        assert_int_equal(cluster_put_node(c, &node), 0);
        cluster_end_nodes(c);
        assert_true(cluster_is_known(c));
        assert_int_equal(cluster_node(c, "a")->gpus, 2);
        /* A list with one pod and no node. */
        cluster_begin_pods(c);
        p = on("u7", "a");
        assert_int_equal(cluster_put_pod(c, &p), 0);
        cluster_end_pods(c);
        cluster_begin_nodes(c);
        cluster_end_nodes(c);
        assert_int_equal(cluster_count_pods(c), 1);
        assert_int_equal(count(c, "a"), 1);
        assert_int_equal(count(c, "b"), 0);
        assert_null(cluster_node(c, "a"));
        cluster_free(c);
}

static void a_pod_is_awaited_until_it_is_bound_or_its_time_is_over(void **state)
{
        struct cluster *c = cluster_new();
        struct pending p = {0};
        struct pod bound = on("first", "a");

        assert_false(pending_any(&p, c, "next", 1));
        pending_add(&p, "first", 1);
        assert_false(pending_any(&p, c, "first", 2)); /* not for itself */
        assert_true(pending_any(&p, c, "next", 2));
        assert_true(pending_any(&p, c, "next", PENDING_NS));
        assert_false(pending_any(&p, c, "next", PENDING_NS + 1));
        pending_add(&p, "first", 10);
        assert_true(pending_any(&p, c, "next", 11));
        assert_int_equal(cluster_put_pod(c, &bound), 0);
        assert_false(pending_any(&p, c, "next", 12));
        for (unsigned i = 0; i < 3 * PENDING_MAX; i++) {
                char uid[16];

                (void)snprintf(uid, sizeof(uid), "u%u", i);
                pending_add(&p, uid, 20 + i);
        }
        assert_true(pending_any(&p, c, "next", 100));
        cluster_free(c);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_free_gpu_is_taken_alone),
                cmocka_unit_test(the_gain_is_what_the_node_makes_more),
                cmocka_unit_test(the_bound_of_the_running_job_counts),
                cmocka_unit_test(pods_that_are_not_measured_share_with_nobody),
                cmocka_unit_test(random_nodes_are_filled_as_by_trying_all_ways),
                cmocka_unit_test(gpus_are_counted_as_kubernetes_counts_them),
                cmocka_unit_test(bounds_are_parts_or_percentages),
                cmocka_unit_test(products_are_compared_as_labels_write_them),
                cmocka_unit_test(pods_move_end_and_are_listed_anew),
                cmocka_unit_test(a_pod_is_awaited_until_it_is_bound_or_its_time_is_over),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
