/* driver.c: owns the functions of the driver in which a program may name one of its devices. A
 * program gets its ordinals from the runtime library, and passes them on: Triton to cuDeviceGet(),
 * PyTorch to cuDevicePrimaryCtxGetState() and in locations of memory. The runtime library itself
 * passes the numbers of cards. */
#include "base/macros.h"
#include "ranks/devices/devices.h"
#include "ranks/devices/translated.h"
#include "ranks/real/entry.h"

#define ACCESSES_MAX 64

#define ENTRY(symbol, params) ENTRY_RETURNING(CUresult, symbol, params)

ENTRY(cuInit, (unsigned int flags))
{
        return devices_init(flags);
}

ENTRY(cuDeviceGet, (CUdevice * device, int ordinal))
{
        return real_cuda()->cuDeviceGet(device, devices_named(ordinal));
}

#define ENTRY_OF(word, symbol, params, args)   ENTRY_OF_2(word, symbol, params, args)
#define ENTRY_OF_2(word, symbol, params, args) ENTRY_##word(symbol, params, args)
#define ENTRY_NONE(symbol, params, args)
#define ENTRY_IN(symbol, params, args)           \
        ENTRY(symbol, params)                    \
        {                                        \
                device = devices_named(device);  \
                return real_cuda()->symbol args; \
        }
#define CU(base, symbol, since, flags, behaviour, detail, params, args) \
        ENTRY_OF(TRANSLATED(symbol), symbol, params, args)
#include "cuda/cuda_api.def"

static CUmemLocation card_of(CUmemLocation location)
{
        if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
                location.id = devices_named(location.id);
        return location;
}

/* Returns what to pass in place of the program's structure, which stays as it is. */
static const CUmemAllocationProp *on_card(const CUmemAllocationProp *prop, CUmemAllocationProp *own)
{
        if (!prop)
                return NULL;
        *own = *prop;
        own->location = card_of(prop->location);
        return own;
}

ENTRY(cuMemCreate, (CUmemGenericAllocationHandle * handle, size_t size,
                    const CUmemAllocationProp *prop, unsigned long long flags))
{
        CUmemAllocationProp own;

        return real_cuda()->cuMemCreate(handle, size, on_card(prop, &own), flags);
}

ENTRY(cuMemGetAllocationGranularity, (size_t * granularity, const CUmemAllocationProp *prop,
                                      CUmemAllocationGranularity_flags option))
{
        CUmemAllocationProp own;

        return real_cuda()->cuMemGetAllocationGranularity(granularity, on_card(prop, &own), option);
}

/* Several devices may be one card, which the driver accepts only once. Returns how many are
 * left. */
static size_t on_cards(const CUmemAccessDesc *list, size_t n, CUmemAccessDesc *own)
{
        size_t kept = 0;

        for (size_t i = 0; i < n; i++) {
                CUmemAccessDesc one = list[i];
                size_t k = 0;

                one.location = card_of(one.location);
                while (k < kept && (own[k].location.type != one.location.type ||
                                    own[k].location.id != one.location.id))
                        k++;
                own[k] = one;
                kept = MAX(kept, k + 1);
        }
        return kept;
}

ENTRY(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count))
{
        CUmemAccessDesc own[ACCESSES_MAX];

        if (!desc || count > ACCESSES_MAX)
                return real_cuda()->cuMemSetAccess(ptr, size, desc, count);
        return real_cuda()->cuMemSetAccess(ptr, size, own, on_cards(desc, count, own));
}

ENTRY(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count))
{
        CUmemAccessDesc own[ACCESSES_MAX];

        if (!map || count > ACCESSES_MAX)
                return real_cuda()->cuMemPoolSetAccess(pool, map, count);
        return real_cuda()->cuMemPoolSetAccess(pool, own, on_cards(map, count, own));
}

ENTRY(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *props))
{
        CUmemPoolProps own;

        if (!props)
                return real_cuda()->cuMemPoolCreate(pool, props);
        own = *props;
        own.location = card_of(props->location);
        return real_cuda()->cuMemPoolCreate(pool, &own);
}

void *devices_replace_driver(const char *symbol)
{
        static const struct entry rows[] = {
#define ROW(word, symbol)   ROW_2(word, symbol)
#define ROW_2(word, symbol) ROW_##word(symbol)
#define ROW_NONE(symbol)
#define ROW_IN(symbol) {#symbol, (void *)entry_##symbol},
#define CU(base, symbol, since, flags, behaviour, detail, params, args) \
        ROW(TRANSLATED(symbol), symbol)
#include "cuda/cuda_api.def"
                {"cuInit", (void *)entry_cuInit},
                {"cuDeviceGet", (void *)entry_cuDeviceGet},
                {"cuMemCreate", (void *)entry_cuMemCreate},
                {"cuMemGetAllocationGranularity", (void *)entry_cuMemGetAllocationGranularity},
                {"cuMemSetAccess", (void *)entry_cuMemSetAccess},
                {"cuMemPoolSetAccess", (void *)entry_cuMemPoolSetAccess},
                {"cuMemPoolCreate", (void *)entry_cuMemPoolCreate},
        };

        return entry_find(rows, ARRAY_SIZE(rows), symbol);
}
