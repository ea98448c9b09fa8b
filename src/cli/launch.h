/* launch.h: the environment in which a program shares the GPU; what `run` sets and `env` prints.
 *
 * The options of both are read here, so that the two can never differ. Owned by one thread. */
#pragma once

#include "base/paths.h"
#include "cli/cli.h"

#define LAUNCH_VARIABLES_MAX 24

struct launch {
        const char *name;                   /* --name */
        const char *daemon;                 /* --daemon, as given */
        const char *profile, *profile_file; /* --profile, --profile-file, as given */
        int simulated;                      /* --sim */
        int pools;                          /* --pools */
        unsigned n_variables;
        struct launch_variable {
                const char *name; /* static */
                char *value;
        } variables[LAUNCH_VARIABLES_MAX];
};

/* Takes one of launch_options (commands.def); userdata is the struct launch. */
int launch_take(int option, const char *argument, void *launch);

/* After the options: work out the rest. CLI_OK, or an exit status after a message. */
int launch_complete(struct launch *l);

/* The variable's value for the program; NULL: it stays as it is. */
const char *launch_value(const struct launch *l, const char *variable);

void launch_clear(struct launch *l);

/* The directory of the simulator's daemon: one for each SIMCUDA_SESSION. CLI_OK, or an exit status
 * after a message. */
int launch_simulator_dir(const char *session, char ret[static PATHS_DIR_MAX]);
