/* mover.h: a second context of the process on a GPU, in which memory is moved while the program is
 * frozen.
 *
 * Its channels are not the program's, so it works while those stand. It takes about half of what a
 * context takes, for its stack, heap and print buffer are the smallest (260 of 524 MiB, H200).
 * The agent's thread, core_lock not held, unless said otherwise. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"

/* Memory that it keeps beside its context: room for the first piece that comes in. */
#define MOVER_SPARE_BYTES (UINT64_C(2) << 20)

struct gpu;
struct mover;

/* NULL: it cannot be made now. */
struct mover *mover_new(struct gpu *g);
void mover_free(struct mover *m); /* NULL is a no-op */
CUcontext mover_context(const struct mover *m);
/* The context to move a GPU's memory in: the mover's, which works while the program is frozen, else
 * one of the program's; NULL: there is none. */
CUcontext mover_context_of(const struct gpu *g);
/* Bytes that it has allocated beside its context. */
uint64_t mover_bytes(const struct mover *m);

/* Make all calls that moving memory needs on 2 MiB: create, map, copy in and out, unmap, release.
 * told() gets the name of each call before it is made. CUDA_ERROR_NOT_READY: the copy goes on,
 * because the GPU or the bus is busy; it is waited for the next time. */
CUresult mover_canary(struct mover *m, void (*told)(const char *call));
