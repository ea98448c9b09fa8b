/* device_runtime.c: owns what the CUDA runtime library tells of devices, for programs that load it
 * as a shared library. All devices of a card have the card's context; which of them a thread has
 * chosen is known here.
 * Why: docs/decisions.md, "Ranks have their devices in the runtime library". */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "ranks/devices/devices.h"
#include "ranks/real/entry.h"
#include "ranks/real/real_runtime.h"

#define SUCCESS        0
#define INVALID_DEVICE 101 /* cudaErrorInvalidDevice */
#define PCI_BUS        33  /* cudaDevAttrPciBusId */
#define PCI_SLOT       34
#define PCI_DOMAIN     50
#define NAME_BYTES     256 /* cudaDeviceProp begins with a name, and the UUID follows */

#define ENTRY(symbol, params) ENTRY_RETURNING(int, symbol, params)

/* A program may name a device before it has called cudaGetDeviceCount(), which calls cuInit(). */
static int card_of(int device)
{
        int count;

        if (devices_count() == 0)
                (void)real_runtime()->cudaGetDeviceCount(&count);
        return devices_card(device);
}

#define RT_IN(name, params, args)                 \
        ENTRY(name, params)                       \
        {                                         \
                device = card_of(device);         \
                return real_runtime()->name args; \
        }
#define RT_HAND(name, params, args)
#define RT(name, params, args, how) RT_##how(name, params, args)
#include "ranks/real/runtime_api.def"

/* The real function comes first: it calls cuInit(). */
ENTRY(cudaGetDeviceCount, (int *count))
{
        const int e = real_runtime()->cudaGetDeviceCount(count);

        if (e == SUCCESS && devices_count())
                *count = (int)devices_count();
        return e;
}

ENTRY(cudaGetDevice, (int *device))
{
        const int e = real_runtime()->cudaGetDevice(device);

        if (e == SUCCESS)
                *device = devices_of_card(*device);
        return e;
}

ENTRY(cudaSetDevice, (int device))
{
        const int e = real_runtime()->cudaSetDevice(card_of(device));

        if (e == SUCCESS)
                devices_choose(device);
        return e;
}

ENTRY(cudaSetValidDevices, (int *devices, int n))
{
        int own[DEVICES_MAX], kept = 0;

        for (int i = 0; devices && i < MIN(n, DEVICES_MAX); i++) {
                const int card = card_of(devices[i]);
                int k = 0;

                while (k < kept && own[k] != card)
                        k++;
                own[k] = card;
                kept = MAX(kept, k + 1);
        }
        return real_runtime()->cudaSetValidDevices(devices ? own : NULL, kept);
}

static int properties(int e, void *prop, int device)
{
        const struct identity *is = devices_identity(device);

        if (e == SUCCESS && is)
                (void)memcpy((char *)prop + NAME_BYTES, is->uuid, sizeof(is->uuid));
        return e;
}

ENTRY(cudaGetDeviceProperties, (void *prop, int device))
{
        return properties(real_runtime()->cudaGetDeviceProperties(prop, card_of(device)), prop,
                          device);
}

ENTRY(cudaGetDeviceProperties_v2, (void *prop, int device))
{
        return properties(real_runtime()->cudaGetDeviceProperties_v2(prop, card_of(device)), prop,
                          device);
}

ENTRY(cudaDeviceGetAttribute, (int *value, int attribute, int device))
{
        const struct identity *is = devices_identity(device);
        const int e = real_runtime()->cudaDeviceGetAttribute(value, attribute, card_of(device));

        if (e == SUCCESS && is && attribute == PCI_BUS)
                *value = (int)is->bus;
        else if (e == SUCCESS && is && attribute == PCI_SLOT)
                *value = (int)is->slot;
        else if (e == SUCCESS && is && attribute == PCI_DOMAIN)
                *value = (int)is->domain;
        return e;
}

ENTRY(cudaDeviceGetPCIBusId, (char *id, int n, int device))
{
        const struct identity *is = devices_identity(device);
        const int e = real_runtime()->cudaDeviceGetPCIBusId(id, n, card_of(device));

        if (e == SUCCESS && is)
                (void)snprintf(id, (size_t)n, "%04X:%02X:%02X.0", is->domain, is->bus, is->slot);
        return e;
}

ENTRY(cudaDeviceGetByPCIBusId, (int *device, const char *id))
{
        unsigned domain, bus, slot;
        int e;

        if (device && id && map_read_bus_id(id, &domain, &bus, &slot))
                for (int i = 0; i < (int)devices_count(); i++) {
                        const struct identity *is = devices_identity(i);

                        if (is->domain == domain && is->bus == bus && is->slot == slot) {
                                *device = i;
                                return SUCCESS;
                        }
                }
        e = real_runtime()->cudaDeviceGetByPCIBusId(device, id);
        if (e == SUCCESS)
                *device = devices_of_card(*device);
        return e;
}

/* Devices of one card are no peers. Programs that share memory between peers without NCCL, such as
 * vLLM's own all-reduce, spin on the card until the other rank comes. Without peers they do not. */
ENTRY(cudaDeviceCanAccessPeer, (int *can, int device, int peer))
{
        if (!can || !devices_share(device, peer))
                return real_runtime()->cudaDeviceCanAccessPeer(can, card_of(device), card_of(peer));
        *can = 0;
        return SUCCESS;
}

ENTRY(cudaDeviceGetP2PAttribute, (int *value, int attribute, int from, int to))
{
        if (!value || !devices_share(from, to))
                return real_runtime()->cudaDeviceGetP2PAttribute(value, attribute, card_of(from),
                                                                 card_of(to));
        *value = 0;
        return from == to ? INVALID_DEVICE : SUCCESS;
}

ENTRY(cudaMemcpyPeer, (void *to, int to_device, const void *from, int from_device, size_t n))
{
        return real_runtime()->cudaMemcpyPeer(to, card_of(to_device), from, card_of(from_device),
                                              n);
}

ENTRY(cudaMemcpyPeerAsync,
      (void *to, int to_device, const void *from, int from_device, size_t n, void *stream))
{
        return real_runtime()->cudaMemcpyPeerAsync(to, card_of(to_device), from,
                                                   card_of(from_device), n, stream);
}

/* cudaPointerAttributes begins with the kind of memory and its device. */
ENTRY(cudaPointerGetAttributes, (void *attributes, const void *ptr))
{
        struct {
                int type, device;
        } *is = attributes;
        const int e = real_runtime()->cudaPointerGetAttributes(attributes, ptr);

        if (e == SUCCESS && is)
                is->device = devices_of_card(is->device);
        return e;
}

ENTRY(cudaStreamGetDevice, (void *stream, int *device))
{
        const int e = real_runtime()->cudaStreamGetDevice(stream, device);

        if (e == SUCCESS)
                *device = devices_of_card(*device);
        return e;
}

void *devices_replace_runtime(const char *symbol)
{
        static const struct entry rows[] = {
#define RT(name, params, args, how) {#name, (void *)entry_##name},
#include "ranks/real/runtime_api.def"
        };

        return entry_find(rows, ARRAY_SIZE(rows), symbol);
}
