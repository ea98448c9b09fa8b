/* device_nvml.c: owns NVML's count of devices, and its look-up of a device by number. NVML's other
 * functions take the handle of a card. */
#include "base/macros.h"
#include "ranks/devices/cards.h"
#include "ranks/devices/devices.h"
#include "ranks/real/entry.h"

#define ENTRY(symbol, params) ENTRY_RETURNING(nvmlReturn_t, symbol, params)

static nvmlReturn_t count_devices(nvmlReturn_t r, unsigned *count)
{
        if (r == NVML_SUCCESS && cards_ranks())
                *count = cards_ranks();
        return r;
}

/* The real function comes first: it knows whether NVML has been initialised. */
ENTRY(nvmlDeviceGetCount, (unsigned *count))
{
        return count_devices(real_nvml()->nvmlDeviceGetCount(count), count);
}

ENTRY(nvmlDeviceGetCount_v2, (unsigned *count))
{
        return count_devices(real_nvml()->nvmlDeviceGetCount_v2(count), count);
}

/* NVML may list more cards than the job was given. */
static nvmlReturn_t find_index(unsigned index, nvmlDevice_t *device)
{
        const unsigned ranks = cards_ranks();
        const struct cards *cards;
        unsigned count;
        nvmlReturn_t r;

        if (!ranks)
                return real_nvml()->nvmlDeviceGetHandleByIndex_v2(index, device);
        r = real_nvml()->nvmlDeviceGetCount_v2(&count);
        if (r != NVML_SUCCESS)
                return r;
        cards = cards_get();
        if (!device || index >= ranks || cards->n == 0)
                return NVML_ERROR_INVALID_ARGUMENT;
        *device = cards->card[map_card(index, cards->n)].handle;
        return NVML_SUCCESS;
}

ENTRY(nvmlDeviceGetHandleByIndex, (unsigned index, nvmlDevice_t *device))
{
        return find_index(index, device);
}

ENTRY(nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvmlDevice_t *device))
{
        return find_index(index, device);
}

void *devices_replace_nvml(const char *symbol)
{
        static const struct entry rows[] = {
                {"nvmlDeviceGetCount", (void *)entry_nvmlDeviceGetCount},
                {"nvmlDeviceGetCount_v2", (void *)entry_nvmlDeviceGetCount_v2},
                {"nvmlDeviceGetHandleByIndex", (void *)entry_nvmlDeviceGetHandleByIndex},
                {"nvmlDeviceGetHandleByIndex_v2", (void *)entry_nvmlDeviceGetHandleByIndex_v2},
        };

        return entry_find(rows, ARRAY_SIZE(rows), symbol);
}
