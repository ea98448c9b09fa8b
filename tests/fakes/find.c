/* find.c: finds addresses in the heaps, for unit tests that have heaps. */
#include "unit.h"

#include "fakes/preload.h"

#define WEAK __attribute__((weak))

WEAK struct gpu *core_find(CUdeviceptr address, struct heap_place *ret)
{
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (heap_find(&core.gpus[i].heap, address, ret))
                        return &core.gpus[i];
        return NULL;
}

WEAK bool core_holds(CUdeviceptr address, uint64_t bytes)
{
        want_lock();
        for (unsigned i = 0; i < core.gpu_count; i++)
                if (heap_holds(&core.gpus[i].heap, address) ||
                    (bytes && heap_holds(&core.gpus[i].heap, address + bytes - 1)))
                        return true;
        return false;
}
