/* lost.h: the memory of a GPU that this process has lost (poison.h). */
#pragma once

#include <stdbool.h>

#include "preload/process/lock.h"

/* Give back memory on GPUs with an error. True: some is left, and can be given back soon. The
 * agent. */
bool lost_clean(void) UNLOCKS(core_lock);
