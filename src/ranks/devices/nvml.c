/* nvml.c: owns the functions of NVML that the program gets. It sees the devices of the job, each
 * with a handle of ours; the card's handle takes its place in calls of NVML. As without us, NVML
 * does not heed CUDA_VISIBLE_DEVICES. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "ranks/devices/cards.h"
#include "ranks/devices/doors.h"
#include "ranks/real/table.h"

/* A handle of ours is the address of one of these. */
static char handles[DEVICES_MAX];

/* The number of the job's devices; 0: NVML is passed on as it is. */
static unsigned device_count(void)
{
        return cards_ranks() && cards_get()->n ? cards_ranks() : 0;
}

/* Returns the device; -1: the handle is not ours. */
static int device_of(const void *handle)
{
        const uintptr_t at = (uintptr_t)handle - (uintptr_t)handles;

        return at < sizeof(handles) ? (int)at : -1;
}

static nvmlDevice_t card_of(nvmlDevice_t handle)
{
        const int device = device_of(handle);

        return device < 0 ? handle
                          : cards_get()->card[map_card((unsigned)device, cards_get()->n)].handle;
}

static nvmlDevice_t handle_of(unsigned device)
{
        return (nvmlDevice_t)(void *)&handles[device];
}

/* ---- functions that are passed on ----
 *
 * Without their prototypes, because only their handles matter: a function that takes fewer
 * parameters does not look at the rest. */

typedef long passed_fn(long, long, long, long, long, long);

static long missing(long a, long b, long c, long d, long e, long f)
{
        return NVML_ERROR_FUNCTION_NOT_FOUND;
}

enum {
#define NVML_HANDLE(symbol) PASSED_##symbol,
#include "ranks/devices/nvml_handles.def"
#undef NVML_HANDLE
        PASSED_COUNT
};

static const char *const passed_names[] = {
#define NVML_HANDLE(symbol) #symbol,
#include "ranks/devices/nvml_handles.def"
#undef NVML_HANDLE
};

static passed_fn *passed[] = {
#define NVML_HANDLE(symbol) missing,
#include "ranks/devices/nvml_handles.def"
#undef NVML_HANDLE
};

static passed_fn *find_passed(unsigned row)
{
        static struct real_table table = {
                .soname = REAL_NVML,
                .n = PASSED_COUNT,
                .names = passed_names,
                .functions = (void **)passed,
        };

        real_table_open(&table);
        return passed[row];
}

static long card_in(long argument)
{
        return (long)card_of((nvmlDevice_t)argument);
}

#define DOOR(symbol, type, params)                                               \
        static type ranks_##symbol params;                                       \
        extern __typeof__(ranks_##symbol) symbol                                 \
                __attribute__((alias("ranks_" #symbol), visibility("default"))); \
        static type ranks_##symbol params

#define NVML_HANDLE(symbol)                                                              \
        DOOR(symbol, long, (long a, long b, long c, long d, long e, long f))             \
        {                                                                                \
                return find_passed(PASSED_##symbol)(card_in(a), card_in(b), c, d, e, f); \
        }
#include "ranks/devices/nvml_handles.def"
#undef NVML_HANDLE

/* ---- functions with answers of our own ---- */

/* The real function comes first: it knows whether NVML has been initialised. */
static nvmlReturn_t count_devices(nvmlReturn_t r, unsigned *count)
{
        if (r == NVML_SUCCESS && device_count())
                *count = device_count();
        return r;
}

DOOR(nvmlDeviceGetCount, nvmlReturn_t, (unsigned *count))
{
        return count_devices(real_nvml()->nvmlDeviceGetCount(count), count);
}

DOOR(nvmlDeviceGetCount_v2, nvmlReturn_t, (unsigned *count))
{
        return count_devices(real_nvml()->nvmlDeviceGetCount_v2(count), count);
}

static nvmlReturn_t find_index(unsigned index, nvmlDevice_t *device)
{
        unsigned n;
        nvmlReturn_t r;

        if (!device_count())
                return real_nvml()->nvmlDeviceGetHandleByIndex_v2(index, device);
        r = real_nvml()->nvmlDeviceGetCount_v2(&n);
        if (r != NVML_SUCCESS)
                return r;
        if (!device || index >= device_count())
                return NVML_ERROR_INVALID_ARGUMENT;
        *device = handle_of(index);
        return NVML_SUCCESS;
}

DOOR(nvmlDeviceGetHandleByIndex, nvmlReturn_t, (unsigned index, nvmlDevice_t *device))
{
        return find_index(index, device);
}

DOOR(nvmlDeviceGetHandleByIndex_v2, nvmlReturn_t, (unsigned index, nvmlDevice_t *device))
{
        return find_index(index, device);
}

/* NVML writes the UUID of a whole card in its own way. */
static void write_uuid(unsigned device, char *ret, size_t n)
{
        const struct cards *cards = cards_get();
        const struct identity own = cards_identity(cards, device);
        char text[UUID_TEXT_MAX];

        map_uuid_text(&own, text);
        (void)snprintf(ret, n, "%s", device < cards->n ? cards->card[device].text : text);
}

DOOR(nvmlDeviceGetHandleByUUID, nvmlReturn_t, (const char *uuid, nvmlDevice_t *device))
{
        for (unsigned i = 0; uuid && device && i < device_count(); i++) {
                char text[96];

                write_uuid(i, text, sizeof(text));
                if (strcmp(text, uuid) == 0)
                        return find_index(i, device);
        }
        return real_nvml()->nvmlDeviceGetHandleByUUID(uuid, device);
}

/* Returns true if a device of the job has this address. */
static bool find_bus_id(const char *id, unsigned *ret)
{
        unsigned domain, bus, slot;

        if (!id || !map_read_bus_id(id, &domain, &bus, &slot))
                return false;
        for (*ret = 0; *ret < device_count(); ++*ret) {
                const struct identity own = cards_identity(cards_get(), *ret);

                if (own.domain == domain && own.bus == bus && own.slot == slot)
                        return true;
        }
        return false;
}

DOOR(nvmlDeviceGetHandleByPciBusId, nvmlReturn_t, (const char *id, nvmlDevice_t *device))
{
        unsigned found;

        return find_bus_id(id, &found) ? find_index(found, device)
                                       : real_nvml()->nvmlDeviceGetHandleByPciBusId(id, device);
}

DOOR(nvmlDeviceGetHandleByPciBusId_v2, nvmlReturn_t, (const char *id, nvmlDevice_t *device))
{
        unsigned found;

        return find_bus_id(id, &found) ? find_index(found, device)
                                       : real_nvml()->nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

DOOR(nvmlDeviceGetUUID, nvmlReturn_t, (nvmlDevice_t device, char *uuid, unsigned length))
{
        const int own = device_of(device);
        nvmlReturn_t r = real_nvml()->nvmlDeviceGetUUID(card_of(device), uuid, length);

        if (r == NVML_SUCCESS && own >= 0)
                write_uuid((unsigned)own, uuid, length);
        return r;
}

DOOR(nvmlDeviceGetIndex, nvmlReturn_t, (nvmlDevice_t device, unsigned *index))
{
        const int own = device_of(device);

        if (own < 0 || !index)
                return real_nvml()->nvmlDeviceGetIndex(card_of(device), index);
        *index = (unsigned)own;
        return NVML_SUCCESS;
}

DOOR(nvmlDeviceGetPciInfo_v3, nvmlReturn_t, (nvmlDevice_t device, nvmlPciInfo_t *pci))
{
        const int own = device_of(device);
        nvmlReturn_t r = real_nvml()->nvmlDeviceGetPciInfo_v3(card_of(device), pci);

        if (r == NVML_SUCCESS && own >= 0) {
                const struct identity is = cards_identity(cards_get(), (unsigned)own);

                pci->domain = is.domain;
                (void)snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", is.domain,
                               is.bus, is.slot);
                (void)snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0",
                               is.domain, is.bus, is.slot);
        }
        return r;
}

/* The text of both older forms is at the same place. */
static nvmlReturn_t answer_pci(nvmlReturn_t r, nvmlDevice_t device, nvmlPciInfo_v1_t *pci)
{
        const int own = device_of(device);

        if (r == NVML_SUCCESS && own >= 0) {
                const struct identity is = cards_identity(cards_get(), (unsigned)own);

                pci->domain = is.domain;
                (void)snprintf(pci->busId, sizeof(pci->busId), "%04X:%02X:%02X.0", is.domain,
                               is.bus, is.slot);
        }
        return r;
}

DOOR(nvmlDeviceGetPciInfo, nvmlReturn_t, (nvmlDevice_t device, nvmlPciInfo_v1_t *pci))
{
        return answer_pci(real_nvml()->nvmlDeviceGetPciInfo(card_of(device), pci), device, pci);
}

DOOR(nvmlDeviceGetPciInfo_v2, nvmlReturn_t, (nvmlDevice_t device, nvmlPciInfo_v1_t *pci))
{
        return answer_pci(real_nvml()->nvmlDeviceGetPciInfo_v2(card_of(device), pci), device, pci);
}

static const struct {
        const char *symbol;
        void *function;
} rows[] = {
#define ROW(symbol)                             \
        {                                       \
#symbol, (void *)ranks_##symbol \
        }
        ROW(nvmlDeviceGetCount),
        ROW(nvmlDeviceGetCount_v2),
        ROW(nvmlDeviceGetHandleByIndex),
        ROW(nvmlDeviceGetHandleByIndex_v2),
        ROW(nvmlDeviceGetHandleByUUID),
        ROW(nvmlDeviceGetHandleByPciBusId),
        ROW(nvmlDeviceGetHandleByPciBusId_v2),
        ROW(nvmlDeviceGetUUID),
        ROW(nvmlDeviceGetIndex),
        ROW(nvmlDeviceGetPciInfo),
        ROW(nvmlDeviceGetPciInfo_v2),
        ROW(nvmlDeviceGetPciInfo_v3),
#define NVML_HANDLE(symbol) ROW(symbol),
#include "ranks/devices/nvml_handles.def"
#undef NVML_HANDLE
};

void *doors_replace_nvml(const char *symbol)
{
        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
                if (strcmp(rows[i].symbol, symbol) == 0)
                        return rows[i].function;
        return NULL;
}
