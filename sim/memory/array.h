/* array.h: arrays, for copies between them and memory. An array is a block of the card's memory
 * whose address the program never gets; rows follow each other without gaps. */
#pragma once

#include "sim/call/objects.h"

struct CUarray_st {
        CUarray next;
        CUcontext context;
        CUDA_ARRAY3D_DESCRIPTOR shape;
        CUmipmappedArray mipmap; /* the mipmap of which this is a level; NULL: none */
        CUdeviceptr at;
        size_t element, pitch; /* bytes of an element, and from one row to the next */
        size_t rows, slices;   /* number of rows and of slices, at least 1 */
};

/* All functions below need sim.lock. */
CUarray array_find(CUarray handle); /* NULL: there is no such array */
CUmipmappedArray mipmap_find(CUmipmappedArray handle);
/* Both functions forget a context's objects. Another file frees the memory of the context. */
void array_forget_context(CUcontext c);
void texture_forget_context(CUcontext c);
