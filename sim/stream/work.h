/* work.h: what one operation does: plain data, run by a stream's thread or kept in a graph's node.
 */
#pragma once

#include "sim/api/objects.h"

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
        WORK_FREE,        /* of cuMemAlloc's memory, in the order of a stream */
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
        bool unified;            /* which way, its addresses alone say */
        void *staged;            /* a pageable source taken at the call */
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

/* True when running work should give up: the process leaves or the context has failed. */
bool work_cancelled(CUcontext c);
/* The same, between two steps of work that uses no memory at the moment: it stands here while its
 * channel is disabled. */
bool work_stopped(CUcontext c);

/* ---- who runs what ---- */
CUresult copy_run(CUcontext c, const struct work_copy *w);
CUresult set_run(CUcontext c, const struct work_set *w);
/* Wait until the bus is where it should be by then, roughly. */
void transfer_keep_pace(uint64_t ready_ns);
/* Some of the way to its end. False: it is there. */
bool transfer_nap(uint64_t ready_ns);
CUresult launch_run(CUcontext c, const struct work_kernel *w);
CUresult prefetch_run(CUcontext c, const struct work_prefetch *w);
CUresult value_write(CUcontext c, const struct work_value *w);
CUresult value_wait(CUcontext c, const struct work_value *w);
void event_stamp(CUevent event, uint64_t records);
CUresult program_run(CUcontext c, struct program *p);
void program_release(struct program *p);
struct program *program_retain(struct program *p);
size_t function_parameter_bytes(CUfunction f);
