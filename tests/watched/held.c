/* held.c: owns a check of each call to the driver, in the test build of the library: a thread that
 * holds core_lock makes no call that may block (CU_API_BLOCKS). */
#include <stdio.h>
#include <stdlib.h>

#include "preload/driver/real.h"
#include "preload/process/lock.h"

#undef real /* from here on `real` names the driver's own table */

static _Thread_local bool holds_core_lock;

void lock_watch(const struct lock *l, bool held)
{
        if (l == &core_lock)
                holds_core_lock = held;
}

static void look_at(const char *symbol, unsigned flags)
{
        if (!(flags & CU_API_BLOCKS) || !holds_core_lock)
                return;
        (void)fprintf(stderr, "%s may block and is called with core_lock held\n", symbol);
        abort();
}

#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        static CUresult watched_##symbol params                         \
        {                                                               \
                look_at(#symbol, flags);                                \
                return real.symbol args;                                \
        }
#include "cuda/cuda_api.def"

const struct real_driver real_watched = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) .symbol = watched_##symbol,
#include "cuda/cuda_api.def"
};
