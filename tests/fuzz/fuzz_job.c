/* fuzz_job.c: any bytes as a job file lead to an error with a sentence, or to a job that is written
 * and read again with the same bytes. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "job/job.h"

static char *write_job(const struct job *job, size_t *ret_length)
{
        char *text = NULL;
        FILE *out = open_memstream(&text, ret_length);

        FUZZ_CHECK(out && job_write(job, out) == 0);
        (void)fclose(out);
        return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        char error[JOB_ERROR_MAX] = "", *once, *twice;
        size_t length, length_again;
        struct job job, again;

        if (job_decode((const char *)data, size, "input", &job, error) < 0) {
                FUZZ_CHECK(memchr(error, '\0', sizeof(error)) && error[0]);
                return 0;
        }
        FUZZ_CHECK(job.name[0] && job.n_kernels <= JOB_KERNELS_MAX);
        once = write_job(&job, &length);
        FUZZ_CHECK(job_decode(once, length, "written", &again, error) == 0);
        twice = write_job(&again, &length_again);
        FUZZ_CHECK(length == length_again && memcmp(once, twice, length) == 0);
        free(once);
        free(twice);
        job_free(&job);
        job_free(&again);
        return 0;
}
