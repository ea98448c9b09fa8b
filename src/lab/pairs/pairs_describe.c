/* pairs_describe.c: makes a job file's figures of what a worker, NVML and the clock say. Must never
 * take a number from a worker's file that is no number. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_text.h"
#include "base/macros.h"
#include "base/sort.h"
#include "base/units.h"
#include "base/uuid.h"
#include "lab/measure/report.h"
#include "lab/pairs/bench_pairs.h"

static double number(const json_t *object, const char *field)
{
        const json_t *value = json_object_get(object, field);

        return json_is_number(value) ? json_number_value(value) : NAN;
}

int pairs_card_read(const char *path, struct job *ret, uint8_t ret_uuid[static 16])
{
        json_auto_t *json = json_load_file(path, 0, NULL);
        const char *uuid = json_string_value(json_object_get(json, "uuid")),
                   *gpu = json_string_value(json_object_get(json, "gpu"));

        if (!uuid || !gpu || uuid_parse(uuid, ret_uuid) < 0)
                return -EINVAL;
        job_init(ret);
        (void)snprintf(ret->measured.gpu, sizeof(ret->measured.gpu), "%s", gpu);
        ret->measured.sms = number(json, "sms");
        ret->measured.memory_bytes = number(json, "memory_bytes");
        ret->measured.l2_bytes = number(json, "l2_bytes");
        ret->measured.dram_gb_s = number(json, "dram_gb_s");
        ret->measured.clock_mhz = number(json, "clock_mhz");
        return 0;
}

static void take_kernel(struct job_kernel *k, const json_t *json)
{
        job_kernel_init(k);
        (void)snprintf(k->name, sizeof(k->name), "%s", text_at(json, "name"));
        for (unsigned i = 0; i < 3; i++) {
                k->grid[i] = json_number_value(json_array_get(json_object_get(json, "grid"), i));
                k->block[i] = json_number_value(json_array_get(json_object_get(json, "block"), i));
        }
        k->graph = json_is_true(json_object_get(json, "graph"));
#define KERNEL(field, least, most) k->field = number(json, #field);
#include "job/job_fields.def"
}

/* Sets the rate, which is the median, and how far the rates are from each other. */
static void take_rates(struct job *job, const double *rates, unsigned n, double window_s)
{
        double sorted[16];

        n = MIN(n, (unsigned)ARRAY_SIZE(sorted));
        memcpy(sorted, rates, n * sizeof(*sorted));
        sort_doubles(sorted, n);
        job->steps.per_second = sorted[n / 2];
        job->steps.spread =
                job->steps.per_second > 0 ? (sorted[n - 1] - sorted[0]) / job->steps.per_second : 0;
        job->steps.count = 0;
        for (unsigned i = 0; i < n; i++)
                job->steps.count += rates[i] * window_s;
        job->measured.seconds = n * window_s;
}

int pairs_describe(struct job *job, const char *path, const struct card_figures *figures,
                   const double *rates, unsigned n, double step, double window_s)
{
        json_auto_t *json = json_load_file(path, 0, NULL);
        const json_t *kernels = json_object_get(json, "kernels");
        const double gap = number(json, "gap"), busy = number(json, "busy_s_per_step"),
                     launches = number(json, "launches_per_step");
        size_t i;
        json_t *kernel;

        if (!json_is_array(kernels) || json_array_size(kernels) == 0 || n == 0)
                return -EINVAL;
        (void)units_format_utc(time(NULL), job->measured.time);
        if (figures)
                report_card(figures, job);
        take_rates(job, rates, n, window_s);
        (void)strcpy(job->steps.unit, isnan(gap) ? "step" : "launch");
        job->memory.peak_bytes = number(json_object_get(json, "memory"), "peak_bytes");
        if (json_is_true(json_object_get(json_array_get(kernels, 0), "graph"))) {
                job->launch.per_second = 0; /* what a graph launches does not count */
                job->launch.graphs_per_second = job->steps.per_second;
        } else {
                job->launch.per_second = job->steps.per_second * (isnan(launches) ? 1 : launches);
                job->launch.graphs_per_second = 0;
        }
        if (!isnan(gap)) { /* the worker knows how long the host pauses */
                const double pause = gap > 0 ? step * gap / (1 - gap) : 0;

                job->launch.idle = MIN(MAX(1 - job->steps.per_second * step, 0), 1);
                job->launch.host_s_per_step = pause;
        } else if (!isnan(busy)) {
                job->launch.idle = MIN(MAX(1 - job->steps.per_second * busy, 0), 1);
        }
        job->copies.to_device_gb_s = job->copies.to_host_gb_s = job->copies.device_gb_s = 0;
        job->other_share = number(json, "other_share");
        if (isnan(job->other_share))
                job->other_share = 0;
        job->kernels = calloc(JOB_KERNELS_MAX, sizeof(*job->kernels));
        json_array_foreach (kernels, i, kernel)
                if (job->kernels && i < JOB_KERNELS_MAX)
                        take_kernel(&job->kernels[job->n_kernels++], kernel);
        return job->n_kernels ? 0 : -EINVAL;
}
