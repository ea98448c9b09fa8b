/* cudart.h: the part of the CUDA runtime library's binary interface that the tests use. Errors are
 * ints, with the driver's numbers. */
#pragma once

#include <stddef.h>

enum {
        RUNTIME_SUCCESS = 0,
        RUNTIME_INVALID_VALUE = 1,
        RUNTIME_INVALID_DEVICE = 101,
};

struct runtime_properties {
        char name[256], uuid[16], rest[4096];
};

struct runtime_pointer {
        int type, device;
        void *device_pointer, *host_pointer;
        long reserved[8];
};

/* RUNTIME(member, symbol, params) */
#define RUNTIME_ALL(RUNTIME)                                                                       \
        RUNTIME(get_device_count, cudaGetDeviceCount, (int *count))                                \
        RUNTIME(get_device, cudaGetDevice, (int *device))                                          \
        RUNTIME(set_device, cudaSetDevice, (int device))                                           \
        RUNTIME(init_device, cudaInitDevice, (int device, unsigned device_flags, unsigned flags))  \
        RUNTIME(set_valid_devices, cudaSetValidDevices, (int *devices, int n))                     \
        RUNTIME(get_properties, cudaGetDeviceProperties, (struct runtime_properties *, int))       \
        RUNTIME(get_properties_v2, cudaGetDeviceProperties_v2, (struct runtime_properties *, int)) \
        RUNTIME(get_attribute, cudaDeviceGetAttribute, (int *value, int attribute, int device))    \
        RUNTIME(get_bus_id, cudaDeviceGetPCIBusId, (char *id, int n, int device))                  \
        RUNTIME(get_by_bus_id, cudaDeviceGetByPCIBusId, (int *device, const char *id))             \
        RUNTIME(can_access_peer, cudaDeviceCanAccessPeer, (int *can, int device, int peer))        \
        RUNTIME(get_p2p, cudaDeviceGetP2PAttribute, (int *value, int attribute, int from, int to)) \
        RUNTIME(get_default_pool, cudaDeviceGetDefaultMemPool, (void **pool, int device))          \
        RUNTIME(malloc, cudaMalloc, (void **ptr, size_t bytes))                                    \
        RUNTIME(free, cudaFree, (void *ptr))                                                       \
        RUNTIME(memset, cudaMemset, (void *ptr, int value, size_t bytes))                          \
        RUNTIME(memcpy_peer, cudaMemcpyPeer,                                                       \
                (void *to, int to_device, const void *from, int from_device, size_t bytes))        \
        RUNTIME(pointer, cudaPointerGetAttributes, (struct runtime_pointer *, const void *ptr))

#define RUNTIME_DECLARE(member, symbol, params) int symbol params;
RUNTIME_ALL(RUNTIME_DECLARE)

struct runtime {
#define RUNTIME_MEMBER(member, symbol, params) int(*member) params;
        RUNTIME_ALL(RUNTIME_MEMBER)
};
