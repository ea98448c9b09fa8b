/* array.h: arrays as copies see them. An array is a block of the card's memory whose address is
 * never given out; rows follow each other without gaps. */
#pragma once

#include "sim/call/objects.h"

struct CUarray_st {
        CUarray next;
        CUcontext context;
        CUDA_ARRAY3D_DESCRIPTOR shape;
        CUmipmappedArray mipmap; /* NULL: not a level of a mipmap */
        CUdeviceptr at;
        size_t element, pitch, rows, slices; /* bytes, bytes, 1 at least, 1 at least */
};

/* All below: sim.lock held. */
CUarray array_find(CUarray handle); /* NULL: there is no such array */
CUmipmappedArray mipmap_find(CUmipmappedArray handle);
/* With the context's memory, which is freed elsewhere. */
void array_forget_context(CUcontext c);
void texture_forget_context(CUcontext c);
