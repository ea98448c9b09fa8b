/* stub_driver.c: a driver and an NVML in one, with the few functions that the command line calls.
 * The environment sets their answers: NAME=RESULT for each function, and the number of GPUS. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#define GIB      (1ull << 30)

struct memory {
        unsigned long long total, free, used;
};

static int set(const char *name)
{
        const char *text = getenv(name);

        return text ? atoi(text) : 0;
}

#define FUNCTION(name, ...)             \
        EXPORTED int name(__VA_ARGS__); \
        int name(__VA_ARGS__)

FUNCTION(cuInit, unsigned flags)
{
        if (set("KILL"))
                (void)raise(SIGKILL);
        return set("cuInit");
}

FUNCTION(cuDriverGetVersion, int *ret)
{
        *ret = 12040;
        return 0;
}

FUNCTION(cuDeviceGetCount, int *ret)
{
        *ret = set("GPUS");
        return set("cuDeviceGetCount");
}

/* A device's handle differs from its index. */
FUNCTION(cuDeviceGet, int *ret, int at)
{
        *ret = 100 + at;
        return at == 1 ? set("cuDeviceGet") : 0;
}

FUNCTION(cuDeviceGetName, char *ret, int n, int device)
{
        (void)snprintf(ret, (size_t)n, "card %d", device);
        return 0;
}

FUNCTION(cuDeviceGetAttribute, int *ret, int attribute, int device)
{
        *ret = attribute == 102 && device >= 100;
        return set("cuDeviceGetAttribute");
}

FUNCTION(cuDeviceTotalMem_v2, size_t *ret, int device)
{
        *ret = (size_t)(device - 98) * GIB;
        return set("cuDeviceTotalMem_v2");
}

FUNCTION(cuGetErrorName, int error, const char **ret)
{
        *ret = "CUDA_ERROR_NO_DEVICE";
        return error == 100 ? 0 : 1;
}

FUNCTION(cuDeviceGetPCIBusId, char *ret, int n, int at)
{
        (void)snprintf(ret, (size_t)n, "0000:0%d:00.0", at);
        return set("cuDeviceGetPCIBusId");
}

FUNCTION(nvmlInit_v2, void)
{
        return set("nvmlInit_v2");
}

FUNCTION(nvmlShutdown, void)
{
        (void)setenv("SHUT", "1", 1);
        return 0;
}

FUNCTION(nvmlDeviceGetHandleByPciBusId_v2, const char *id, void **ret)
{
        static char devices[8];

        *ret = &devices[id[6] - '0'];
        return strcmp(id, "0000:01:00.0") == 0 ? set("nvmlDeviceGetHandleByPciBusId_v2") : 0;
}

FUNCTION(nvmlDeviceGetMemoryInfo, void *device, struct memory *ret)
{
        *ret = (struct memory){10 * GIB, 6 * GIB, 3 * GIB};
        return set("nvmlDeviceGetMemoryInfo");
}

/* As of a driver that has no _v3 of it. */
FUNCTION(nvmlDeviceGetComputeRunningProcesses_v2, void *device, unsigned *count, void *ret)
{
        *count = 7;
        return 0;
}

FUNCTION(nvmlDeviceGetComputeMode, void *device, int *ret)
{
        *ret = 3;
        return set("nvmlDeviceGetComputeMode");
}
