/* control.h: one order to a daemon and its answer (docs/protocol.md, "Orders"). */
#pragma once

#include <jansson.h>

#include "base/paths.h"

/* The options that name a daemon, shared by all subcommands that ask one. */
struct target {
        const char *daemon; /* --daemon DIR */
        int simulated;      /* --sim */
};

/* Takes daemon_options, and the first of status_options; userdata is a struct target. */
int target_take(int option, const char *argument, void *target);
enum { TARGET_DAEMON, TARGET_SIM, TARGET_OPTIONS };
#define TARGET_OPTION_ROWS                                             \
        [TARGET_DAEMON] = {"daemon", CLI_REQUIRED, "DIR",              \
                           "ask the daemon whose sockets are in DIR"}, \
        [TARGET_SIM] = {"sim", CLI_NONE, NULL, "ask the simulator's daemon"}

/* The directory of that daemon. CLI_OK, or an exit status after a message. */
int target_dir(const struct target *target, char ret[static PATHS_DIR_MAX],
               enum paths_kind *ret_kind);

/* Send order, a JSON object, and read the answer, a new reference. 0 or -errno: -ENOENT or
 * -ECONNREFUSED nobody is there, -EACCES not allowed, -EPERM the directory is somebody else's,
 * -ETIMEDOUT no answer in time, -EBADMSG no JSON object. Prints nothing. */
int control_ask(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer);

/* The same, but prints every failure, and an answer that is an error. Takes the reference to order.
 * CLI_OK or CLI_FAILED. */
int control_order(const struct target *target, json_t *order, json_t **ret_answer);
