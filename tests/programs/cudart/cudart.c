/* cudart.c: a small CUDA runtime library for the simulated driver, on which NVIDIA's own cannot
 * start. Like that one it finds the driver by itself, and knows the driver's devices only. */
#include "cudart.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_abi.h"

#define MOST 64

/* The driver's prototypes come from src/cuda/cuda_api.def. */
#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

/* D(member, name, symbol, version) */
#define DRIVER_ALL(D)                                                        \
        D(init, cuInit, cuInit, 2000)                                        \
        D(count, cuDeviceGetCount, cuDeviceGetCount, 2000)                   \
        D(device, cuDeviceGet, cuDeviceGet, 2000)                            \
        D(name, cuDeviceGetName, cuDeviceGetName, 2000)                      \
        D(uuid, cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                  \
        D(attribute, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)       \
        D(bus_id, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)            \
        D(by_bus_id, cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010)     \
        D(can_access, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000)    \
        D(p2p, cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000)       \
        D(pool, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020) \
        D(retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)  \
        D(set_current, cuCtxSetCurrent, cuCtxSetCurrent, 4000)               \
        D(get_current, cuCtxGetCurrent, cuCtxGetCurrent, 4000)               \
        D(current_device, cuCtxGetDevice, cuCtxGetDevice, 2000)              \
        D(alloc, cuMemAlloc, cuMemAlloc_v2, 3020)                            \
        D(release, cuMemFree, cuMemFree_v2, 3020)                            \
        D(set, cuMemsetD8, cuMemsetD8_v2, 3020)                              \
        D(copy_peer, cuMemcpyPeer, cuMemcpyPeer, 4000)                       \
        D(pointer, cuPointerGetAttribute, cuPointerGetAttribute, 4000)

static struct {
#define D(member, name, symbol, version) __typeof__(symbol) *member;
        DRIVER_ALL(D)
#undef D
} driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int count, started = CUDA_ERROR_NOT_INITIALIZED;
static CUcontext context[MOST];
static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;

static bool look_up(void)
{
        static const struct {
                const char *name;
                void **function;
                int version;
        } rows[] = {
#define D(member, base, symbol, since) {#base, (void **)&driver.member, since},
                DRIVER_ALL(D)
#undef D
        };
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        __typeof__(cuGetProcAddress_v2) *get =
                library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
        CUdriverProcAddressQueryResult found;

        for (size_t i = 0; get && i < sizeof(rows) / sizeof(rows[0]); i++)
                if (get(rows[i].name, rows[i].function, rows[i].version, 0, &found) ||
                    !*rows[i].function)
                        return false;
        return get != NULL;
}

/* NVIDIA's library finds a device that the driver does not have, and then refuses to start. */
static bool is_true(void)
{
        CUuuid uuid[MOST];

        for (int i = 0; i < count; i++) {
                CUdevice device = -1;

                if (driver.device(&device, i) || device != i || driver.uuid(&uuid[i], device))
                        return false;
                for (int k = 0; k < i; k++)
                        if (memcmp(&uuid[i], &uuid[k], sizeof(uuid[i])) == 0)
                                return false;
        }
        return true;
}

static void start_once(void)
{
        if (!look_up())
                return;
        started = driver.init(0);
        if (started == CUDA_SUCCESS)
                started = driver.count(&count);
        if (started == CUDA_SUCCESS && (count > MOST || !is_true()))
                started = CUDA_ERROR_INVALID_DEVICE;
}

static int start(void)
{
        (void)pthread_once(&once, start_once);
        return started;
}

static int check(int device)
{
        const int e = start();

        return e == RUNTIME_SUCCESS && (device < 0 || device >= count) ? RUNTIME_INVALID_DEVICE : e;
}

/* Returns the first error. */
static int check_both(int a, int b)
{
        const int e = check(a);

        return e ? e : check(b);
}

static int enter(int device)
{
        int e = check(device);

        if (e)
                return e;
        (void)pthread_mutex_lock(&retaining);
        if (!context[device])
                e = driver.retain(&context[device], device);
        (void)pthread_mutex_unlock(&retaining);
        return e ? e : (int)driver.set_current(context[device]);
}

/* Threads begin on the first device. */
static int enter_any(void)
{
        CUcontext now = NULL;
        const int e = start();

        if (e)
                return e;
        return driver.get_current(&now) == CUDA_SUCCESS && now ? RUNTIME_SUCCESS : enter(0);
}

int cudaGetDeviceCount(int *n)
{
        const int e = start();

        *n = e ? 0 : count;
        return e;
}

int cudaGetDevice(int *device)
{
        const int e = start();
        CUdevice card = 0;

        if (!e && driver.current_device(&card) != CUDA_SUCCESS)
                card = 0;
        *device = card;
        return e;
}

int cudaSetDevice(int device)
{
        return enter(device);
}

int cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
        const int e = check(device);

        return !e && (device_flags || flags) ? RUNTIME_INVALID_VALUE : e;
}

/* A device must not be in the list twice, as in NVIDIA's library. */
int cudaSetValidDevices(int *devices, int n)
{
        for (int i = 0; i < n; i++) {
                if (check(devices[i]))
                        return check(devices[i]);
                for (int k = 0; k < i; k++)
                        if (devices[k] == devices[i])
                                return RUNTIME_INVALID_VALUE;
        }
        return start();
}

int cudaGetDeviceProperties(struct runtime_properties *prop, int device)
{
        int e = check(device);
        CUuuid uuid;

        if (!e)
                e = driver.name(prop->name, sizeof(prop->name), device);
        if (!e)
                e = driver.uuid(&uuid, device);
        if (!e)
                memcpy(prop->uuid, &uuid, sizeof(uuid));
        return e;
}

int cudaGetDeviceProperties_v2(struct runtime_properties *prop, int device)
{
        return cudaGetDeviceProperties(prop, device);
}

int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
        const int e = check(device);

        return e ? e : (int)driver.attribute(value, (CUdevice_attribute)attribute, device);
}

int cudaDeviceGetPCIBusId(char *id, int n, int device)
{
        const int e = check(device);

        return e ? e : (int)driver.bus_id(id, n, device);
}

int cudaDeviceGetByPCIBusId(int *device, const char *id)
{
        const int e = start();

        return e ? e : (int)driver.by_bus_id(device, id);
}

int cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
        const int e = check_both(device, peer);

        return e ? e : (int)driver.can_access(can, device, peer);
}

int cudaDeviceGetP2PAttribute(int *value, int attribute, int from, int to)
{
        const int e = check_both(from, to);

        return e ? e : (int)driver.p2p(value, (CUdevice_P2PAttribute)attribute, from, to);
}

int cudaDeviceGetDefaultMemPool(void **pool, int device)
{
        const int e = check(device);

        return e ? e : (int)driver.pool((CUmemoryPool *)pool, device);
}

int cudaMalloc(void **ptr, size_t bytes)
{
        const int e = enter_any();

        return e ? e : (int)driver.alloc((CUdeviceptr *)ptr, bytes);
}

int cudaFree(void *ptr)
{
        const int e = enter_any();

        return e ? e : (int)driver.release((CUdeviceptr)(uintptr_t)ptr);
}

int cudaMemset(void *ptr, int value, size_t bytes)
{
        const int e = enter_any();

        return e ? e : (int)driver.set((CUdeviceptr)(uintptr_t)ptr, (unsigned char)value, bytes);
}

int cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
        const int e = check_both(to_device, from_device);

        if (e)
                return e;
        if (!context[to_device] || !context[from_device])
                return CUDA_ERROR_INVALID_CONTEXT;
        return (int)driver.copy_peer((CUdeviceptr)(uintptr_t)to, context[to_device],
                                     (CUdeviceptr)(uintptr_t)from, context[from_device], bytes);
}

int cudaPointerGetAttributes(struct runtime_pointer *ret, const void *ptr)
{
        const CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
        const int e = start();
        unsigned type = 0;

        if (e)
                return e;
        *ret = (struct runtime_pointer){.device = -2}; /* memory that CUDA does not know */
        if (driver.pointer(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS)
                return RUNTIME_SUCCESS;
        ret->type = (int)type;
        ret->device_pointer = (void *)(uintptr_t)at;
        return (int)driver.pointer(&ret->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
}
