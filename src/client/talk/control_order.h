/* control_order.h: gives a daemon one order for a person: which daemon, and what is said if it
 * fails. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "base/options.h"
#include "base/daemon_paths.h"

/* The options that choose a daemon, shared by all subcommands that ask a daemon. */
struct target {
        const char *daemon;  /* --daemon DIR */
        bool simulated;      /* --sim */
        const char *session; /* --sim=session=NAME; NULL: as SIMCUDA_SESSION says */
};

/* Rows of a table. at: where the struct target is. */
#define TARGET_OPTION_ROWS(at)                                                             \
        {"daemon", "DIR", "ask the daemon whose sockets are in DIR", options_set_text,     \
         (at) + offsetof(struct target, daemon)},                                          \
        {                                                                                  \
                "sim", "session=NAME", "ask the simulator's daemon", target_set_sim, (at), \
                        .optional = true                                                   \
        }
int target_set_sim(const struct option_row *row, void *target, const char *value);

/* What to do about a daemon that does not answer. */
#define TARGET_SILENT_REMEDY                                                                       \
        "`ps -C subletd -o pid,stat,user` shows T for a stopped one; `kill -CONT PID` lets it go " \
        "on"

/* Finds the directory of the chosen daemon. CLI_OK, or an exit status after a message. */
int target_dir(const struct target *target, char ret[static PATHS_DIR_MAX],
               enum paths_kind *ret_kind);

/* Checks whether this user can make the directory, in which a program would then start a daemon. 0
 * or -errno. */
int target_can_make(const char *dir);

/* Takes the result of ask_daemon() and its answer. Prints a message for an error, and for an
 * answer that is one. public: the order was one that every user may give. CLI_OK or CLI_FAILED. */
int control_answered(int r, const char *dir, bool public, json_t *answer, json_t **ret_answer);

/* Asks as ask_daemon() does, but prints a message for every failure and for an answer that is an
 * error. Takes over the reference to order. CLI_OK or CLI_FAILED. */
int control_order(const struct target *target, json_t *order, json_t **ret_answer);
/* Gives an order as control_order() does, for an answer that bytes follow (ask_daemon_bytes()). The
 * caller frees *ret_bytes. */
int control_order_bytes(const struct target *target, json_t *order, json_t **ret_answer,
                        void **ret_bytes);
