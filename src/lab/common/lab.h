/* lab.h: a private daemon, and programs under it that report line by line: what sublet demo and
 * sublet bench have in common. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <jansson.h>

#include "base/daemon_paths.h"
#include "client/launch/launch.h"

/* ---- the daemon ---- */

struct lab_daemon {
        struct launch launch;    /* the environment of its programs */
        char dir[PATHS_DIR_MAX]; /* the directory of its sockets */
        bool started;
};

/* Makes the daemon's directory below folder, and the environment. The caller calls lab_daemon_end()
 * in any case. CLI_OK, or an exit status after a message. */
int lab_daemon_prepare(struct lab_daemon *d, const char *folder, bool simulated);
/* Starts the daemon with these options as well; NULL ends them. CLI_OK, or an exit status after a
 * message. */
int lab_daemon_start(struct lab_daemon *d, const char *const options[]);
/* Gives an order that is one word. 0 or -errno. */
int lab_daemon_ask(const struct lab_daemon *d, const char *order, json_t **ret_answer);
/* Changes a setting. 0 or -errno; *ret_answer says what the daemon made of it. */
int lab_daemon_set(const struct lab_daemon *d, const char *key, const char *value,
                   json_t **ret_answer);
/* Stops the daemon if it was started. */
void lab_daemon_end(struct lab_daemon *d);

/* ---- a program ---- */

struct lab_program {
        pid_t pid;         /* 0: never started */
        int input, output; /* -EBADF: closed; the output is open until lab_program_end() */
        char line[256];    /* what it reported last */
        size_t line_used;
};

#define LAB_PROGRAM_NONE ((struct lab_program){.input = -EBADF, .output = -EBADF})

/* Makes a process that ends with this one. talks: it has an input. Returns 0 in the new process,
 * with the environment of d's programs, where the caller calls execve(); the pid in this process;
 * -1 after a message. */
pid_t lab_program_fork(struct lab_program *p, const struct lab_daemon *d, bool shared, bool talks);
bool lab_program_runs(const struct lab_program *p);
/* Reads what the program has written, and calls hear for each line. False: nothing more comes. */
bool lab_program_read(struct lab_program *p, void (*hear)(void *userdata), void *userdata);
void lab_program_close_input(struct lab_program *p);
/* Waits for the end of the program. Returns its status, as waitpid() does. */
int lab_program_end(struct lab_program *p);
/* Writes how the program ended, unless ret contains another cause. */
void lab_program_trouble(int status, char *ret, size_t room);

/* ---- Ctrl-C ---- */

void lab_catch_interrupt(void);
/* Returns the signal after Ctrl-C; 0: there was none. */
int lab_interrupted(void);
