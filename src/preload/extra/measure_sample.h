/* measure_sample.h: times some launches by pairs of events, within a budget (measure.h).
 *
 * The events belong to this module; each context has a few. No function waits for the GPU. Any
 * thread; no lock need be held, and core_lock must not be. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "wire/wire_measure.h"

struct sample_context;

/* One launch that is being timed; lives on the caller's stack. */
struct sample {
        struct sample_context *context; /* NULL: it is not timed */
        CUcontext handle;               /* the context of the events; it may have ended since */
        CUstream stream;
        CUevent start, end;
        uint64_t began_ns, recorded_ns;
};

/* Call it right before a launch in this stream, which must not be capturing. False: the launch is
 * not timed, because the budget is spent, or because there is no event. */
bool sample_begin(struct sample *s, CUstream stream);
/* The launch was submitted: its time is added to *time later. Returns what the sample has cost the
 * calling thread, in ns. */
uint64_t sample_end(struct sample *s, struct measure_time *time);
/* The launch has failed. */
void sample_drop(struct sample *s);

/* Call it before a context is destroyed. */
void sample_context_dies(CUcontext context);
/* Call it in the child after fork: no event is left. */
void sample_forget(void);
