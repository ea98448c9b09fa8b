/* profile.h: which buffers are worth their place on the card (SUBLET_MEMORY=overflow). Trials find
 * it out (SUBLET_PROFILE, `sublet run --profile FILE`), or it is read from a file that an earlier
 * run has written (SUBLET_PROFILE_FILE, `--profile-file FILE`).
 *
 * The program's own work is timed from the beginning of a step (work_steps.h) to the beginning of a
 * later one. Nothing is in flight at either end. During that time the largest buffers lie on the
 * host, all of them or all but one (trial.h). Buffers move between two samples, while the thread
 * that begins the step waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct block;
struct gpu;

/* Call it once, before the first thread passes the gate. */
void profile_setup(void);
/* Call it in the child after fork. */
void profile_forget(void);
/* Call it when the process exits; the lock is not needed. */
void profile_exits(void);

/* A thread of the program, not inside the gate, is about to submit this work (gate.h). core_lock
 * not held. */
void profile_submission(uint64_t work);

/* ---- core_lock held ---- */

/* A buffer with a block of its own was allocated: the profile may know it. */
void profile_allocated(struct gpu *g, struct block *b);
/* Buffers may move soon: log once how many of them the profile file lists. */
void profile_placing(void);

/* Where a buffer lies during the trials. */
enum profile_place {
        PROFILE_HOST = -1, /* the buffer is in the trials, and it is the turn of another */
        PROFILE_FREE,      /* the buffer is placed by its rank */
        PROFILE_CARD,      /* it is the turn of this buffer */
};
enum profile_place profile_place(const struct block *b);
/* Returns the bytes kept free for the buffer whose turn it is; 0: there are no trials. */
uint64_t profile_room(void);
