/* lost.h: the memory of a GPU that this process has lost (poison.h). */
#pragma once

#include <stdbool.h>

#include "preload/process/lock.h"

/* The agent calls it to give back memory on GPUs with an error. True: some memory is left that can
 * be given back soon. */
bool lost_clean(void) UNLOCKS(core_lock);
