/* find.c: finds addresses in the heaps, for unit tests that have heaps. */
#include "unit.h"

#include "preload/state/core.h"

#define WEAK __attribute__((weak))

WEAK struct gpu *core_find(CUdeviceptr address, struct heap_place *ret)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (heap_find(&core.gpus[i].heap, address, ret))
                        return &core.gpus[i];
        return NULL;
}
