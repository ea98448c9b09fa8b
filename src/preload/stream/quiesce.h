/* quiesce.h: which streams a process has, and whether everything it submitted is done.
 *
 * A drain must not block in the driver, must not disturb a capture (on a capturing stream even a
 * query invalidates the capture; measured, CUDA 13.0), and must leave no trace: an event on the
 * legacy stream makes all later work on blocking streams wait for all earlier work on them, and
 * where the earlier waits for the later, that is for ever. So streams are asked one by one, with
 * nothing put into them, wherever nothing new can come. For per-thread default streams, which
 * nobody else can name, and for waits beside a program that goes on submitting there is an event of
 * the whole context (cuCtxRecordEvent: covers every stream, holds nothing up; measured). Drivers
 * before CUDA 12.5 do not have it: there each stream gets an event, and the legacy stream one for
 * those of the threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "preload/state/core.h"

struct gate_thread;

struct context {
        struct context *next;
        CUcontext handle;
        struct gpu *gpu;
        bool primary;
        bool dying;        /* its destruction has begun; other threads may still use it */
        CUgreenCtx green;  /* part of the primary context's processors, with streams of its own */
        unsigned attached; /* cuCtxAttach() calls not yet detached */
        CUevent mark, still_mark;  /* events of ours behind all that was submitted before */
        bool marked, still_marked; /* waited for */
        bool has_marks;            /* the driver has context events */
        bool strays;               /* streams were destroyed with work in flight */
        bool legacy_asked;         /* the legacy stream had work when it was last asked */
};

/* For all functions below: core_lock held. */
struct context *quiesce_context(CUcontext handle); /* NULL: unknown */
struct context *
quiesce_context_of(const struct gpu *g); /* any living context that is not green; NULL: none */
struct context *quiesce_context_green(CUgreenCtx green);       /* NULL: unknown */
struct context *quiesce_context_green_of(const struct gpu *g); /* any green one; NULL */
struct context *quiesce_context_primary(const struct gpu *g);  /* NULL: not alive */
struct context *quiesce_context_add(CUcontext handle, struct gpu *gpu, bool primary);
void quiesce_context_remove(struct context *c)
        UNLOCKS(core_lock); /* lock given up while it is used */
/* The context that owns allocations made while this one is current: for a green one its primary. */
CUcontext quiesce_owner(CUcontext current);
int quiesce_stream_add(CUstream stream, CUcontext owner);
/* Call it before a stream is destroyed: its work in flight is still waited for, a capture on it is
 * over. */
void quiesce_stream_remove(CUstream stream) UNLOCKS(core_lock);

/* Captures in progress in this process, by the stream that each began on. While there are any,
 * nothing is asked of streams. */
int quiesce_capture_begin(CUstream stream, CUcontext context, CUevent probe); /* 0, -ENOMEM */
/* Returns the capture's probe, or NULL: the caller destroys it. Where a stream or thread ends
 * during a capture, the probe goes with the context. */
CUevent quiesce_capture_end(CUstream stream);
/* A capture in progress forbids this thread to allocate and to free, unless it is in relaxed mode
 * or another thread's own; a try would end the capture (measured). The driver knows which there
 * are: querying an event that was recorded before is forbidden in the same cases (measured), and
 * has no other effect. */
bool quiesce_capture_forbids(void);
/* A thread's per-thread default stream ends with it, and so does a capture on it. */
void quiesce_thread_ended(const struct gate_thread *t);
bool quiesce_capturing(void);
/* A capture is about to begin and is counted: wait for events that are being recorded, as
 * pool_await_records() does. */
void quiesce_await_records(void) UNLOCKS(core_lock);
/* Whether a stream is part of a capture, as far as can be told. Needs no lock. */
bool quiesce_is_capturing(CUstream stream);

/* Query a stream or an event of ours in its context, which need not be current; record such an
 * event, created at first use. Needs no lock. */
CUresult quiesce_ask_stream(CUstream stream, CUcontext context);
CUresult quiesce_ask_event(CUevent event, CUcontext context);
CUresult quiesce_record(CUevent *event, CUcontext context, CUstream stream);

enum quiescence {
        QUIESCE_BUSY,
        QUIESCE_DONE,    /* all work submitted before quiesce_begin() is done, or its context has
                            failed */
        QUIESCE_CAPTURE, /* cannot tell: a capture is in progress */
};

/* Begin to wait for all that has been submitted so far by anybody in this process; then poll until
 * it is not QUIESCE_BUSY. The lock is held in both; they take a microsecond or so a stream.
 * `still`: nothing is being submitted meanwhile, because the gate is shut or because the caller
 * gives the wait up when something is; at most one such wait at a time. Where the driver has no
 * events of whole contexts the lock is given up while events are recorded. */
struct quiesce_wait {
        bool still;
        uint64_t number;
        uint64_t generation; /* gate_submissions() when it began */
        uint64_t progress;   /* changes whenever some work has ended */
};
void quiesce_begin(struct quiesce_wait *w, bool still) UNLOCKS(core_lock);
enum quiescence quiesce_poll(struct quiesce_wait *w) UNLOCKS(core_lock);

/* Wait until all that was submitted before is done (what cuMemFree means). */
void quiesce_wait_all(void) UNLOCKS(core_lock);
