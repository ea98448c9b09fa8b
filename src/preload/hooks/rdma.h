/* rdma.h: memory that a device outside CUDA reads and writes.
 *
 * Nobody says when it has done with it, so the memory stays on the card until the program frees it.
 */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

/* Keep there whatever of the heap, or of the program's own handles, lies in [from, from +
 * bytes). */
CUresult rdma_keep(CUdeviceptr from, uint64_t bytes) UNLOCKS(core_lock);
