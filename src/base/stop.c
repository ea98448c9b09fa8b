/* stop.c: owns the words for a process that is stopped. */
#include "base/stop.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"

static const char *const names[] = {
        [STOP_SIGNAL] = "signal",
        [STOP_DEBUGGER] = "debugger",
        [STOP_CGROUP] = "cgroup",
};

const char *stop_name(unsigned stop)
{
        return stop < ARRAY_SIZE(names) ? names[stop] : NULL;
}

enum stop stop_of_name(const char *name)
{
        for (unsigned i = STOP_SIGNAL; name && i < ARRAY_SIZE(names); i++)
                if (strcmp(names[i], name) == 0)
                        return (enum stop)i;
        return STOP_NONE;
}

const char *stop_text(unsigned stop, pid_t pid, char text[static STOP_TEXT_MAX])
{
        switch (stop) {
        case STOP_SIGNAL:
                (void)snprintf(text, STOP_TEXT_MAX, "stopped (Ctrl-Z): `fg`, or `kill -CONT %d`",
                               (int)pid);
                return text;
        case STOP_DEBUGGER:
                return strcpy(text, "stopped (by a debugger): let it go on there");
        case STOP_CGROUP:
                return strcpy(text, "stopped (by its cgroup's freezer): thaw it, as with "
                                    "`docker unpause`");
        default:
                return NULL;
        }
}
