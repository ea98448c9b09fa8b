/* card.c: owns NVML's functions that measuring needs, and the windows. Must never take a figure
 * that NVML marks as failed. ABI: docs.nvidia.com/deploy/nvml-api. */
#include "cli/measure/card.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#define WINDOWS_MAX   6000u /* ten minutes */
#define PROCESSES_MAX 256u
#define CLOCK_SM      1
#define MIB_BYTES     1048576.0

/* ---- NVML's ABI ---- */

typedef void *device_handle, *sample_handle;

struct gpm_metric {
        unsigned id;
        int result;
        double value;
        const char *short_name, *long_name, *unit;
};

/* NVML's own array has room for more, but NVML only reads `count` of them. */
struct gpm_get {
        unsigned version, count;
        sample_handle from, to;
        struct gpm_metric metrics[32];
};

struct gpm_support {
        unsigned version, supported;
};

struct utilization {
        unsigned gpu, memory;
};

struct process_info {
        unsigned pid;
        unsigned long long used;
        unsigned gpu_instance, compute_instance;
};

/* FUNCTION(member, symbol, parameters) */
#define FUNCTIONS                                                                                  \
        FUNCTION(by_uuid, nvmlDeviceGetHandleByUUID, (const char *, device_handle *))              \
        FUNCTION(driver, nvmlSystemGetDriverVersion, (char *, unsigned))                           \
        FUNCTION(support, nvmlGpmQueryDeviceSupport, (device_handle, struct gpm_support *))        \
        FUNCTION(sample_alloc, nvmlGpmSampleAlloc, (sample_handle *))                              \
        FUNCTION(sample_free, nvmlGpmSampleFree, (sample_handle))                                  \
        FUNCTION(sample_get, nvmlGpmSampleGet, (device_handle, sample_handle))                     \
        FUNCTION(metrics, nvmlGpmMetricsGet, (struct gpm_get *))                                   \
        FUNCTION(utilization, nvmlDeviceGetUtilizationRates,                                       \
                 (device_handle, struct utilization *))                                            \
        FUNCTION(power, nvmlDeviceGetPowerUsage, (device_handle, unsigned *))                      \
        FUNCTION(clock, nvmlDeviceGetClockInfo, (device_handle, int, unsigned *))                  \
        FUNCTION(link_generation, nvmlDeviceGetMaxPcieLinkGeneration, (device_handle, unsigned *)) \
        FUNCTION(link_width, nvmlDeviceGetMaxPcieLinkWidth, (device_handle, unsigned *))           \
        FUNCTION(processes, nvmlDeviceGetComputeRunningProcesses_v3,                               \
                 (device_handle, unsigned *, struct process_info *))

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

/* A mean; its share of windows is its own, because NVML may lack a figure for a while. */
struct mean {
        double sum;
        unsigned n;
};

struct card {
        void *library;
#define FUNCTION(member, symbol, params) int(*member) params; /* NULL: missing */
        FUNCTIONS
#undef FUNCTION
        device_handle device; /* NULL: not chosen yet */
        bool gpm;
        sample_handle samples[2]; /* the older and the newer one */
        bool sampled;             /* samples[0] holds the begin of the window */
        struct mean means[METRIC_COUNT], busy, power_mean, clock_mean;
        float sm[WINDOWS_MAX], dram[WINDOWS_MAX];
        unsigned sm_count, dram_count, windows;
};

struct card *card_open(const char *folder)
{
        struct card *c = calloc(1, sizeof(*c));
        char path[PATH_MAX];
        int (*init)(void);

        if (!c)
                return NULL;
        (void)snprintf(path, sizeof(path), "%s%slibnvidia-ml.so.1", folder ? folder : "",
                       folder ? "/" : "");
        c->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        init = c->library ? (int (*)(void))dlsym(c->library, "nvmlInit_v2") : NULL;
        if (!init || init() != 0) {
                free(c);
                return NULL;
        }
#define FUNCTION(member, symbol, params) \
        c->member = (__typeof__(c->member))dlsym(c->library, #symbol);
        FUNCTIONS
#undef FUNCTION
        return c;
}

void card_close(struct card *c)
{
        if (!c)
                return;
        for (unsigned i = 0; i < ARRAY_SIZE(c->samples); i++)
                if (c->samples[i] && c->sample_free)
                        (void)c->sample_free(c->samples[i]);
        free(c); /* the library stays: NVML's threads may still use it */
}

static bool has_gpm(struct card *c)
{
        struct gpm_support support = {.version = 1};

        return c->support && c->sample_alloc && c->sample_get && c->metrics &&
               c->support(c->device, &support) == 0 && support.supported &&
               c->sample_alloc(&c->samples[0]) == 0 && c->sample_alloc(&c->samples[1]) == 0;
}

void card_uuid_text(const uint8_t uuid[static 16], char ret[static CARD_UUID_MAX])
{
        size_t n = (size_t)snprintf(ret, CARD_UUID_MAX, "GPU-");

        for (unsigned i = 0; i < 16; i++)
                n += (size_t)snprintf(ret + n, CARD_UUID_MAX - n, "%s%02x",
                                      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

bool card_choose(struct card *c, const uint8_t uuid[static 16])
{
        char text[CARD_UUID_MAX];

        card_uuid_text(uuid, text);
        if (!c->by_uuid || c->by_uuid(text, &c->device) != 0) {
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
        struct gpm_get get = {
                .version = 1, .count = METRIC_COUNT, .from = c->samples[0], .to = c->samples[1]};

        for (unsigned i = 0; i < METRIC_COUNT; i++)
                get.metrics[i].id = metrics[i].number;
        if (c->metrics(&get) != 0)
                return;
        for (unsigned i = 0; i < METRIC_COUNT; i++)
                if (get.metrics[i].result == 0)
                        mean_add(&c->means[i], metrics[i].unit == PERCENT
                                                       ? MIN(get.metrics[i].value * PERCENT, 1.0)
                                                       : get.metrics[i].value * metrics[i].unit);
        if (get.metrics[METRIC_SM].result == 0 && c->sm_count < WINDOWS_MAX)
                c->sm[c->sm_count++] = (float)(get.metrics[METRIC_SM].value * PERCENT);
        if (get.metrics[METRIC_DRAM].result == 0 && c->dram_count < WINDOWS_MAX)
                c->dram[c->dram_count++] = (float)(get.metrics[METRIC_DRAM].value * PERCENT);
        c->windows++;
}

void card_look(struct card *c)
{
        struct utilization rates;
        sample_handle newer;
        unsigned value;

        if (!c->device)
                return;
        if (c->gpm && c->sample_get(c->device, c->samples[1]) == 0) {
                if (c->sampled)
                        take_window(c);
                newer = c->samples[1];
                c->samples[1] = c->samples[0];
                c->samples[0] = newer;
                c->sampled = true;
        }
        if (c->utilization && c->utilization(c->device, &rates) == 0)
                mean_add(&c->busy, rates.gpu * PERCENT);
        if (c->power && c->power(c->device, &value) == 0)
                mean_add(&c->power_mean, value / 1e3);
        if (c->clock && c->clock(c->device, CLOCK_SM, &value) == 0)
                mean_add(&c->clock_mean, value);
}

void card_reset(struct card *c)
{
        memset(c->means, 0, sizeof(c->means));
        c->busy = c->power_mean = c->clock_mean = (struct mean){0};
        c->sm_count = c->dram_count = c->windows = 0;
}

static int compare(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;

        return (x > y) - (x < y);
}

static double p90_of(const float *values, unsigned n)
{
        float *sorted = n ? malloc(n * sizeof(*sorted)) : NULL;
        double result;

        if (!sorted)
                return NAN;
        memcpy(sorted, values, n * sizeof(*sorted));
        qsort(sorted, n, sizeof(*sorted), compare);
        result = sorted[(n - 1) * 9 / 10];
        free(sorted);
        return result;
}

/* What copies reach is four fifths of what the link carries, as in the daemon (nvml.c). */
static double bus_gb_s(const struct card *c)
{
        static const double lane_gb_s[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
        unsigned generation = 0, width = 0;

        if (!c->device || !c->link_generation || !c->link_width ||
            c->link_generation(c->device, &generation) != 0 ||
            c->link_width(c->device, &width) != 0 || generation >= ARRAY_SIZE(lane_gb_s) ||
            generation == 0 || width > 32)
                return NAN;
        return lane_gb_s[generation] * width * 0.8;
}

void card_figures(const struct card *c, struct card_figures *ret)
{
        const struct mean *m = c->means;

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
                .bus_gb_s = bus_gb_s(c),
                .windows = c->windows,
        };
        if (!c->driver || c->driver(ret->driver, (unsigned)sizeof(ret->driver)) != 0)
                ret->driver[0] = 0;
}

int card_others(const struct card *c, const pid_t *own, unsigned n_own)
{
        struct process_info infos[PROCESSES_MAX];
        unsigned count = PROCESSES_MAX, found = 0;

        if (!c->device || !c->processes || c->processes(c->device, &count, infos) != 0)
                return -1;
        count = MIN(count, PROCESSES_MAX);
        for (unsigned i = 0; i < count; i++)
                for (unsigned k = 0; k < n_own; k++)
                        found += infos[i].pid == (unsigned)own[k];
        return (int)(count > MAX(found, n_own) ? count - MAX(found, n_own) : 0);
}
