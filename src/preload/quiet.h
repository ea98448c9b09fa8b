/* quiet.h: which streams a process has, and whether everything it submitted is done.
 *
 * A drain must not block in a context synchronise and must not disturb a capture: on a capturing
 * stream even a query invalidates the capture (measured, CUDA 13.0). Streams that the program
 * created are asked one by one; what it submits to the legacy and the per-thread default streams is
 * covered by one event on the legacy stream, which waits for all blocking streams. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/core.h"

struct context {
        struct context *next;
        CUcontext handle;
        struct gpu *gpu;
        bool primary;
        unsigned retained; /* primary: cuDevicePrimaryCtxRetain() calls not yet released */
        CUevent legacy;    /* ours, recorded on the legacy stream; created at first use */
        bool legacy_recorded;
};

/* All below: core.lock held. */
struct context *quiet_context(CUcontext handle);            /* NULL: unknown */
struct context *quiet_context_of(const struct gpu *g);      /* any living one; NULL */
struct context *quiet_context_primary(const struct gpu *g); /* NULL: not alive */
struct context *quiet_context_add(CUcontext handle, struct gpu *gpu, bool primary);
void quiet_context_remove(struct context *c);
int quiet_stream_add(CUstream stream, CUcontext owner, bool blocking);
void quiet_stream_remove(
        CUstream stream); /* before it is destroyed: work in flight on it is still waited for */

/* Captures in progress in this process. While there are any, nothing is asked of streams. */
void quiet_capture_begin(void);
void quiet_capture_end(void);
bool quiet_capturing(void);

enum quiet {
        QUIET_BUSY,
        QUIET_DONE,     /* everything submitted before quiet_begin() is done */
        QUIET_CAPTURE,  /* cannot tell: a capture is in progress */
        QUIET_POISONED, /* a context has a sticky error */
};

/* Begin to wait for all that has been submitted so far by anybody in this process; then poll until
 * it is not QUIET_BUSY. The lock is held in both and not given up; they take a microsecond or so a
 * stream. `progress` changes when something got done. */
struct quiet_wait {
        uint64_t generation;
        uint64_t progress;
};
void quiet_begin(struct quiet_wait *w);
enum quiet quiet_poll(struct quiet_wait *w);

/* Wait, with the lock held and given up meanwhile, until all that was submitted before is done
 * (what cuMemFree means). */
void quiet_wait_all(void);
