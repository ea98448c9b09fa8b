/* poison.c: notes what is sticky, as poison.h says, for unit tests: a launch that failed. */
#include "unit.h"

#include "fakes/neighbours.h"
#include "preload/state/poison.h"

#define WEAK __attribute__((weak))

WEAK bool poison_note(struct gpu *g, CUresult r)
{
        if (r != CUDA_ERROR_LAUNCH_FAILED)
                return false;
        g->error = r;
        return true;
}

WEAK CUresult poison_current(void)
{
        return core.gpus[0].error;
}
