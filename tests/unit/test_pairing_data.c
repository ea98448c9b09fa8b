/* test_pairing_data.c: data files of pairs are read, and refused with a sentence that names the
 * line; models are refused if they are of another release. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "pairing/data.h"
#include "pairing/model.h"

#define HEAD "{\"sublet_pairs\": 2, \"gpu\": \"NVIDIA H200\", \"driver\": \"580\"}\n"
#define JOB(n)                                         \
        "{\"job\": {\"sublet_job\": 1, \"name\": \"" n \
        "\"}, \"family\": \"gemm\", \"synthetic\": true}\n"
#define STEPS(n, rate)                                                                         \
        "{\"job\": {\"sublet_job\": 1, \"name\": \"" n "\", \"steps\": {\"per_second\": " rate \
        "}}, \"family\": \"gemm\"}\n"
#define PAIR "{\"pair\": [\"a\", \"b\"], \"way\": \"shared\", \"progress\": [0.6, 0.9]}\n"

static char path[] = "/tmp/test_pairing_data.XXXXXX";

static void put(const char *text)
{
        FILE *f = fopen(path, "we");

        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

static int make_file(void **state)
{
        const int fd = mkstemp(path);

        return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
        return unlink(path);
}

static void jobs_and_pairs_are_read(void **state)
{
        _cleanup_data_ struct data data = {0};
        char error[DATA_ERROR_MAX] = "";

        put(HEAD JOB("a") JOB("b") "\n{\"newer\": 1}\n" PAIR);
        if (data_read(path, &data, error) < 0)
                fail_msg("%s", error);
        assert_string_equal(data.gpu, "NVIDIA H200");
        assert_int_equal(data.n_jobs, 2);
        assert_string_equal(data.jobs[1].job.name, "b");
        assert_string_equal(data.jobs[1].family, "gemm");
        assert_true(data.jobs[1].synthetic);
        assert_int_equal(data.n_pairs, 1);
        assert_int_equal(data.pairs[0].way, WAY_SHARED);
        assert_true(data.pairs[0].jobs[1] == 1 && data.pairs[0].progress[1] == 0.9);
}

#define ALONE(name, way, rate, time)                                                              \
        "{\"alone\": \"" name "\", \"way\": \"" way "\", \"rate\": " rate ", \"time\": " time "}" \
        "\n"

/* The job was slower in the end; its rate in another way, and another job's, are not used. */
static void progress_is_of_the_rate_alone_at_that_time(void **state)
{
        _cleanup_data_ struct data data = {0};
        char error[DATA_ERROR_MAX] = "";

        put(HEAD JOB("a") JOB("b") ALONE("a", "sliced", "100", "1000")
                    ALONE("a", "shared", "10", "1010")
                            ALONE("b", "sliced", "50",
                                  "1000") "{\"pair\": [\"a\", \"b\"], \"way\": \"sliced\", "
                                          "\"progress\": [0.6, 0.9], "
                                          "\"rates\": [60, 45], \"time\": 1020}\n" ALONE(
                                                  "a", "sliced", "60", "1040"));
        if (data_read(path, &data, error) < 0)
                fail_msg("%s", error);
        assert_float_equal(data.pairs[0].progress[0], 0.75, 1e-9);
        assert_float_equal(data.pairs[0].progress[1], 0.9, 1e-9);
        assert_float_equal(data.jobs[0].moved, 2.0 / 3, 1e-9);
        assert_float_equal(data.jobs[1].moved, 0, 1e-9);
}

/* Alone, a does 100 steps a second on all SMs, and 80 on half of them; beside b 40. */
static void a_shared_pair_tells_of_half_of_the_sms(void **state)
{
        _cleanup_data_ struct data data = {0};
        char error[DATA_ERROR_MAX] = "";

        put(HEAD STEPS("a", "10") STEPS("b", "10") ALONE("a", "sliced", "100", "1000")
                    ALONE("b", "sliced", "50", "1000") ALONE("a", "shared", "80", "1010")
                            ALONE("b", "shared", "50",
                                  "1010") "{\"pair\": [\"a\", \"b\"], \"way\": \"shared\", "
                                          "\"progress\": [0.1, 0.1], "
                                          "\"rates\": [40, 45], \"time\": 1010}\n");
        if (data_read(path, &data, error) < 0)
                fail_msg("%s", error);
        assert_float_equal(data.jobs[0].job.steps.half_per_second, 8, 1e-9);
        assert_float_equal(data.jobs[1].job.steps.half_per_second, 10, 1e-9);
        assert_float_equal(data.pairs[0].progress[0], 0.4, 1e-9);
        assert_float_equal(data.pairs[0].progress[1], 0.9, 1e-9);
}

static void of_a_pair_that_was_measured_again_the_mean_is_taken(void **state)
{
        _cleanup_data_ struct data data = {0};
        char error[DATA_ERROR_MAX] = "";

        put(HEAD JOB("a") JOB("b") PAIR
            "{\"pair\": [\"a\", \"b\"], \"way\": \"sliced\", \"progress\": [0.4, 0.5]}\n"
            "{\"pair\": [\"b\", \"a\"], \"way\": \"shared\", \"progress\": [0.7, 0.8]}\n");
        assert_int_equal(data_read(path, &data, error), 0);
        assert_int_equal(data.n_pairs, 2);
        for (unsigned i = 0; i < 2; i++) {
                const struct data_pair *p = &data.pairs[i];
                const bool shared = p->way == WAY_SHARED;

                assert_true(p->jobs[0] == 0 && p->jobs[1] == 1);
                assert_float_equal(p->progress[0], shared ? 0.7 : 0.4, 1e-9);
                assert_float_equal(p->progress[1], shared ? 0.8 : 0.5, 1e-9);
        }
}

static void a_second_file_adds_jobs_of_the_same_card(void **state)
{
        _cleanup_data_ struct data data = {0};
        char error[DATA_ERROR_MAX] = "";

        put(HEAD JOB("a") JOB("b") PAIR);
        assert_int_equal(data_read(path, &data, error), 0);
        assert_int_equal(data_read(path, &data, error), 0);
        assert_int_equal(data.n_jobs, 4);
        assert_int_equal(data.pairs[1].jobs[0], 2);
        put("{\"sublet_pairs\": 2, \"gpu\": \"NVIDIA A100\"}\n");
        assert_int_equal(data_read(path, &data, error), -EINVAL);
        assert_non_null(strstr(error,
                               "the pairs were measured on NVIDIA A100, and those of the earlier "
                               "file on NVIDIA H200; train a model for each"));
}

static void a_pair_that_cannot_be_true_is_left_out(void **state)
{
        _cleanup_data_ struct data data = {0};
        char error[DATA_ERROR_MAX] = "";

        put(HEAD JOB("a") JOB("b") "{\"pair\": [\"a\", \"b\"], \"way\": \"shared\", \"progress\": "
                                   "[0.5, 4.5]}\n" PAIR);
        assert_int_equal(data_read(path, &data, error), 0);
        assert_int_equal(data.n_wrong, 1);
        assert_int_equal(data.n_pairs, 1);
        assert_true(data.pairs[0].way == WAY_SHARED);
}

static void a_wrong_line_is_refused_with_its_number(void **state)
{
        static const struct {
                const char *text, *sentence;
        } cases[] = {
                {"", "line 0: this is no data file: it is empty"},
                {"{}\n", "line 1: this is no data file: its first line has no sublet_pairs"},
                {"{\"sublet_pairs\": 3}\n",
                 "line 1: the file has version 3 (sublet_pairs), and this sublet reads version 2"},
                {"{\"sublet_pairs\": 2}\n", "line 1: the key gpu is missing, or names no card"},
                {"{\"sublet_pairs\": 2, \"gpu\": \"A\", \"idle_w\": -1}\n",
                 "line 1: idle_w is not within 0 to 100000"},
                {HEAD "x\n", "line 2: this is no JSON: "},
                {HEAD JOB("a") JOB("a"), "line 3: there is a second job a"},
                {HEAD "{\"job\": {\"sublet_job\": 1, \"name\": \"a\"}}\n",
                 "line 2: the key family is missing, or names no family of jobs"},
                {HEAD "{\"job\": {\"sublet_job\": 1}, \"family\": \"f\"}\n",
                 "line 2: name is no text"},
                {HEAD PAIR, "line 2: no line before this one has the job a"},
                {HEAD JOB("a") "{\"pair\": [\"a\", \"a\"], \"way\": \"slow\"}\n",
                 "line 3: way is none of sliced, shared, turns"},
                {HEAD JOB("a") "{\"pair\": [\"a\"], \"way\": \"turns\"}\n",
                 "line 3: pair and progress are no lists of two"},
                {HEAD JOB("a") "{\"pair\": [\"a\", \"a\"], \"way\": \"turns\", \"progress\": [1, "
                               "-1]}\n",
                 "line 3: progress is no number from 0"},
                {HEAD ALONE("a", "shared", "1", "1"),
                 "line 2: no line before this one has the job a"},
                {HEAD JOB("a") ALONE("a", "slow", "1", "1"),
                 "line 3: way is none of sliced, shared, turns"},
                {HEAD JOB("a") ALONE("a", "shared", "0", "1"), "line 3: rate is not above 0"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                _cleanup_data_ struct data data = {0};
                char error[DATA_ERROR_MAX] = "";

                put(cases[i].text);
                assert_int_equal(data_read(path, &data, error), -EINVAL);
                if (!strstr(error, cases[i].sentence) || strncmp(error, path, strlen(path)) != 0)
                        fail_msg("%s: %s", cases[i].sentence, error);
        }
}

static void a_model_that_is_none_is_refused(void **state)
{
        char error[MODEL_ERROR_MAX];
        struct model m;

        put("{}");
        assert_int_equal(model_read(path, &m, error), -EINVAL);
        assert_non_null(strstr(error, "this is no model: it has no sublet_pairing"));
        put("{\"sublet_pairing\": 1, \"features\": [\"other\"]}");
        assert_int_equal(model_read(path, &m, error), -EINVAL);
        assert_non_null(strstr(error, "it was trained by another release, with other features"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(jobs_and_pairs_are_read),
                cmocka_unit_test(progress_is_of_the_rate_alone_at_that_time),
                cmocka_unit_test(a_shared_pair_tells_of_half_of_the_sms),
                cmocka_unit_test(of_a_pair_that_was_measured_again_the_mean_is_taken),
                cmocka_unit_test(a_second_file_adds_jobs_of_the_same_card),
                cmocka_unit_test(a_pair_that_cannot_be_true_is_left_out),
                cmocka_unit_test(a_wrong_line_is_refused_with_its_number),
                cmocka_unit_test(a_model_that_is_none_is_refused),
        };

        return cmocka_run_group_tests(tests, make_file, remove_file);
}
