/* lab_card.h: the card that a subcommand of the lab uses: a GPU, or a simulated card of its own. */
#pragma once

#include <linux/limits.h>

#include "base/macros.h"
#include "client/driver/driver_ask.h"
#include "client/launch/launch.h"

/* The driver and a desktop use up to this much of a card. A card with more in use counts as used by
 * somebody. */
#define LAB_UNUSED_BYTES (1 * GIB)

#define LAB_SESSION_MAX 32

/* Names a simulated card "COMMAND-PID", unless --sim names it, and sets the variables of --sim for
 * every process of the command. ret_folder is the simulator's. CLI_OK, or an exit status after a
 * message. */
int lab_card_simulate(const struct launch *l, const char *command,
                      char ret_session[static LAB_SESSION_MAX], char ret_folder[static PATH_MAX]);
/* Asks the driver in the simulator's folder; NULL: the machine's. Refuses a GPU that another
 * program uses. CLI_OK, or an exit status after a message. */
int lab_card_ask(const char *simulator, struct driver_report *ret);
/* Removes the simulated card, unless session is NULL, and the folder with all that it contains. */
void lab_card_leave(const char *session, const char *folder);
