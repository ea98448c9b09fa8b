/* checkpoint.h: how a process asks any process of the session, perhaps itself, for a step of a
 * checkpoint. A thread of the asked process takes the step. Thread-safe. */
#pragma once

#include "sim/session/session.h"

enum checkpoint_step {
        CHECKPOINT_NONE,
        CHECKPOINT_LOCK,
        CHECKPOINT_SAVE,
        CHECKPOINT_RESTORE,
        CHECKPOINT_UNLOCK,
};

/* Has the process take a step, and returns its result, a CUresult. timeout_ms is passed on.
 * -ESRCH: no process of the session with this number has called cuInit, or it has ended; -EPERM: it
 * is another user's. */
int checkpoint_ask(struct session *s, pid_t pid, enum checkpoint_step step, uint32_t timeout_ms);
/* Finds the state and the thread of a process, for reading. -ESRCH, -EPERM. */
int checkpoint_find(struct session *s, pid_t pid, const struct session_checkpoint **ret);

/* ---- for the thread that takes the steps ---- */

/* Makes the calling thread the one that takes this process's steps. */
void checkpoint_serve(struct session *s);
/* Waits until somebody asks for a step. */
enum checkpoint_step checkpoint_next(struct session *s, uint32_t *ret_timeout_ms);
/* False: who asked for the step has ended. */
bool checkpoint_is_awaited(struct session *s);
/* Ends the step, and sets the process's state. */
void checkpoint_answer(struct session *s, int result, uint32_t state);
