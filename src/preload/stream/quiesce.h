/* quiesce.h: which streams a process has, and whether all its submitted work is done.
 *
 * A drain must not block in the driver, must not disturb a capture (even a query of a capturing
 * stream invalidates the capture; measured, CUDA 13.0), and must leave no trace: an event on the
 * legacy stream orders the blocking streams, and may deadlock a program. So while nothing new can
 * be submitted, streams are only queried, one by one. Two cases need an event of the whole context
 * (cuCtxRecordEvent: covers every stream and delays none; measured): per-thread default streams,
 * which other threads cannot name, and waits beside a program that goes on submitting. Drivers
 * before CUDA 12.5 lack it: there each stream gets an event, and the legacy stream one for the
 * per-thread streams. */
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
        bool dying;         /* destruction has begun; other threads may still use the context */
        CUgreenCtx green;   /* part of the primary context's processors, with streams of its own */
        unsigned attached;  /* cuCtxAttach() calls not yet detached */
        CUevent mark,       /* our event for waits beside a submitting program */
                still_mark; /* our event for waits while nothing is submitted */
        bool marked,        /* mark is waited for */
                still_marked; /* still_mark is waited for */
        bool has_marks;       /* the driver has context events */
        bool strays;          /* streams were destroyed with work in flight */
        bool legacy_asked;    /* the legacy stream had work at the last query */
};

/* core_lock is held in all functions below. */
struct context *quiesce_context(CUcontext handle); /* NULL: unknown */
struct context *
quiesce_context_of(const struct gpu *g); /* any living context that is not green; NULL: none */
struct context *quiesce_context_green(CUgreenCtx green);       /* NULL: unknown */
struct context *quiesce_context_green_of(const struct gpu *g); /* any green context; NULL: none */
struct context *quiesce_context_primary(const struct gpu *g);  /* NULL: the GPU has none */
struct context *quiesce_context_add(CUcontext handle, struct gpu *gpu, bool primary);
void quiesce_context_remove(struct context *c)
        UNLOCKS(core_lock); /* the lock is given up while events are recorded in the context */
/* Returns the context that owns allocations made in `current`: the primary one for a green one. */
CUcontext quiesce_owner(CUcontext current);
int quiesce_stream_add(CUstream stream, CUcontext owner);
/* Call it before a stream is destroyed. Its work in flight is still waited for; a capture on it is
 * over. */
void quiesce_stream_remove(CUstream stream) UNLOCKS(core_lock);

/* Captures in progress are listed by the stream that each began on. While there are any, streams
 * are not queried. */
int quiesce_capture_begin(CUstream stream, CUcontext context, CUevent probe); /* 0, -ENOMEM */
/* Returns the capture's probe, which the caller destroys; NULL: none. If a stream or thread ends
 * during a capture, nobody destroys the probe before its context ends. */
CUevent quiesce_capture_end(CUstream stream);
/* True if a capture in progress forbids this thread to allocate and to free: an attempt would end
 * the capture (measured). In the same cases the driver refuses to query an event from before the
 * capture, and the attempt does no harm (measured). So the capture's probe is queried. */
bool quiesce_capture_forbids(void);
/* Call it when a thread has ended: its per-thread default stream and a capture on it have ended,
 * too. */
void quiesce_thread_ended(const struct gate_thread *t);
bool quiesce_capturing(void);
/* Call it when a capture is counted and about to begin. Waits for events that are being recorded,
 * as pool_await_records() does. */
void quiesce_await_records(void) UNLOCKS(core_lock);
/* True if a stream is, or may be, part of a capture. Needs no lock. */
bool quiesce_is_capturing(CUstream stream);

/* The next three functions need no lock, and the context need not be current. quiesce_record()
 * creates the event at first use. */
CUresult quiesce_ask_stream(CUstream stream, CUcontext context);
CUresult quiesce_ask_event(CUevent event, CUcontext context);
CUresult quiesce_record(CUevent *event, CUcontext context, CUstream stream);

enum quiescence {
        QUIESCE_BUSY,
        QUIESCE_DONE,    /* all work submitted before quiesce_begin() is done, or its context has
                            failed */
        QUIESCE_CAPTURE, /* unknown: a capture is in progress */
};

/* A wait for all work that the threads of this process have submitted so far: call quiesce_begin(),
 * then quiesce_poll() until it no longer returns QUIESCE_BUSY. core_lock is held in both; each
 * takes about a microsecond per stream. */
struct quiesce_wait {
        /* Nothing is submitted during the wait, because the gate is shut, or because the caller
         * gives up the wait as soon as something is submitted. At most one such wait at a time. If
         * the driver has no context events, the lock is given up while events are recorded. */
        bool still;
        uint64_t number;
        uint64_t generation; /* gate_submissions() when the wait began */
        uint64_t progress;   /* changes whenever some work has ended */
        uint64_t silent_ns;  /* when the driver first did not answer; 0: it always has */
};
void quiesce_begin(struct quiesce_wait *w, bool still) UNLOCKS(core_lock);
enum quiescence quiesce_poll(struct quiesce_wait *w) UNLOCKS(core_lock);

/* Wait until all work submitted before is done (as cuMemFree promises). */
void quiesce_wait_all(void) UNLOCKS(core_lock);
