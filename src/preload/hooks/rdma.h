/* rdma.h: memory that a device outside CUDA reads and writes.
 *
 * Nobody reports when the device has finished, so the memory stays on the card until the program
 * frees it. */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/process/lock.h"

/* Keep all memory of the heap, or of the program's own handles, that lies in [from, from + bytes)
 * on the card. */
CUresult rdma_keep(CUdeviceptr from, uint64_t bytes) UNLOCKS(core_lock);
