/* freeze_watch.h: a thread that makes no driver call and sees to it that none keeps a frozen
 * program for ever: libcuda's locks may be held by threads that wait for the frozen channels.
 *
 * The agent's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* From now on, until freeze_watch_end(), each call must end within so long. lets_go: the program is
 * let go then, for all its memory is there; otherwise it is only said which call it is. */
void freeze_watch_begin(uint64_t most_ns, bool lets_go);
/* What is called next: a string that lasts. Its time begins. Of no other thread. */
void freeze_watch_call(const char *call);
/* True: it took longer, and the program was let go. */
bool freeze_watch_end(void);
/* In the child after fork. */
void freeze_watch_forget(void);
