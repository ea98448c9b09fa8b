/* managed.h: managed memory: the program's own allocations of it, and all allocations in the mode
 * `managed`.
 *
 * The heap counts its bytes like other memory: they are promised, limited, and needed before the
 * program runs. But the driver moves them: an eviction sends the part that is on the GPU to the
 * host, and there is no handle. Managed memory is moved only if that really frees the card
 * (home.h). Otherwise, or before that is known, the accounts count it as backed, and other programs
 * wait for the room.
 *
 * Managed memory is not moved either once the program advises that it is mostly read: a copy would
 * stay on the card. Managed memory that the program allocated itself is then left to the driver.
 * Memory of the mode `managed` is not, because the heap has to know where it is. */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

struct gpu;

/* Find out what this GPU can do, and which kind its heap will be. Lock held; once for each GPU. */
void managed_learn(struct gpu *g);

/* Forgets memory that was left to the driver; call it before the address is freed. Lock held. */
void managed_freed(CUdeviceptr address) REQUIRES(core_lock);

/* Adds managed memory to a heap that consists of it. 0, or -ENOMEM. */
int managed_provide(struct gpu *g, uint64_t bytes) UNLOCKS(core_lock);
