/* freeze_watch.h: a thread that limits how long a driver call of the agent may take while the
 * program is frozen. Such a call may block, because threads that wait for the frozen channels may
 * hold libcuda's locks. The watching thread makes no driver call.
 *
 * For the agent's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Start the watching thread, unless it runs. False: that is not possible now. */
bool freeze_watch_start(void);
/* True if the watching thread runs: without it no program may be frozen. */
bool freeze_watch_runs(void);

/* Watch the thread's driver calls until freeze_watch_end(). If a call takes longer than most_ns,
 * its name is logged; with lets_go the program is thawed instead. Set lets_go only while all of the
 * program's memory is on the card. */
void freeze_watch_begin(uint64_t most_ns, bool lets_go);
/* Name the driver call that the thread makes next; the string must stay valid. Ignored in threads
 * that are not watched. */
void freeze_watch_call(const char *call);
/* Stop watching. True: a call took too long, and the program was thawed. */
bool freeze_watch_end(void);
/* Reset the watch in the child after fork: it has no watching thread. */
void freeze_watch_forget(void);
