/* stream.h: operations in order, on a thread of each stream's own.
 *
 * An operation starts when the one before it in its stream is done and every point it waits for is
 * reached. Legacy default stream: its operations wait for all blocking streams of the context, and
 * theirs for it. */
#pragma once

#include "sim/call/objects.h"
#include "sim/queue/work.h"

/* What the handle means here: NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD included. */
CUresult stream_resolve(CUcontext c, CUstream handle, CUstream *ret_stream);
/* Not one of CUDA's own streams. CUDA_ERROR_INVALID_HANDLE, or its context is gone. */
CUresult stream_check(CUstream handle);
/* How an entry point begins that names a stream: api_enter() with a context, then that. */
CUresult stream_enter(const char *function, CUstream *stream, CUcontext *ret_context);
CUresult stream_new(CUcontext c, unsigned flags, int priority, CUstream *ret_stream);

/* Queue work (taken over, also on failure; *w is left empty). A capturing stream gets a graph node
 * instead. after: NULL, or points to wait for besides. */
CUresult stream_submit(CUstream s, struct work *w, const struct point *after, size_t count);
/* A stream takes only so much: wait until it can take more, the lock held and given up meanwhile.
 * The driver, too, keeps who submits waiting inside the call. */
void stream_await_room(CUstream s);
/* The same as stream_submit(), the lock held, the stream not capturing, without waiting for room.
 */
CUresult stream_submit_locked(CUstream s, struct work *w, const struct point *after, size_t count,
                              struct point *ret_point);

/* The stream waits for the point, and so for what came before it; whether it does. Locked. */
void stream_hear(CUstream s, struct point p);
bool stream_follows(CUstream s, const struct point *p);

/* Queue work behind all that the context's streams have been given so far; nothing waits for it.
 * The lock held. */
CUresult stream_submit_behind_all(CUcontext c, struct work *w, struct point *ret_point);
/* Work that all of the context's streams wait for from now on, and that waits for the point. The
 * lock held. */
CUresult stream_hold_all(CUcontext c, struct work *w, const struct point *until);

/* For what cannot be captured: submit and, if told to, wait. The lock held. */
CUresult stream_submit_free(CUstream s, struct work *w, bool wait);

/* True once nothing more will happen before it. Locked. */
bool point_reached(const struct point *p);
/* Wait for it, for the context's failure or for the process's end. */
CUresult point_wait(CUcontext c, struct point p);
CUresult point_wait_locked(CUcontext c, struct point p);
/* Everything submitted so far, on any stream of the context and of green ones of it. What cannot be
 * captured is not asked for: cuCtxSynchronize() does that. */
CUresult context_wait(CUcontext c);
CUresult context_wait_locked(CUcontext c);
/* Streams end when their work is done. The lock held. */
void stream_destroy(CUstream s);
void stream_destroy_all(CUcontext c);
/* At fork in the child, at exit: nothing waits any more. */
void stream_abandon(void);
