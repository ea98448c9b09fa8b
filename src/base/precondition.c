/* precondition.c: owns what happens when a precondition is broken. */
#include "base/precondition.h"

#include <stdlib.h>

#include "base/log.h"

void precondition_broken(const char *condition, const char *file, int line, atomic_int *told)
{
        if (atomic_exchange(told, 1) == 0)
                log_error("a bug of sublet: \"%s\" does not hold at %s:%d; please report it",
                          condition, file, line);
#ifdef SUBLET_PRECONDITIONS_END
        abort();
#endif
}
