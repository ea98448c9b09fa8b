/* permit.c: owns which checks decide whether a client may have memory, and what a person is told if
 * it may not. Must never change what the scheduler says. */
#include "daemon/ledger/permit.h"

#include <stdio.h>

#include "base/precondition.h"
#include "daemon/ledger/allowance.h"
#include "daemon/ledger/entitlement.h"

const char permit_share_text[] =
        "its user's programs have reached the limit on memory that cannot be moved: end some, or "
        "ask for a larger unevictable_per_user";

bool permit_commit(struct client *c, unsigned gpu, uint64_t commit, bool only_asks,
                   char why[static 160])
{
        if (!entitlement_fits(c, gpu, commit, only_asks, why))
                return false;
        if (allowance_commit(c, gpu, commit))
                return true;
        (void)snprintf(why, 160, "%s",
                       "its user's programs were promised as much host memory as one user may be: "
                       "end idle ones, or ask for a larger host_memory_per_user");
        return false;
}

bool permit_unevictable(struct client *c, unsigned gpu, uint64_t bytes, bool spare,
                        char why[static 160])
{
        PRECONDITION(gpu < SCHED_GPUS_MAX, false);
        if (bytes <= allowance_unevictable(c, gpu))
                return entitlement_fits_unevictable(c, gpu, bytes, spare, why);
        (void)snprintf(why, 160, "%s", permit_share_text);
        return false;
}
