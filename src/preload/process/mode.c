/* mode.c: owns the reading of SUBLET_MEMORY. Must never guess: a word that is no mode is reported
 * once, and the default is used. */
#include "preload/process/mode.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"

enum memory_mode mode_memory(void)
{
        static _Atomic int known; /* the mode plus 1; 0: not read yet */
        int mode = known;

        if (!mode)
                known = mode = 1 + setting_choice(SETTING_MEMORY);
        return (enum memory_mode)(mode - 1);
}
