/* stream.h: runs the operations of each stream in order, on a thread for each stream.
 *
 * An operation starts when the operation before it in its stream has ended and every point that it
 * waits for is reached. Operations of the legacy default stream wait for all blocking streams of
 * the context. Operations of the blocking streams wait for the legacy stream. */
#pragma once

#include "sim/call/objects.h"
#include "sim/queue/work.h"

/* Finds the stream of a handle, which may be NULL, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. */
CUresult stream_resolve(CUcontext c, CUstream handle, CUstream *ret_stream);
/* Checks a handle from the program: returns an error if it is invalid or its context destroyed. */
CUresult stream_check(CUstream handle);
/* Begins entry points that take a stream: api_enter() with a context, and stream_resolve(). */
CUresult stream_enter(const char *function, CUstream *stream, CUcontext *ret_context);
CUresult stream_new(CUcontext c, unsigned flags, int priority, CUstream *ret_stream);

/* Queues work, or adds a graph node if the stream captures. Takes over the work, also on failure,
 * and leaves *w empty. after: NULL, or further points for which the work waits. */
CUresult stream_submit(CUstream s, struct work *w, const struct point *after, size_t count);
/* Waits until the queue of the stream has room, as the driver's calls do. Needs sim.lock, and
 * releases it during the wait. */
void stream_await_room(CUstream s);
/* Like stream_submit(), for a stream that does not capture, without waiting for room. Needs
 * sim.lock. */
CUresult stream_submit_locked(CUstream s, struct work *w, const struct point *after, size_t count,
                              struct point *ret_point);

/* Notes that stream s waits for a point of another stream, and so for all earlier points of that
 * stream. Needs sim.lock. */
void stream_hear(CUstream s, struct point p);
/* True if the stream waits for the point or for a later one. Needs sim.lock. */
bool stream_follows(CUstream s, const struct point *p);
/* True if a call that has waited for the first point, or for all work of the context if that is
 * NULL, has waited for the second, too. Needs sim.lock. */
bool stream_awaited(CUcontext c, const struct point *waited, const struct point *p);

/* Queues work that waits for all work of the context's streams. No stream waits for this work.
 * Needs sim.lock. */
CUresult stream_submit_behind_all(CUcontext c, struct work *w, struct point *ret_point);
/* Queues work that waits for the point. All later work of the context waits for this work. Needs
 * sim.lock. */
CUresult stream_hold_all(CUcontext c, struct work *w, const struct point *until);

/* Submits work that cannot be captured, and waits for it if `wait` is set. Needs sim.lock. */
CUresult stream_submit_free(CUstream s, struct work *w, bool wait);

/* True once all work up to the point has ended. Needs sim.lock. */
bool point_reached(const struct point *p);
/* Waits for the point or the exit of the process. Returns an error if the context has failed. Needs
 * sim.lock. */
CUresult point_wait(CUcontext c, struct point p);
/* Waits for all work submitted so far on any stream of the context and of its green contexts. Only
 * cuCtxSynchronize() checks that no stream captures. */
CUresult context_wait(CUcontext c);
CUresult context_wait_locked(CUcontext c);
/* Both functions destroy streams, which end when their work is done. Need sim.lock. */
void stream_destroy(CUstream s);
void stream_destroy_all(CUcontext c);
/* Ends all waits, at exit. */
void stream_abandon(void);
