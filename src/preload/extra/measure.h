/* measure.h: counts and times what the program submits, for `sublet measure` (SUBLET_MEASURE). The
 * figures go to a file of this process (wire/wire_measure.h).
 *
 * While measuring is on, GATE_MEASURE is set: every call takes the slow way through its door, which
 * calls this module before and after the driver. While it is off, nothing is called. The program's
 * streams are never waited for. Captured work is neither counted nor timed, and no event is
 * recorded while its stream captures. Some launches are timed by pairs of events: each kernel's
 * first ones, then ever fewer, so that the samples cost at most 2 % of the time
 * (measure_sample.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/extra/measure_sample.h"
#include "wire/wire_measure.h"

struct measure_next;

/* One call in progress; lives on the caller's stack. The door sets the first members. */
struct measure_call {
        CUstream stream;
        uint64_t work; /* gate_work() */
        bool launches_graph;

        bool counts;               /* the call is not part of a capture */
        bool launch;               /* the call launches a kernel or a graph */
        bool due;                  /* the call is to be timed */
        struct measure_time *time; /* the launch's figures; NULL: not a launch, or not listed */
        struct measure_next *next;
        struct sample sample;
        CUfunction func;
        struct measure_kernel *fresh; /* the launched kernel, if it was not known before */
        enum measure_copy way;
        uint64_t copied; /* bytes that the call copies */
        CUgraphExec *ret_exec;
        CUgraph graph; /* the graph that the call instantiates; NULL: none */
};

/* Call it once, when the driver is loaded. */
void measure_setup(void);
/* Call it in the child after fork. */
void measure_forget(void);
/* Call it before a context is destroyed. */
void measure_context_dies(CUcontext context);

/* ---- around a call that submits; the calling thread is inside the gate ----
 *
 * Before the driver call, the door calls one of these functions with its own arguments. The type of
 * the driver function tells which one. */
void measure_other(struct measure_call *m, ...);
void measure_kernel(struct measure_call *m, CUfunction func, unsigned int grid_x,
                    unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                    unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, ...);
void measure_launch(struct measure_call *m, const CUlaunchConfig *config, CUfunction func,
                    void **params, void **extra);
void measure_graph(struct measure_call *m, CUgraphExec exec, CUstream stream);
void measure_instantiate(struct measure_call *m, CUgraphExec *ret_exec, CUgraph graph, ...);
void measure_to_device(struct measure_call *m, CUdeviceptr to, const void *from, size_t bytes, ...);
void measure_to_host(struct measure_call *m, void *to, CUdeviceptr from, size_t bytes, ...);
void measure_either(struct measure_call *m, CUdeviceptr to, CUdeviceptr from, size_t bytes, ...);
void measure_copy_2d(struct measure_call *m, const CUDA_MEMCPY2D *copy, ...);
void measure_copy_3d(struct measure_call *m, const CUDA_MEMCPY3D *copy, ...);

/* Call it when the driver has returned. */
void measure_after(struct measure_call *m, CUresult result);
