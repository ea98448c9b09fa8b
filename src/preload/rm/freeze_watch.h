/* freeze_watch.h: a thread that makes no driver call and limits how long a driver call may keep a
 * frozen program: threads that wait for the frozen channels may hold libcuda's locks.
 *
 * For the agent's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* From now until freeze_watch_end() each call must end within this time. lets_go: if one does not,
 * the program is thawed, because all its memory is there; otherwise only the call's name is logged.
 */
void freeze_watch_begin(uint64_t most_ns, bool lets_go);
/* The calling thread makes this call next: a string that lasts. Calls of other threads are not
 * watched. */
void freeze_watch_call(const char *call);
/* True: a call took longer, and the program was thawed. */
bool freeze_watch_end(void);
/* In the child after fork. */
void freeze_watch_forget(void);
