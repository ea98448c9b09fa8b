/* front.c: owns what libsublet.so asks this library (cuda/front.h). */
#include "cuda/front.h"

#include <stddef.h>
#include <string.h>

#include "ranks/devices/cards.h"
#include "ranks/devices/doors.h"
#include "ranks/real/real.h"

static void *replace(const char *symbol, void *found)
{
        void *own = NULL;

        if (!found || real_is_looking() || !cards_ranks())
                return found;
        if (strncmp(symbol, "cu", 2) == 0)
                own = doors_replace(symbol);
        else if (strncmp(symbol, "nvml", 4) == 0)
                own = doors_replace_nvml(symbol);
        return own ? own : found;
}

static bool waits(void)
{
        return false;
}

__attribute__((visibility("default"))) const struct front sublet_front = {
        .replace = replace,
        .waits = waits,
};
