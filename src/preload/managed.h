/* managed.h: managed memory, the program's own and what the mode `managed` makes of all its
 * allocations.
 *
 * Its bytes are in the heap's books like any other's: promised, limited, needed before the program
 * runs. But the driver moves it: what is sent home when the room is given away is what of it is on
 * the GPU, and nothing has a handle.
 *
 * Only where the room really comes free. A driver may keep the card's pages for memory that it has
 * moved to the host (580 on an H200 does), and to have it take them back for others is to
 * oversubscribe managed memory, which can hang such a card. Whether it does is tried once, within
 * free memory; where it keeps them, or as long as it is not known, managed memory stays in the
 * books as backed and is not moved: who needs the room waits until it is freed. */
#pragma once

#include <stdint.h>

struct gpu;

/* What this GPU can do, and which kind its heap shall be of. Lock held; once a GPU. */
void managed_learn(struct gpu *g);

/* Find out whether managed memory leaves the card when it is sent home, unless that is known. The
 * calling thread has a context of this GPU; core.lock not held. */
void managed_try_home(struct gpu *g);

/* So much managed memory for a heap that is made of it. 0, or -ENOMEM. core.lock held, given up
 * meanwhile. */
int managed_provide(struct gpu *g, uint64_t bytes);
