/* copy.h: checks that the entry points and the graph nodes share. */
#pragma once

#include "sim/queue/work.h"

enum copy_wait {
        COPY_ASYNC,
        COPY_SYNC,
        COPY_SYNC_DEVICE /* the caller waits unless both sides are device memory */
};

/* Does all of an entry point: checks and queues the copy, and waits. function is its name. */
CUresult copy_submit(const char *function, const struct work_copy *copy, CUstream stream,
                     enum copy_wait wait);

/* Returns the bytes from the first one of a copy or fill to the last, with the gaps between its
 * rows and slices. Saturates. */
uint64_t copy_span(uint64_t width, uint64_t pitch, uint64_t height, uint64_t slice, uint64_t depth);
/* Turns the driver's descriptor of a copy into work. */
CUresult copy_from_3d(const CUDA_MEMCPY3D *d, struct work_copy *ret_copy);
/* Checks both ends as far as possible before the copy runs. graph: the copy belongs to a graph. */
CUresult copy_check(const struct work_copy *w, bool graph);
CUresult set_check(const struct work_set *w, bool graph);
void copy_to_3d(const struct work_copy *w, CUDA_MEMCPY3D *ret_descriptor);
