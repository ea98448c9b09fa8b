/* managed.h: managed memory, the program's own and what the mode `managed` makes of all its
 * allocations.
 *
 * Its bytes are in the heap's books like any other's: promised, limited, needed before the program
 * runs. But the driver moves it: what is sent home when the room is given away is what of it is on
 * the GPU, and nothing has a handle. */
#pragma once

#include <stdint.h>

struct gpu;

/* What this GPU can do, and which kind its heap shall be of. Lock held; once a GPU. */
void managed_learn(struct gpu *g);

/* So much managed memory for a heap that is made of it. 0, or -ENOMEM. core.lock held, given up
 * meanwhile. */
int managed_provide(struct gpu *g, uint64_t bytes);
