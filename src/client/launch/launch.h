/* launch.h: the environment in which a program shares the GPU: `run` sets it, and `env` prints it.
 *
 * This module reads the options of both commands, so that the two never differ. Only one thread may
 * use a struct launch. */
#pragma once

#include <stdbool.h>

#include "base/daemon_paths.h"
#include "client/common/cli.h"

#define LAUNCH_VARIABLES_MAX 32

struct launch {
        const char *name;                   /* --name */
        const char *daemon;                 /* --daemon, as given */
        const char *gpu;                    /* --gpu, as given */
        const char *profile, *profile_file; /* --profile, --profile-file, as given */
        bool simulated;                     /* --sim */
        bool pools;                         /* --pools */
        bool verbose;                       /* --verbose */
        unsigned n_variables;
        struct launch_variable {
                const char *name; /* a string that is never freed */
                char *value;      /* NULL: the program must not have the variable */
        } variables[LAUNCH_VARIABLES_MAX];
};

/* Takes the value of --sim, for commands that have no other option of launch_options. */
int launch_set_sim(const struct option_row *row, void *launch, const char *value);

/* Sets the remaining variables, after all options were handled. CLI_OK, or an exit status after a
 * message. */
int launch_complete(struct launch *l);

/* Makes a path absolute and keeps its symbolic links: the file may not exist yet. NULL: see
 * errno. */
char *launch_absolute(const char *path);

/* ---- launch_variables.c: the variables by themselves ---- */

/* Returns the value that the program gets; NULL: the variable stays as it is. */
const char *launch_value(const struct launch *l, const char *variable);

/* Sets a variable, or replaces its value. Takes over the value, which is NULL if memory ran out.
 * CLI_OK, or an exit status after a message. */
int launch_set(struct launch *l, const char *name, char *value);

/* Takes a variable away from the program. */
void launch_unset(struct launch *l, const char *name);

/* Sets and unsets the variables in this process's environment. CLI_OK, or an exit status after a
 * message. */
int launch_apply(const struct launch *l);

/* Returns the variable that says which GPUs the program may use: CUDA_VISIBLE_DEVICES, unless
 * --ranks leaves that one to the ranks' launcher. */
const char *launch_gpus_variable(const struct launch *l);

void launch_clear(struct launch *l);
