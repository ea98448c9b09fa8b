/* lost.h: the memory of a GPU that this process has lost (poison.h). */
#pragma once

#include <stdbool.h>

#include "preload/process/lock.h"

/* Give back what lies on GPUs with an error. True: some is left whose time will come soon. The
 * agent. */
bool lost_clean(void) UNLOCKS(core_lock);
