/* rm_hand.h: the library's side of the page that it shares with the daemon's hand
 * (wire/hand_page.h).
 *
 * All functions need ledger_lock (rm.c), and none calls libcuda. Without a hand, they do nothing.
 */
#pragma once

#include <stdbool.h>

#include "preload/rm/channels.h"

/* Takes over the page and the socket to the hand. False: there is a hand, and this one waits for
 * its end; or they cannot be used, and are closed. */
bool hand_take(int page, int line);
/* Takes the hand that waits, if there is one. Call it after hand_left(). */
bool hand_take_next(void);
/* Ends the connection. The hand undoes what it has done, and then hand_left() follows. */
void hand_leave(void);
bool hand_is_leaving(void);
void hand_left(void);
void hand_ready(bool ready);
bool hand_holds(void); /* the program is off the GPU */

/* Writes the names of the program's channels into the page, as the ledger has them now. */
void hand_mirror(const struct channels *t);
/* Takes the names of an object's channels out of the page, and waits until the hand uses them no
 * more. False: it still does after about a second, so it is stuck in the kernel driver. */
bool hand_withdraw(const struct channels *t, uint32_t client, uint32_t object);
/* True if a new channel must be disabled for the hand. Then disable it and call hand_has_new(),
 * done: it is disabled; false: the hand has let the program run meanwhile, so enable the channel
 * again. */
bool hand_takes_new(const struct channels *t, uint32_t client, uint32_t object);
bool hand_has_new(const struct channels *t, uint32_t client, uint32_t object, bool done);
/* True if the hand has let the program run while the channel's name was withdrawn, so enable the
 * channel. */
bool hand_gives_back(const struct channels *t, uint32_t client, uint32_t object);
/* Makes the objects that prove the program's clients, and frees those that were seen. */
void hand_prove(struct channels *t, const struct rm_layout *layout);

/* Called in the child after fork. */
void hand_forget(void);
