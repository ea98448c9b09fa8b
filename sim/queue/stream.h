/* stream.h: operations in order, on a thread for each stream.
 *
 * An operation starts when the one before it in its stream has ended and every point that it waits
 * for is reached. Operations of the legacy default stream wait for all blocking streams of the
 * context, and theirs for it. */
#pragma once

#include "sim/call/objects.h"
#include "sim/queue/work.h"

/* The stream that a handle means, including NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. */
CUresult stream_resolve(CUcontext c, CUstream handle, CUstream *ret_stream);
/* For a handle of the program's. CUDA_ERROR_INVALID_HANDLE, or its context is destroyed. */
CUresult stream_check(CUstream handle);
/* The start of entry points that name a stream: api_enter() with a context, then stream_resolve().
 */
CUresult stream_enter(const char *function, CUstream *stream, CUcontext *ret_context);
CUresult stream_new(CUcontext c, unsigned flags, int priority, CUstream *ret_stream);

/* Queue work (taken over, also on failure; *w is left empty). A capturing stream gets a graph node
 * instead. after: NULL, or further points to wait for. */
CUresult stream_submit(CUstream s, struct work *w, const struct point *after, size_t count);
/* A stream takes only so many operations: wait until it can take more; the lock is given up
 * meanwhile. The driver's calls wait in the same way. */
void stream_await_room(CUstream s);
/* The same as stream_submit(), the lock held, the stream not capturing, without waiting for room.
 */
CUresult stream_submit_locked(CUstream s, struct work *w, const struct point *after, size_t count,
                              struct point *ret_point);

/* Note that the stream waits for the point, and so for all before it; and ask whether it does.
 * Locked. */
void stream_hear(CUstream s, struct point p);
bool stream_follows(CUstream s, const struct point *p);

/* Queue work behind all work that the context's streams have; no stream waits for it. The lock
 * held. */
CUresult stream_submit_behind_all(CUcontext c, struct work *w, struct point *ret_point);
/* Work that waits for the point, and that all of the context's streams wait for from now on. The
 * lock held. */
CUresult stream_hold_all(CUcontext c, struct work *w, const struct point *until);

/* For operations that cannot be captured: submit and, if asked to, wait. The lock held. */
CUresult stream_submit_free(CUstream s, struct work *w, bool wait);

/* True once no work before it is left. Locked. */
bool point_reached(const struct point *p);
/* Wait for it, for the context's failure or for the process's end. */
CUresult point_wait(CUcontext c, struct point p);
CUresult point_wait_locked(CUcontext c, struct point p);
/* Waits for all work submitted so far on any stream of the context and of its green contexts.
 * Captures are not checked: cuCtxSynchronize() does that. */
CUresult context_wait(CUcontext c);
CUresult context_wait_locked(CUcontext c);
/* Streams end when their work is done. The lock held. */
void stream_destroy(CUstream s);
void stream_destroy_all(CUcontext c);
/* At fork in the child, and at exit: end all waits. */
void stream_abandon(void);
