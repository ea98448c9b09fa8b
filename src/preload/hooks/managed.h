/* managed.h: managed memory, the program's own and what the mode `managed` makes of all its
 * allocations.
 *
 * Its bytes are in the heap's books like any other's: promised, limited, needed before the program
 * runs. But the driver moves it: what is sent home when the room is given away is what of it is on
 * the GPU, and nothing has a handle.
 *
 * Only where the room really comes free (home.h). Where it does not, or as long as it is not known,
 * managed memory stays in the books as backed and is not moved: who needs the room waits until it
 * is freed, or until it is known.
 *
 * Nor where the program says that it will be read mostly: then what is sent somewhere stays where
 * it was as well. Memory of its own is left to the driver from then on; what the mode has made is
 * not, for the heap has to know where it is. */
#pragma once

#include <stdint.h>

#include "preload/process/lock.h"

struct gpu;

/* Find out what this GPU can do, and of which kind its heap will be. Lock held; once for each GPU.
 */
void managed_learn(struct gpu *g);

/* Managed memory for a heap that is made of it. 0, or -ENOMEM. */
int managed_provide(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock);
