/* test_job.c: job files are read with all their fields, written again with the same, and refused
 * with a sentence that names the file and the field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "job/job.h"

#define WHOLE                                                                                   \
        "{\"sublet_job\": 1, \"name\": \"resnet50\", \"command\": [\"python3\", \"train.py\"]," \
        "\"measured\": {\"gpu\": \"NVIDIA H200\", \"seconds\": 12.1, \"sms\": 132},"            \
        "\"steps\": {\"unit\": \"step\", \"count\": 120, \"per_second\": 9.9},"                 \
        "\"memory\": {\"peak_bytes\": 9000000000},"                                             \
        "\"gpu\": {\"sm\": 0.9, \"fp64\": 0, \"dram_p90\": 0.8}, \"launch\": {\"idle\": 0.03}," \
        "\"kernels\": [{\"name\": \"gemm\", \"grid\": [8, 4, 1], \"block\": [128, 1, 1],"       \
        "\"waves\": 3.2, \"share\": 0.18, \"graph\": true}], \"other_share\": 0.04, \"new\": {}}"

static void decode(const char *text, struct job *ret)
{
        char error[JOB_ERROR_MAX] = "";

        if (job_decode(text, strlen(text), "a.json", ret, error) < 0)
                fail_msg("%s", error);
}

static void check_whole(const struct job *job)
{
        assert_string_equal(job->name, "resnet50");
        assert_string_equal(job->command[1], "train.py");
        assert_null(job->command[2]);
        assert_string_equal(job->measured.gpu, "NVIDIA H200");
        assert_true(job->measured.sms == 132 && job->memory.peak_bytes == 9e9);
        assert_true(job->gpu.sm == 0.9 && job->gpu.fp64 == 0 && job->launch.idle == 0.03);
        assert_int_equal(job->n_kernels, 1);
        assert_string_equal(job->kernels[0].name, "gemm");
        assert_true(job->kernels[0].grid[1] == 4 && job->kernels[0].block[0] == 128);
        assert_true(job->kernels[0].waves == 3.2 && job->kernels[0].graph);
        assert_true(job->other_share == 0.04);
}

static void what_is_not_in_the_file_is_not_a_number(void **state)
{
        _cleanup_job_ struct job job;

        decode(WHOLE, &job);
        check_whole(&job);
        assert_true(isnan(job.gpu.dram) && isnan(job.copies.device_gb_s));
        assert_true(isnan(job.kernels[0].registers));
        assert_string_equal(job.measured.driver, "");
}

static void a_written_job_is_read_again(void **state)
{
        _cleanup_job_ struct job job;
        _cleanup_job_ struct job again;
        char *text = NULL;
        size_t length;
        FILE *out = open_memstream(&text, &length);

        decode(WHOLE, &job);
        assert_int_equal(job_write(&job, out), 0);
        (void)fclose(out);
        decode(text, &again);
        check_whole(&again);
        assert_null(strstr(text, "dram\"")); /* not known, not written */
        free(text);
}

static void a_wrong_file_is_refused_with_its_name_and_the_field(void **state)
{
        static const struct {
                const char *text, *sentence;
        } cases[] = {
                {"x", "a.json: this is no JSON"},
                {"[]", "a.json: this is no job file: it has no sublet_job; sublet measure writes "
                       "job files"},
                {"{\"sublet_job\": 2}", "a.json: the file has version 2 (sublet_job), and this "
                                        "sublet reads version 1; measure the job again"},
                {"{\"sublet_job\": 1}", "a.json: name is no text"},
                {"{\"sublet_job\": 1, \"name\": \"\"}", "a.json: name is empty"},
                {"{\"sublet_job\": 1, \"name\": \"a\\u001b\"}",
                 "a.json: name contains a character that cannot be shown"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"gpu\": {\"sm\": 7}}",
                 "a.json: gpu.sm is 7, which is not within 0 to 1.1"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"gpu\": {\"sm\": \"7\"}}",
                 "a.json: gpu.sm is no number"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"steps\": 3}",
                 "a.json: steps is no object"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"steps\": {\"unit\": "
                 "\"0123456789012345\"}}",
                 "a.json: steps.unit has 16 bytes, and 15 are the most"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"kernels\": {}}",
                 "a.json: kernels is no list"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"kernels\": [{}, {\"waves\": -1}]}",
                 "a.json: kernels[1].waves is -1, which is not within 0 to 1e+12"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"kernels\": [{\"block\": [1]}]}",
                 "a.json: kernels[0].block is no list of three numbers"},
                {"{\"sublet_job\": 1, \"name\": \"a\", \"command\": [1]}",
                 "a.json: command[0] is no text"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char error[JOB_ERROR_MAX] = "";
                struct job job;

                assert_int_equal(
                        job_decode(cases[i].text, strlen(cases[i].text), "a.json", &job, error),
                        -EINVAL);
                if (strncmp(error, cases[i].sentence, strlen(cases[i].sentence)) != 0)
                        fail_msg("%s: %s", cases[i].text, error);
        }
}

static void more_kernels_than_the_most_are_refused(void **state)
{
        char text[1024] = "{\"sublet_job\": 1, \"name\": \"a\", \"kernels\": [{}",
             error[JOB_ERROR_MAX];
        struct job job;

        for (unsigned i = 0; i < JOB_KERNELS_MAX; i++)
                strcat(text, ", {}");
        strcat(text, "]}");
        assert_int_equal(job_decode(text, strlen(text), "a.json", &job, error), -EINVAL);
        assert_string_equal(error, "a.json: kernels has 65 entries, and 64 are the most");
}

static void a_missing_file_or_a_folder_is_refused(void **state)
{
        char error[JOB_ERROR_MAX];
        struct job job;

        assert_int_equal(job_read("/nowhere/a.json", &job, error), -ENOENT);
        assert_string_equal(error, "/nowhere/a.json: cannot read it: No such file or directory");
        assert_int_equal(job_read("/", &job, error), -EISDIR);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_not_in_the_file_is_not_a_number),
                cmocka_unit_test(a_written_job_is_read_again),
                cmocka_unit_test(a_wrong_file_is_refused_with_its_name_and_the_field),
                cmocka_unit_test(more_kernels_than_the_most_are_refused),
                cmocka_unit_test(a_missing_file_or_a_folder_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
