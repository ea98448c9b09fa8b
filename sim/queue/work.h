/* work.h: what one operation does: plain data, run by a stream's thread or kept in a graph's node.
 */
#pragma once

#include "sim/call/objects.h"

enum work_kind {
        WORK_EMPTY,
        WORK_KERNEL,
        WORK_COPY,
        WORK_SET,
        WORK_HOST,
        WORK_CALLBACK,
        WORK_RECORD,
        WORK_WRITE_VALUE,
        WORK_WAIT_VALUE,
        WORK_GRAPH,
        WORK_PREFETCH,
        WORK_AWAIT_EVENT, /* of another process */
        WORK_FREE,        /* of memory of cuMemAlloc, in the order of a stream */
        WORK_GRAPH_ALLOC,
        WORK_GRAPH_FREE,
};

struct work_kernel {
        CUfunction function; /* lives as long as its module */
        uint32_t grid[3], block[3], shared;
        void *parameters;
};

/* width bytes, height rows, depth slices; distances in bytes. */
struct work_copy {
        CUdeviceptr to, from;
        size_t to_pitch, to_slice, from_pitch, from_slice;
        size_t width, height, depth;
        bool to_host, from_host; /* managed memory is used where the processor has it */
        bool unified;            /* only the addresses tell the direction */
        void *staged;            /* a copy of a pageable source, made at the call */
};

struct work_set {
        CUdeviceptr to;
        size_t pitch, width, height; /* width in elements */
        unsigned value, element;
};

struct work_prefetch {
        CUdeviceptr start;
        size_t bytes;
        int to; /* a device, or CU_DEVICE_CPU */
};

struct work_value {
        CUdeviceptr address;
        uint64_t value;
        unsigned flags;
        bool wide;
};

struct work {
        enum work_kind kind;
        union {
                struct work_kernel kernel;
                struct work_copy copy;
                struct work_set set;
                struct work_value value;
                struct work_prefetch prefetch;
                struct {
                        CUhostFn fn;
                        void *data;
                } host;
                struct {
                        CUstreamCallback fn;
                        CUstream handle;
                        void *data;
                } callback;
                struct {
                        CUevent event;
                        uint64_t records;
                        struct shared_event *shared;
                        uint64_t number; /* of the record, there */
                } record;
                struct program *program; /* a graph's, counted */
                CUdeviceptr free;
                struct graph_memory *memory;
        };
};

/* Runs without any lock. Not success: an error that sticks to the context. */
CUresult work_run(CUcontext c, struct work *w);
void work_clear(struct work *w);
CUresult work_clone(const struct work *w, struct work *ret_work);

/* The functions for each kind; the table is in api/works.c. */
struct work_type {
        CUresult (*run)(CUcontext c, struct work *w); /* NULL: nothing */
        void (*clear)(struct work *w);                /* NULL: it holds nothing */
        CUresult (*own)(
                struct work *w); /* a copy of the work gets its own parameters and references */
        bool in_steps;           /* each step begins and ends on the channel by itself */
};
extern const struct work_type work_types[];
