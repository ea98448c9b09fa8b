/* card.c: owns the windows of a measured card. Must never take a figure that NVML marks as failed.
 */
#include "lab/measure/card.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/sort.h"
#include "base/uuid.h"
#include "nvml/nvml_library.h"

#define WINDOWS_MAX   6000u /* windows of ten minutes */
#define PROCESSES_MAX 256u
#define MIB_BYTES     1048576.0

/* METRIC(name, NVML's number, what one unit of NVML is) */
#define PERCENT 0.01
#define METRICS                              \
        METRIC(BUSY, 1, PERCENT)             \
        METRIC(SM, 2, PERCENT)               \
        METRIC(OCCUPANCY, 3, PERCENT)        \
        METRIC(INTEGER, 4, PERCENT)          \
        METRIC(TENSOR, 5, PERCENT)           \
        METRIC(DRAM, 10, PERCENT)            \
        METRIC(FP64, 11, PERCENT)            \
        METRIC(FP32, 12, PERCENT)            \
        METRIC(FP16, 13, PERCENT)            \
        METRIC(TO_HOST, 20, MIB_BYTES / 1e9) \
        METRIC(TO_DEVICE, 21, MIB_BYTES / 1e9)

enum metric {
#define METRIC(name, number, unit) METRIC_##name,
        METRICS
#undef METRIC
                METRIC_COUNT
};

static const struct {
        unsigned number;
        double unit;
} metrics[] = {
#define METRIC(name, number, unit) {number, unit},
        METRICS
#undef METRIC
};

/* A mean. It counts its own windows, because NVML may lack a figure for a while. */
struct mean {
        double sum;
        unsigned n;
};

struct card {
        struct nvml_library nvml;
        nvmlDevice_t device; /* NULL: not chosen yet */
        bool gpm;
        nvmlGpmSample_t samples[2]; /* the older and the newer one */
        bool sampled;               /* samples[0] holds the begin of the window */
        struct mean means[METRIC_COUNT], busy, power_mean, clock_mean;
        float sm[WINDOWS_MAX], dram[WINDOWS_MAX];
        unsigned sm_count, dram_count, windows;
};

struct card *card_open(const char *folder)
{
        struct card *c = calloc(1, sizeof(*c));

        if (!c || nvml_library_load(folder, &c->nvml) < 0 ||
            c->nvml.nvmlInit_v2() != NVML_SUCCESS) {
                free(c);
                return NULL;
        }
        return c;
}

void card_close(struct card *c)
{
        if (!c)
                return;
        for (unsigned i = 0; i < ARRAY_SIZE(c->samples); i++)
                if (c->samples[i])
                        (void)c->nvml.nvmlGpmSampleFree(c->samples[i]);
        free(c);
}

static bool has_gpm(struct card *c)
{
        nvmlGpmSupport_t support = {.version = NVML_GPM_SUPPORT_V1};

        return c->nvml.nvmlGpmQueryDeviceSupport(c->device, &support) == NVML_SUCCESS &&
               support.isSupportedDevice &&
               c->nvml.nvmlGpmSampleAlloc(&c->samples[0]) == NVML_SUCCESS &&
               c->nvml.nvmlGpmSampleAlloc(&c->samples[1]) == NVML_SUCCESS;
}

bool card_choose(struct card *c, const uint8_t uuid[static 16])
{
        char text[UUID_TEXT_MAX];

        if (c->nvml.nvmlDeviceGetHandleByUUID(uuid_format(uuid, text), &c->device) !=
            NVML_SUCCESS) {
                c->device = NULL;
                return false;
        }
        c->gpm = has_gpm(c);
        return true;
}

static void mean_add(struct mean *m, double value)
{
        if (!isfinite(value))
                return;
        m->sum += value;
        m->n++;
}

static double mean_of(const struct mean *m)
{
        return m->n ? m->sum / m->n : NAN;
}

/* Takes the figures between the older sample and the newer one. */
static void take_window(struct card *c)
{
        nvmlGpmMetricsGet_t get = {.version = NVML_GPM_METRICS_GET_V1,
                                   .numMetrics = METRIC_COUNT,
                                   .sample1 = c->samples[0],
                                   .sample2 = c->samples[1]};

        for (unsigned i = 0; i < METRIC_COUNT; i++)
                get.metrics[i].metricId = metrics[i].number;
        if (c->nvml.nvmlGpmMetricsGet(&get) != NVML_SUCCESS)
                return;
        for (unsigned i = 0; i < METRIC_COUNT; i++)
                if (get.metrics[i].nvmlReturn == NVML_SUCCESS)
                        mean_add(&c->means[i], metrics[i].unit == PERCENT
                                                       ? MIN(get.metrics[i].value * PERCENT, 1.0)
                                                       : get.metrics[i].value * metrics[i].unit);
        if (get.metrics[METRIC_SM].nvmlReturn == NVML_SUCCESS && c->sm_count < WINDOWS_MAX)
                c->sm[c->sm_count++] = (float)(get.metrics[METRIC_SM].value * PERCENT);
        if (get.metrics[METRIC_DRAM].nvmlReturn == NVML_SUCCESS && c->dram_count < WINDOWS_MAX)
                c->dram[c->dram_count++] = (float)(get.metrics[METRIC_DRAM].value * PERCENT);
        c->windows++;
}

void card_look(struct card *c)
{
        nvmlUtilization_t rates;
        nvmlGpmSample_t newer;
        unsigned value;

        if (!c->device)
                return;
        if (c->gpm && c->nvml.nvmlGpmSampleGet(c->device, c->samples[1]) == NVML_SUCCESS) {
                if (c->sampled)
                        take_window(c);
                newer = c->samples[1];
                c->samples[1] = c->samples[0];
                c->samples[0] = newer;
                c->sampled = true;
        }
        if (c->nvml.nvmlDeviceGetUtilizationRates(c->device, &rates) == NVML_SUCCESS)
                mean_add(&c->busy, rates.gpu * PERCENT);
        if (c->nvml.nvmlDeviceGetPowerUsage(c->device, &value) == NVML_SUCCESS)
                mean_add(&c->power_mean, value / 1e3);
        if (c->nvml.nvmlDeviceGetClockInfo(c->device, NVML_CLOCK_SM, &value) == NVML_SUCCESS)
                mean_add(&c->clock_mean, value);
}

void card_reset(struct card *c)
{
        memset(c->means, 0, sizeof(c->means));
        c->busy = c->power_mean = c->clock_mean = (struct mean){0};
        c->sm_count = c->dram_count = c->windows = 0;
}

static double p90_of(const float *values, unsigned n)
{
        double *sorted = n ? malloc(n * sizeof(*sorted)) : NULL;
        double result;

        if (!sorted)
                return NAN;
        for (unsigned i = 0; i < n; i++)
                sorted[i] = values[i];
        sort_doubles(sorted, n);
        result = sorted[(n - 1) * 9 / 10];
        free(sorted);
        return result;
}

void card_figures(const struct card *c, struct card_figures *ret)
{
        const struct mean *m = c->means;
        const uint64_t bus = c->device ? nvml_bus_bytes_s(&c->nvml, c->device) : 0;

        *ret = (struct card_figures){
                .busy = mean_of(m[METRIC_BUSY].n ? &m[METRIC_BUSY] : &c->busy),
                .sm = mean_of(&m[METRIC_SM]),
                .occupancy = mean_of(&m[METRIC_OCCUPANCY]),
                .dram = mean_of(&m[METRIC_DRAM]),
                .tensor = mean_of(&m[METRIC_TENSOR]),
                .fp64 = mean_of(&m[METRIC_FP64]),
                .fp32 = mean_of(&m[METRIC_FP32]),
                .fp16 = mean_of(&m[METRIC_FP16]),
                .integer = mean_of(&m[METRIC_INTEGER]),
                .sm_p90 = p90_of(c->sm, c->sm_count),
                .dram_p90 = p90_of(c->dram, c->dram_count),
                .to_device_gb_s = mean_of(&m[METRIC_TO_DEVICE]),
                .to_host_gb_s = mean_of(&m[METRIC_TO_HOST]),
                .power_w = mean_of(&c->power_mean),
                .clock_mhz = mean_of(&c->clock_mean),
                .bus_gb_s = bus ? (double)bus / 1e9 : NAN,
                .windows = c->windows,
        };
        if (c->nvml.nvmlSystemGetDriverVersion(ret->driver, (unsigned)sizeof(ret->driver)) !=
            NVML_SUCCESS)
                ret->driver[0] = 0;
}

int card_others(const struct card *c, const pid_t *own, unsigned n_own)
{
        nvmlProcessInfo_t infos[PROCESSES_MAX];
        unsigned count = PROCESSES_MAX, found = 0;

        if (!c->device || c->nvml.nvmlDeviceGetComputeRunningProcesses_v3(c->device, &count,
                                                                          infos) != NVML_SUCCESS)
                return -1;
        count = MIN(count, PROCESSES_MAX);
        for (unsigned i = 0; i < count; i++)
                for (unsigned k = 0; k < n_own; k++)
                        found += infos[i].pid == (unsigned)own[k];
        return (int)(count > MAX(found, n_own) ? count - MAX(found, n_own) : 0);
}
