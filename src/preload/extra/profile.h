/* profile.h: which buffers are worth their place on the card (SUBLET_MEMORY=overflow), found by
 * trying (SUBLET_PROFILE, `sublet run --profile FILE`) or read from a file where an earlier run has
 * found it (SUBLET_PROFILE_FILE, `--profile-file FILE`).
 *
 * The program's own work is timed, from where one of its steps begins (steps.h) to where a later
 * one does, with nothing in flight at either end. The largest buffers are on the host meanwhile,
 * all or all but one (trial.h); they change sides between two samples, while the thread that begins
 * the step waits. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct block;
struct gpu;

/* Once, before the first thread passes the gate. */
void profile_setup(void);
/* In the child after fork. */
void profile_forget(void);
/* The process exits; the lock is not needed. */
void profile_exits(void);

/* A thread of the program, not inside the gate, is about to submit this work (gate.h). core_lock
 * not held. */
void profile_submission(uint64_t work);

/* ---- core_lock held ---- */

/* A buffer of its own was allocated: the profile may know it. */
void profile_allocated(struct gpu *g, struct block *b);
/* Buffers of this GPU may change sides soon: a message says once how many the file knows. */
void profile_placing(void);

/* Where a buffer lies while buffers are tried. */
enum profile_place {
        PROFILE_HOST = -1, /* it is tried, and it is not its turn */
        PROFILE_FREE,      /* it goes by its rank */
        PROFILE_CARD,      /* its turn */
};
enum profile_place profile_place(const struct block *b);
/* Bytes kept free for the buffer whose turn it is; 0: none is being tried. */
uint64_t profile_room(void);
