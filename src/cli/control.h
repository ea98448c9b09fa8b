/* control.h: gives a daemon one order for a person: which daemon, and what is said if it fails. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "base/paths.h"

/* The options that choose a daemon, shared by all subcommands that ask a daemon. */
struct target {
        const char *daemon;  /* --daemon DIR */
        int simulated;       /* --sim */
        const char *session; /* --sim=session=NAME; NULL: as SIMCUDA_SESSION says */
};

/* Handles an option of TARGET_OPTION_ROWS; target is a struct target. */
int target_take(int option, const char *argument, void *target);
enum { TARGET_DAEMON, TARGET_SIM, TARGET_OPTIONS };
#define TARGET_OPTION_ROWS                                             \
        [TARGET_DAEMON] = {"daemon", CLI_REQUIRED, "DIR",              \
                           "ask the daemon whose sockets are in DIR"}, \
        [TARGET_SIM] = {"sim", CLI_OPTIONAL, "session=NAME", "ask the simulator's daemon"}

/* Finds the directory of the chosen daemon. CLI_OK, or an exit status after a message. */
int target_dir(const struct target *target, char ret[static PATHS_DIR_MAX],
               enum paths_kind *ret_kind);

/* Takes the result of ask_daemon() and its answer. Prints a message for an error, and for an
 * answer that is one. public: the order was one that every user may give. CLI_OK or CLI_FAILED. */
int control_answered(int r, const char *dir, bool public, json_t *answer, json_t **ret_answer);

/* As ask_daemon(), but prints a message for every failure and for an answer that is an error.
 * Takes over the reference to order. CLI_OK or CLI_FAILED. */
int control_order(const struct target *target, json_t *order, json_t **ret_answer);
/* The same if "bytes" of the answer follow its line. The caller frees *ret_bytes. */
int control_order_bytes(const struct target *target, json_t *order, json_t **ret_answer,
                        void **ret_bytes);
