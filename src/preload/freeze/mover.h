/* mover.h: a second context of the process on a GPU, in which memory is moved while the program is
 * frozen.
 *
 * The mover has its own channels, so it works while those of the program are frozen. It takes about
 * half the memory of an ordinary context, because its stack, heap and print buffer are as small as
 * possible (260 of 524 MiB, H200). For the agent's thread, core_lock not held, unless said
 * otherwise.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

/* Memory that the mover keeps beside its context, so that the first piece that moves in has room.
 */
#define MOVER_SPARE_BYTES (UINT64_C(2) << 20)

struct gpu;
struct mover;

/* Create the mover of a GPU. NULL: that is not possible now. */
struct mover *mover_new(struct gpu *g);
void mover_free(struct mover *m); /* NULL is a no-op */
CUcontext mover_context(const struct mover *m);
/* Returns the context in which a GPU's memory is moved: that of the mover if there is one,
 * otherwise one of the program; NULL: there is none. */
CUcontext mover_context_of(const struct gpu *g);
/* Returns the bytes that the mover has allocated beside its context. */
uint64_t mover_bytes(const struct mover *m);

/* Try all calls that moving memory needs, on 2 MiB: create, map, copy in and out, unmap, release.
 * told() gets the name of each call before it is made. CUDA_ERROR_NOT_READY: the copy has not ended
 * yet, because the GPU or the bus is busy; the next call waits for it. */
CUresult mover_canary(struct mover *m, void (*told)(const char *call));
