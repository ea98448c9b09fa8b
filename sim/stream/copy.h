/* copy.h: checks that the entry points and the graph nodes share. */
#pragma once

#include "sim/queue/work.h"

enum copy_wait {
        COPY_ASYNC,
        COPY_SYNC,
        COPY_SYNC_DEVICE /* in order, but the caller does not wait */
};

/* Check, queue, wait: the whole of an entry point; function is its name. */
CUresult copy_submit(const char *function, const struct work_copy *copy, CUstream stream,
                     enum copy_wait wait);

/* From the two descriptors; 0 rows or bytes: nothing to do, and width becomes 0. */
CUresult copy_from_3d(const CUDA_MEMCPY3D *d, struct work_copy *ret_copy);
/* Both ends are valid, as far as can be known now. */
CUresult copy_check(const struct work_copy *w, bool graph);
CUresult set_check(const struct work_set *w, bool graph);
void copy_to_3d(const struct work_copy *w, CUDA_MEMCPY3D *ret_descriptor);
