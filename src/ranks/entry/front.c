/* front.c: owns what libsublet.so asks this library (cuda/front.h). */
#include "cuda/front.h"

#include <stddef.h>

#include "ranks/real/real.h"

static void *replace(const char *symbol, void *found)
{
        if (!found || real_is_looking())
                return found;
        (void)symbol;
        return found;
}

static bool waits(void)
{
        return false;
}

__attribute__((visibility("default"))) const struct front sublet_front = {
        .replace = replace,
        .waits = waits,
};
