/* device.c: the cards: count, names, attributes, identity. Attributes that programs read have the
 * values of an H200; capacity and identity come from the session. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "sim/session/identity.h"
#include "sim/call/objects.h"
#include "sim/mps/client.h"

struct attribute {
        CUdevice_attribute id;
        int value;
};

static const struct attribute attributes[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT_MAX},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT_MAX},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, DEVICE_PROCESSORS},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
        {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
};

static unsigned pci_bus(CUdevice device)
{
        return IDENTITY_PCI_BUS +
               session_card(sim.session, (unsigned)device) / MAX(session_mig(sim.session), 1u);
}

CUresult device_check(CUdevice device)
{
        return device >= 0 && (unsigned)device < sim.devices ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_DEVICE;
}

CUresult device_enter(const char *function, CUdevice device)
{
        CUresult r = api_enter(function, API_ANY, NULL);

        return r != CUDA_SUCCESS ? r : device_check(device);
}

int device_driver_version(void)
{
        return getenv("SIMCUDA_NEWER") ? 99000 : CUDA_VERSION;
}

EXPORT CUresult cuDriverGetVersion(int *ret_version)
{
        if (!ret_version)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_version = device_driver_version();
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!count)
                return CUDA_ERROR_INVALID_VALUE;
        *count = (int)sim.devices;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
        CUresult r = device_enter(__func__, ordinal);

        if (r != CUDA_SUCCESS)
                return r;
        if (!device)
                return CUDA_ERROR_INVALID_VALUE;
        *device = ordinal;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!name || len <= 0)
                return CUDA_ERROR_INVALID_VALUE;
        (void)snprintf(name, (size_t)len, "%s", IDENTITY_NAME);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_uuid)
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(ret_uuid->bytes, session_device(sim.session, (unsigned)device)->uuid, 16);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *ret_uuid, CUdevice device)
{
        return cuDeviceGetUuid_v2(ret_uuid, device);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!bytes)
                return CUDA_ERROR_INVALID_VALUE;
        *bytes = session_device(sim.session, (unsigned)device)->total;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_value || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
                return CUDA_ERROR_INVALID_VALUE;
        if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
                *ret_value = (int)pci_bus(device);
                return CUDA_SUCCESS;
        }
        *ret_value = attribute == CU_DEVICE_ATTRIBUTE_MPS_ENABLED && mps_takes_part();
        for (size_t i = 0; i < ARRAY_SIZE(attributes); i++)
                if (attributes[i].id == attribute)
                        *ret_value = attributes[i].value;
        if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
                *ret_value = (int)(*ret_value * mps_percentage() / 100);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetExecAffinitySupport(int *ret_value, CUexecAffinityType type,
                                               CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_value)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_value = 0; /* no context can be made with an affinity */
        return CUDA_SUCCESS;
}

/* A context without an affinity has all processors that the process has, with MPS or without. */
EXPORT CUresult cuCtxGetExecAffinity(CUexecAffinityParam *exec_affinity, CUexecAffinityType type)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);
        int count = 0;

        if (r != CUDA_SUCCESS)
                return r;
        if (!exec_affinity)
                return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
                return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        r = cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                 (CUdevice)c->device);
        if (r == CUDA_SUCCESS)
                *exec_affinity = (CUexecAffinityParam){type, {{(unsigned)count}}};
        return r;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
        CUresult r =
                cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);

        return r != CUDA_SUCCESS
                       ? r
                       : cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                              device);
}

EXPORT CUresult cuDeviceGetPCIBusId(char *pci_bus_id, int len, CUdevice device)
{
        CUresult r = device_enter(__func__, device);

        if (r != CUDA_SUCCESS)
                return r;
        if (!pci_bus_id || len < 13)
                return CUDA_ERROR_INVALID_VALUE;
        (void)snprintf(pci_bus_id, (size_t)len, "0000:%02X:00.0", pci_bus(device));
        return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *pci_bus_id)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);
        unsigned domain, bus, slot, function = 0;

        if (r != CUDA_SUCCESS)
                return r;
        if (!device || !pci_bus_id ||
            (sscanf(pci_bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 &&
             sscanf(pci_bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3))
                return CUDA_ERROR_INVALID_VALUE;
        for (CUdevice d = 0; !domain && !slot && !function && d < (CUdevice)sim.devices; d++)
                if (pci_bus(d) == bus) {
                        *device = d;
                        return CUDA_SUCCESS;
                }
        return CUDA_ERROR_INVALID_DEVICE;
}

/* The simulator has no profiler, but starting one succeeds. */
EXPORT CUresult cuProfilerStart(void)
{
        return api_enter(__func__, API_CONTEXT, NULL);
}

EXPORT CUresult cuProfilerStop(void)
{
        return api_enter(__func__, API_CONTEXT, NULL);
}

/* The simulator has no private tables of the toolkit. Programs that use the runtime library ask for
 * them. */
EXPORT CUresult cuGetExportTable(const void **pp_export_table, const CUuuid *export_table_id)
{
        return pp_export_table && export_table_id ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}
