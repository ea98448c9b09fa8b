/* work.h: the work of one operation, as plain data. A stream's thread runs it, or a graph's node
 * keeps it. */
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
        WORK_AWAIT_EVENT, /* waits for an event of another process */
        WORK_GRAPH_ALLOC,
        WORK_GRAPH_FREE,
};

struct work_kernel {
        CUfunction function; /* valid as long as its module is loaded */
        uint32_t grid[3], block[3], shared;
        void *parameters;
};

/* A copy of `depth` slices of `height` rows of `width` bytes. Pitch and slice are in bytes. */
struct work_copy {
        CUdeviceptr to, from;
        size_t to_pitch, to_slice, from_pitch, from_slice;
        size_t width, height, depth;
        /* True if that end of the copy is the host. If that end is managed memory, the copy moves
         * the memory to the host and uses it there. */
        bool to_host, from_host;
        bool unified; /* the addresses alone tell the direction */
        void *staged; /* the source's bytes, copied at the call if the source is pageable */
};

struct work_set {
        CUdeviceptr to;
        size_t pitch, width, height; /* in bytes, elements and rows */
        unsigned value, element;
};

struct work_prefetch {
        CUdeviceptr start;
        size_t bytes;
        int to; /* number of a device, or CU_DEVICE_CPU */
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
                        uint64_t number; /* number of the record in `shared` */
                } record;
                struct program *program; /* a launched graph; the work holds a reference */
                struct graph_memory *memory;
        };
};

/* Runs work, without any lock. An error sticks to the context. */
CUresult work_run(CUcontext c, struct work *w);
void work_clear(struct work *w);
CUresult work_clone(const struct work *w, struct work *ret_work);

/* The functions for each kind; the table is in api/works.c. */
struct work_type {
        CUresult (*run)(CUcontext c, struct work *w); /* NULL: the work does nothing */
        void (*clear)(struct work *w);                /* NULL: the work holds no resources */
        CUresult (*own)(struct work *w); /* gives a copy its own parameters and references */
        bool in_steps; /* the work consists of steps that each enter and leave the channel */
};
extern const struct work_type work_types[];
