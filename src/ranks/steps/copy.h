/* copy.h: a copy to or from a ring, in a stream, for the files of this room. See collectives.h. */
#pragma once

#include "ranks/real/real_functions.h"
#include "ranks/ring/ring.h"

/* Does nothing for a copy onto itself. */
static inline CUresult copy_in_stream(const struct ring *r, CUdeviceptr to, CUdeviceptr from,
                                      uint64_t bytes, CUstream stream)
{
        if (to == from || bytes == 0)
                return CUDA_SUCCESS;
        return r->on_host ? real_cuda()->cuMemcpyAsync(to, from, bytes, stream)
                          : real_cuda()->cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
