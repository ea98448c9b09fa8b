/* mode.c: owns what SUBLET_MEMORY means. Must never guess: what is no mode is said once, and the
 * default holds. */
#include "preload/mode.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static enum memory_mode mode_parse(const char *text)
{
        if (!text || !*text || strcmp(text, "swap") == 0)
                return MEMORY_SWAP;
        if (strcmp(text, "managed") == 0)
                return MEMORY_MANAGED;
        log_warning("SUBLET_MEMORY is swap or managed, not '%s'", text);
        return MEMORY_SWAP;
}

enum memory_mode mode_memory(void)
{
        static _Atomic int known; /* 1 + the mode */
        int mode = known;

        if (!mode)
                known = mode = 1 + (int)mode_parse(getenv("SUBLET_MEMORY"));
        return (enum memory_mode)(mode - 1);
}
