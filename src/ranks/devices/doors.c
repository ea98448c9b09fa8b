/* doors.c: owns the driver's functions that are translated (translated.h). Each is a local function
 * with an exported second name, so that the addresses that we hand out are ours. */
#include "ranks/devices/doors.h"

#include <string.h>

#include "base/macros.h"
#include "ranks/devices/contexts.h"
#include "ranks/devices/places.h"
#include "ranks/devices/translated.h"

#define UNWRAP(...) __VA_ARGS__

/* Calls the driver while a pointer parameter points to a translated copy. */
#define REPLACED(symbol, parameter, translated, args) \
        PLACES places;                                \
                                                      \
        parameter = translated;                       \
        return real_cuda()->symbol args;

#define DO_NONE(symbol, args)
#define DO_IN(symbol, args)            \
        device = devices_card(device); \
        return real_cuda()->symbol args;
#define DO_CREATE(symbol, args)                 \
        const CUdevice of = device;             \
        const bool first = devices_use(device); \
        CUresult r;                             \
                                                \
        device = devices_card(device);          \
        r = real_cuda()->symbol args;           \
        if (r == CUDA_SUCCESS && !first)        \
                contexts_own(*ret_ctx, of);     \
        return r;
#define DO_FORGET(symbol, args) \
        contexts_disown(ctx);   \
        return real_cuda()->symbol args;
#define DO_VALUE(symbol, args)         \
        location = place_of(location); \
        return real_cuda()->symbol args;
#define DO_LOCATION(symbol, args) \
        REPLACED(symbol, location, places_locations(&places, location, 1), args)
#define DO_LIST(symbol, args) \
        REPLACED(symbol, locations, places_locations(&places, locations, location_count), args)
#define DO_HINTS(symbol, args) \
        REPLACED(symbol, attrs, places_hints(&places, attrs, attr_count), args)
#define DO_BATCH(symbol, args) \
        REPLACED(symbol, op_list, places_batch(&places, op_list, op_count), args)
#define DO_PROP(symbol, args)                          \
        CUmemAllocationProp own;                       \
                                                       \
        if (prop) {                                    \
                own = *prop;                           \
                own.location = place_of(own.location); \
                prop = &own;                           \
        }                                              \
        return real_cuda()->symbol args;
#define DO_NODE(symbol, args)                                                               \
        CUgraphNodeParams own, *of = node_params;                                           \
        PLACES places = {NULL};                                                             \
        CUresult r;                                                                         \
                                                                                            \
        if (!of || of->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)                                \
                return real_cuda()->symbol args;                                            \
        own = *of;                                                                          \
        own.alloc.poolProps.location = place_of(own.alloc.poolProps.location);              \
        own.alloc.accessDescs =                                                             \
                places_accesses(&places, of->alloc.accessDescs, of->alloc.accessDescCount); \
        node_params = &own;                                                                 \
        r = real_cuda()->symbol args;                                                       \
        of->alloc.dptr = own.alloc.dptr;                                                    \
        return r;
#define DO_HAND(symbol, args) return hand_##symbol args;

#define DOOR(word, symbol, params, args)   DOOR_2(word, symbol, params, args)
#define DOOR_2(word, symbol, params, args) DOOR_##word(symbol, params, args, word)
#define DOOR_3(symbol, params, args, word)                                       \
        static CUresult ranks_##symbol params;                                   \
        extern __typeof__(ranks_##symbol) symbol                                 \
                __attribute__((alias("ranks_" #symbol), visibility("default"))); \
        static CUresult ranks_##symbol params                                    \
        {                                                                        \
                DO_##word(symbol, args)                                          \
        }
#define DOOR_NONE(symbol, params, args, word)
#define DOOR_IN       DOOR_3
#define DOOR_CREATE   DOOR_3
#define DOOR_FORGET   DOOR_3
#define DOOR_VALUE    DOOR_3
#define DOOR_LOCATION DOOR_3
#define DOOR_LIST     DOOR_3
#define DOOR_PROP     DOOR_3
#define DOOR_HINTS    DOOR_3
#define DOOR_BATCH    DOOR_3
#define DOOR_NODE     DOOR_3
#define DOOR_HAND     DOOR_3
#define CU(base, symbol, since, flags, behaviour, detail, params, args) \
        DOOR(TRANSLATED(symbol), symbol, params, args)
#include "cuda/cuda_api.def"
#undef CU

#define ROW(word, symbol)   ROW_2(word, symbol)
#define ROW_2(word, symbol) ROW_##word(symbol)
#define ROW_3(symbol)       {#symbol, (void *)ranks_##symbol},
#define ROW_NONE(symbol)
#define ROW_IN       ROW_3
#define ROW_CREATE   ROW_3
#define ROW_FORGET   ROW_3
#define ROW_VALUE    ROW_3
#define ROW_LOCATION ROW_3
#define ROW_LIST     ROW_3
#define ROW_PROP     ROW_3
#define ROW_HINTS    ROW_3
#define ROW_BATCH    ROW_3
#define ROW_NODE     ROW_3
#define ROW_HAND     ROW_3

static const struct {
        const char *symbol;
        void *function;
} rows[] = {
#define CU(base, symbol, since, flags, behaviour, detail, params, args) \
        ROW(TRANSLATED(symbol), symbol)
#include "cuda/cuda_api.def"
#undef CU
};

void *doors_replace(const char *symbol)
{
        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
                if (strcmp(rows[i].symbol, symbol) == 0)
                        return rows[i].function;
        return NULL;
}
