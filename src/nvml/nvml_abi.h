/* nvml_abi.h: the part of NVML's binary interface that we use, under NVML's names.
 * Reference: docs.nvidia.com/deploy/nvml-api. */
#pragma once

typedef enum {
        NVML_SUCCESS = 0,
        NVML_ERROR_UNINITIALIZED = 1,
        NVML_ERROR_INVALID_ARGUMENT = 2,
        NVML_ERROR_NOT_SUPPORTED = 3,
        NVML_ERROR_NOT_FOUND = 6,
        NVML_ERROR_INSUFFICIENT_SIZE = 7,
        NVML_ERROR_DRIVER_NOT_LOADED = 9,
        NVML_ERROR_FUNCTION_NOT_FOUND = 13,
        NVML_ERROR_GPU_IS_LOST = 15,
        NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

#define NVML_CLOCK_SM           1 /* nvmlClockType_t */
#define NVML_DEVICE_MIG_ENABLE  1
#define NVML_GPM_METRICS_GET_V1 1
#define NVML_GPM_SUPPORT_V1     1

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

typedef struct {
        unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
        unsigned int gpu, memory;
} nvmlUtilization_t;

/* Calls whose names end in _v2 or _v3 write all of it. Calls without such an ending write only pid
 * and usedGpuMemory. */
typedef struct {
        unsigned int pid;
        unsigned long long usedGpuMemory;
        unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
        char busIdLegacy[16];
        unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
        char busId[32];
} nvmlPciInfo_t;

typedef struct {
        unsigned int metricId;
        nvmlReturn_t nvmlReturn;
        double value;
        struct {
                char *shortName, *longName, *unit;
        } metricInfo;
} nvmlGpmMetric_t;

/* NVML's own array has room for a few hundred, but NVML only uses numMetrics of them. */
#define NVML_GPM_METRICS_MAX 32
typedef struct {
        unsigned int version, numMetrics;
        nvmlGpmSample_t sample1, sample2;
        nvmlGpmMetric_t metrics[NVML_GPM_METRICS_MAX];
} nvmlGpmMetricsGet_t;

typedef struct {
        unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;
