/* mps.h: a control daemon of NVIDIA's MPS, in a directory of its own, for one user and one GPU.
 *
 * The directory is CUDA_MPS_PIPE_DIRECTORY: programs that have it in their environment take part.
 * The first such program makes the control daemon start an MPS server, in which the work of all of
 * them meets; a fault in one program ends the work of all. Logs are in its folder `log`.
 *
 * A program that may wait calls mps_start(), mps_ask() and mps_stop(). A loop calls the functions
 * before them, which never wait, and handles the ends of the processes itself. Not thread-safe:
 * mps_program() keeps what it has found. All return 0 or -errno, unless said otherwise.
 * Why: docs/decisions.md, "Two jobs that share by MPS have half of the SMs each". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MPS_CONTROL       "nvidia-cuda-mps-control"
#define MPS_CLIENTS_MAX   48 /* programs that one server takes at most */
#define MPS_DIR_MAX       85 /* with the NUL; longest that leaves room for the sockets' names */
#define MPS_START_MS      10000u
#define MPS_SHARE_PERCENT "50" /* percent of the SMs that each of two programs on a GPU gets */
#define MPS_ANSWER_MAX    8192 /* more than the pids of all clients */

/* Exit statuses of a process of mps_spawn() or mps_ask_begin() that could not run MPS. */
#define MPS_EXIT_NOT_USER 126 /* the process could not become this user */
#define MPS_EXIT_NO_FILE  127 /* the program does not start */

struct mps_options {
        const char *dir; /* absolute; made by mps_make_dir() */
        const char *gpu; /* the GPU's UUID, "GPU-…"; NULL: as CUDA_VISIBLE_DEVICES says */
        uid_t uid; /* the user that runs it; another than ours only if we may become that user */
        gid_t gid;
        const gid_t *groups; /* the user's other groups, which may be those of the device files */
        unsigned n_groups;
        bool outlives; /* MPS goes on when the calling process has ended */
};

/* Returns the path of nvidia-cuda-mps-control, by PATH and in the usual folders; NULL: none. */
const char *mps_program(void);

/* Makes the directory and its folder for logs, with mode 0700, or accepts those of this user.
 * -ENAMETOOLONG; -EPERM: another user owns it; -ENOTDIR. */
int mps_make_dir(const char *dir, uid_t uid, gid_t gid);
/* Removes the directory with all that control daemon and server leave in it. */
void mps_remove_dir(const char *dir);

/* Starts the control daemon in its own session, and does not wait. *ret_pid is our child. Unless
 * `outlives` is set, this child ends control daemon and server when it gets SIGTERM or the calling
 * thread ends. -ENOENT: there is no such program. */
int mps_spawn(const struct mps_options *o, pid_t *ret_pid);
/* True as soon as programs and orders find the control daemon. */
bool mps_is_ready(const char *dir);
/* Finds the control daemon of this directory and user, whoever has started it; 0: there is none. */
pid_t mps_find(const char *dir, uid_t uid);
/* Returns how many control daemons and servers of this directory and user there are. */
unsigned mps_count(const char *dir, uid_t uid);
/* Returns how many servers of this directory and user there are. */
unsigned mps_count_servers(const char *dir, uid_t uid);
/* Kills the control daemon and the servers of this directory and user. Returns how many there
 * were. Their programs get errors. */
unsigned mps_kill(const char *dir, uid_t uid);

/* Gives an order, in a child of ours. The answer comes from *ret_fd, which does not block; the
 * caller closes it. */
int mps_ask_begin(const struct mps_options *o, const char *order, pid_t *ret_pid, int *ret_fd);
/* Reads the numbers of an answer. Returns how many there are, of which `most` are in ret. */
unsigned mps_numbers(const char *answer, pid_t *ret, unsigned most);

/* ---- these wait ---- */

/* Makes the directory, starts the control daemon, and waits until it is ready: for 10 s at most.
 * -EALREADY: it runs; -ENOENT: no program; -EPERM: we may not become this user; -ETIMEDOUT; -EIO:
 * it has ended. */
int mps_start(const struct mps_options *o, pid_t *ret_pid);
/* Gives an order and reads the answer, whose end is cut off if it does not fit. -ETIMEDOUT: nothing
 * within this time; -EIO: the control daemon does not answer. */
int mps_ask(const struct mps_options *o, const char *order, unsigned limit_ms, char *ret, size_t n);
/* Ends the control daemon and its servers; those that do not end by themselves are killed. pid:
 * what mps_start() wrote; 0: another process has started the control daemon. Waits for 8 s at
 * most. */
void mps_stop(const struct mps_options *o, pid_t pid);
