/* control.h: sends one order to a daemon and reads the answer (docs/protocol.md, "Orders"). */
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

/* Sends order, a JSON object, and reads the answer, a new reference. Prints nothing. 0 or -errno:
 * -ENOENT or -ECONNREFUSED: no daemon is there; -EACCES: not allowed; -EPERM: others own or can
 * enter the directory; -ETIMEDOUT: no answer in time; -EBADMSG: the answer is no JSON object. */
int control_ask(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer);

/* The same for callers that must not wait for the answer. */
struct control_talk {
        int fd; /* readable when there is more of the answer; -EBADF: no order is under way */
        char *text;
        size_t used, room, line; /* line: where the line of the answer ends */
};
int control_begin(const char *dir, enum paths_kind kind, json_t *order, struct control_talk *ret);
/* Reads what has come of the answer. wait: waits for all of it. 1, the answer is complete; 0, not
 * yet; or -errno. */
int control_more(struct control_talk *t, bool wait, json_t **ret_answer);
void control_end(struct control_talk *t);

/* Takes the result of control_ask() and its answer. Prints a message for an error, and for an
 * answer that is one. public: the order was one that every user may give. CLI_OK or CLI_FAILED. */
int control_answered(int r, const char *dir, bool public, json_t *answer, json_t **ret_answer);

/* As control_ask(), but prints a message for every failure and for an answer that is an error.
 * Takes over the reference to order. CLI_OK or CLI_FAILED. */
int control_order(const struct target *target, json_t *order, json_t **ret_answer);
/* The same if "bytes" of the answer follow its line. The caller frees *ret_bytes. */
int control_order_bytes(const struct target *target, json_t *order, json_t **ret_answer,
                        void **ret_bytes);
