/* driver_ask.c: owns the child that calls the driver. Must never load a driver into the process
 * that reports. */
#include "client/driver/driver_ask.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "nvml/nvml_library.h"

#define PATIENCE_MS 30000 /* limit for the child: cuInit takes seconds with eight cards */

#define DEVICE_ATTRIBUTE_VMM 102 /* CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */

static void *open_library(const char *folder, const char *name)
{
        char path[PATH_MAX];

        (void)snprintf(path, sizeof(path), "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
        return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static int ask_cuda(const char *folder, struct driver_report *report)
{
        void *driver = open_library(folder, "libcuda.so.1");
        int (*init)(unsigned), (*version)(int *), (*count)(int *), (*get)(int *, int);
        int (*name)(char *, int, int), (*attribute)(int *, int, int), (*total)(size_t *, int);
        int (*error_name)(int, const char **);
        const char *said;
        Dl_info info;

        if (!driver) {
                (void)snprintf(report->reason, sizeof(report->reason), "%s", dlerror());
                return 0;
        }
        init = dlsym(driver, "cuInit");
        version = dlsym(driver, "cuDriverGetVersion");
        count = dlsym(driver, "cuDeviceGetCount");
        get = dlsym(driver, "cuDeviceGet");
        name = dlsym(driver, "cuDeviceGetName");
        attribute = dlsym(driver, "cuDeviceGetAttribute");
        total = dlsym(driver, "cuDeviceTotalMem_v2");
        error_name = dlsym(driver, "cuGetErrorName");
        if (!init || !version || !count || !get || !name || !attribute || !total) {
                (void)strcpy(report->reason, "it lacks entry points of the driver API");
                return 0;
        }
        if (dladdr(*(void **)&init, &info))
                (void)snprintf(report->library, sizeof(report->library), "%s", info.dli_fname);
        report->stage = DRIVER_NOT_STARTED;
        (void)version(&report->version);
        report->result = init(0);
        if (report->result != 0) {
                if (!error_name || error_name(report->result, &said) != 0)
                        said = "which has no name here";
                (void)snprintf(report->reason, sizeof(report->reason), "%s", said);
                return 0;
        }
        report->stage = DRIVER_LOOKING;
        driver_symbols(driver, &report->symbols);
        if (count(&report->n_gpus) != 0)
                report->n_gpus = 0;
        report->n_gpus = MIN(report->n_gpus, DRIVER_GPUS_MAX);
        for (int i = 0; i < report->n_gpus; i++) {
                struct driver_gpu *gpu = &report->gpus[i];
                size_t bytes = 0;
                int device = 0;

                gpu->vmm = gpu->compute_mode = -1;
                gpu->used_bytes = DRIVER_UNKNOWN;
                if (get(&device, i) != 0)
                        continue;
                (void)name(gpu->name, sizeof(gpu->name), device);
                if (attribute(&gpu->vmm, DEVICE_ATTRIBUTE_VMM, device) != 0)
                        gpu->vmm = -1;
                if (total(&bytes, device) == 0)
                        gpu->total_bytes = bytes;
        }
        return 1;
}

/* Adds NVML's figures. Its numbering may differ from CUDA's (CUDA_VISIBLE_DEVICES), so GPUs are
 * matched by their PCI identity. */
static void ask_nvml(const char *folder, struct driver_report *report)
{
        void *cuda = open_library(folder, "libcuda.so.1");
        int (*bus_id)(char *, int, int) = cuda ? dlsym(cuda, "cuDeviceGetPCIBusId") : NULL;
        struct nvml_library nvml;

        if (nvml_library_load(folder, &nvml) < 0 || nvml.nvmlInit_v2() != NVML_SUCCESS)
                return;
        report->nvml = 1;
        for (int i = 0; bus_id && i < report->n_gpus; i++) {
                struct driver_gpu *gpu = &report->gpus[i];
                nvmlMemory_t bytes;
                nvmlDevice_t device;
                int value;

                if (bus_id(gpu->pci_bus_id, sizeof(gpu->pci_bus_id), i) != 0 ||
                    nvml.nvmlDeviceGetHandleByPciBusId_v2(gpu->pci_bus_id, &device) != NVML_SUCCESS)
                        continue;
                if (nvml.nvmlDeviceGetMemoryInfo(device, &bytes) == NVML_SUCCESS) {
                        gpu->total_bytes = bytes.total;
                        gpu->used_bytes = bytes.used;
                }
                if (nvml.nvmlDeviceGetComputeMode(device, &value) == NVML_SUCCESS)
                        gpu->compute_mode = value;
        }
}

static void be_child(const char *folder, struct driver_report *report)
{
        /* The driver's own messages to stderr are not part of the report. */
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        if (null >= 0)
                (void)dup2(null, STDERR_FILENO);
        if (ask_cuda(folder, report)) {
                ask_nvml(folder, report);
                report->stage = DRIVER_ANSWERED;
        }
        _exit(0);
}

int driver_ask(const char *folder, struct driver_report *ret)
{
        struct driver_report *shared;
        struct pollfd ended = {.events = 0};
        int ends[2], status = 0, r;
        pid_t child;

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        if (shared == MAP_FAILED)
                return -errno;
        if (pipe2(ends, O_CLOEXEC) < 0) {
                r = -errno;
                goto unmap;
        }
        child = fork();
        if (child < 0) {
                r = -errno;
                goto close_pipe;
        }
        if (child == 0)
                be_child(folder, shared);
        /* The child's end of the pipe closes when the child ends, however it ends. */
        (void)close(ends[1]);
        ends[1] = -1;
        ended.fd = ends[0];
        do
                r = poll(&ended, 1, PATIENCE_MS);
        while (r < 0 && errno == EINTR);
        if (r == 0) {
                (void)kill(child, SIGKILL);
                shared->hung = 1;
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        if (!shared->hung && WIFSIGNALED(status))
                shared->signal = WTERMSIG(status);
        *ret = *shared;
        r = 0;
close_pipe:
        (void)close(ends[0]);
        if (ends[1] >= 0)
                (void)close(ends[1]);
unmap:
        (void)munmap(shared, sizeof(*shared));
        return r;
}
