/* poison.c: a fake of poison.h and trouble.h for unit tests: a failed launch is the one sticky
 * error. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/move/trouble.h"
#include "preload/state/poison.h"

#define WEAK __attribute__((weak))

WEAK bool poison_sticks(CUresult r)
{
        return r == CUDA_ERROR_LAUNCH_FAILED;
}

WEAK bool poison_note(struct gpu *g, CUresult r)
{
        if (r != CUDA_ERROR_LAUNCH_FAILED)
                return false;
        g->error = r;
        return true;
}

WEAK void poison_give_up(struct gpu *g, CUresult why)
{
        g->error = why;
}

WEAK CUresult poison_current(void)
{
        return core.gpus[0].error;
}

WEAK CUresult trouble_await(CUstream stream)
{
        return real.cuStreamSynchronize(stream);
}

WEAK void trouble_give_up(struct gpu *g, CUresult why)
{
        want_lock();
        g->error = why;
}

WEAK bool trouble_waits(const struct gpu *g)
{
        return false;
}
