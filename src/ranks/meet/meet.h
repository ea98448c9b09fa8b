/* meet.h: the ranks of a communicator find each other, and exchange bytes and descriptors.
 *
 * The process that makes a communicator's name serves it: every rank connects to a socket of that
 * name in the abstract namespace, and the server passes on what each rank tells to all. One thread
 * of each process serves its names and reads what comes in for its ranks; it makes no CUDA call. A
 * rank whose process ends is noticed at once, because the kernel closes its connection.
 *
 * All ranks run as one user, on one machine and in one network namespace. Errors are -errno. Any
 * thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MEET_RANKS_MAX 64
#define MEET_NAME      16  /* bytes of a name */
#define MEET_TOLD_MAX  256 /* bytes that a rank tells at once */
#define MEET_FDS       2   /* descriptors that a rank tells at once, at most */

struct meet;

/* Draw a new name, and serve it. */
int meet_serve_new(uint8_t ret_name[static MEET_NAME]);
/* Serve a name that all ranks derive alike. -EADDRINUSE: somebody serves it. */
int meet_serve(const uint8_t name[static MEET_NAME]);

/* Connects a rank. -ECONNREFUSED: nobody serves this name. When a rank's process has ended, the
 * thread above calls on_lost, at most once. lost: that rank; -1: that is not known. */
int meet_join(const uint8_t name[static MEET_NAME], int rank, int n,
              void (*on_lost)(void *context, int lost), void *context, struct meet **ret);
/* Returns the rank that on_lost was called for, or -1. */
int meet_lost(struct meet *m);
/* Sends all ranks `bytes` bytes and up to MEET_FDS descriptors, and waits for the bytes and
 * descriptors of all ranks. Rank r's bytes are at all + r * bytes, its descriptors at all_fds + r *
 * MEET_FDS (-EBADF: none; the caller closes them). All ranks send the same number of bytes. all_fds
 * may be NULL. -ECONNRESET: a rank's process has ended. -ECANCELED: meet_cancel() was called. */
int meet_all(struct meet *m, const void *mine, unsigned bytes, const int *fds, unsigned n_fds,
             void *all, int *all_fds);
/* Ends the waits of meet_all(), from another thread. */
void meet_cancel(struct meet *m);
/* Leaves after `uses` collectives. The other ranks get an error only if they begin more collectives
 * than that. on_lost is not called any more. NULL is a no-op. */
void meet_leave(struct meet *m, uint64_t uses);
/* Only tells the others what meet_leave() tells them, at the end of the process. False: it gave up
 * after a second, because the process ends in the middle of a function of this file. */
bool meet_say_leave(struct meet *m, uint64_t uses);
/* Returns the least `uses` of the ranks that have left; UINT64_MAX: none has. Does not block. */
uint64_t meet_uses(struct meet *m);

/* Has the thread above call a function from now on, for aborted communicators; NULL: no more. The
 * calls come every millisecond, and ever more seldom while they return false (they had nothing to
 * do). */
void meet_call_often(bool (*often)(void));
