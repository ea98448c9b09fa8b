/* front_answers.c: owns what libsublet.so asks this library (cuda/front.h). */
#include "cuda/front.h"

#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "ranks/devices/cards.h"
#include "ranks/devices/devices.h"
#include "ranks/entry/nccl.h"
#include "ranks/events/event_values.h"
#include "ranks/real/real_functions.h"
#include "ranks/ring/ring.h"

/* The program may close stderr before it uses NCCL. */
__attribute__((constructor)) static void front_loaded(void)
{
        const char *level = setting_text(SETTING_LOG);

        log_guard_stderr();
        if (!level || setting_place(SETTING_LOG, level) >= 0) /* libsublet.so reports other texts */
                log_open("libsublet-ranks", LOG_LEVEL_WARNING);
}

static void *driver_function(const char *symbol)
{
        void *own = events_replace(symbol);

        return own ? own : devices_replace_driver(symbol);
}

static void *replace(const char *symbol, void *found)
{
        void *own = NULL;

        if (!found || real_is_looking() || !cards_ranks())
                return found;
        if (strncmp(symbol, "cuda", 4) == 0)
                own = devices_replace_runtime(symbol);
        else if (strncmp(symbol, "cu", 2) == 0)
                own = driver_function(symbol);
        else if (strncmp(symbol, "nvml", 4) == 0)
                own = devices_replace_nvml(symbol);
        else
                own = nccl_replace(symbol);
        return own ? own : found;
}

__attribute__((visibility("default"))) const struct front sublet_front = {
        .replace = replace,
        .waits = ring_waits,
};
