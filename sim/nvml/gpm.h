/* gpm.h: the structures of NVML's performance metrics (GPM), as nvml.h of NVIDIA has them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct nvmlGpmSample_st {
        bool taken;
        unsigned index;
        uint64_t ns, kernel_ns, h2d_bytes, d2h_bytes;
} * nvmlGpmSample_t;

typedef struct {
        unsigned int metricId;
        int nvmlReturn;
        double value;
        struct {
                char *shortName, *longName, *unit;
        } metricInfo;
} nvmlGpmMetric_t;

typedef struct {
        unsigned int version, numMetrics;
        nvmlGpmSample_t sample1, sample2;
        nvmlGpmMetric_t metrics[]; /* NVML's own header has room for a few hundred */
} nvmlGpmMetricsGet_t;

typedef struct {
        unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;
