/* mode.c: owns what SUBLET_MEMORY means. Must never guess: what is no mode is said once, and the
 * default holds. */
#include "preload/process/mode.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"

static enum memory_mode mode_parse(const char *text)
{
        static const char *const names[] = {[MEMORY_SWAP] = "swap",
                                            [MEMORY_OVERFLOW] = "overflow",
                                            [MEMORY_MANAGED] = "managed"};

        for (unsigned i = 0; text && *text && i < ARRAY_SIZE(names); i++)
                if (strcmp(text, names[i]) == 0)
                        return (enum memory_mode)i;
        if (text && *text)
                log_warning("SUBLET_MEMORY is swap, overflow or managed, not '%s'", text);
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
