/* ask.h: sends one order to a daemon and reads the answer (docs/protocol.md, "Orders"). Prints
 * nothing. Used by the command line and by the programs for clusters. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "base/daemon_paths.h"

/* The longest wait for a line of an answer, for a part of its bytes, or for a daemon that answers
 * "later". */
#define ASK_TIMEOUT_S 5

/* Sends order, a JSON object whose reference it takes over, and reads the answer, a new reference.
 * 0 or -errno: -ENOENT or -ECONNREFUSED: no daemon is there; -EACCES: not allowed; -EPERM: others
 * own or can enter the directory; -ETIMEDOUT: no answer in time; -EBADMSG: the answer is no JSON
 * object. Repeats the order while the daemon answers "later". */
int ask_daemon(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer);
/* Like ask_daemon(), and also reads the bytes after the answer; its member "bytes" says how many.
 * The caller frees *ret_bytes; ret_bytes may be NULL. */
int ask_daemon_bytes(const char *dir, enum paths_kind kind, json_t *order, json_t **ret_answer,
                     void **ret_bytes);
/* True for orders that every user may give a shared daemon, for the user's own programs. */
bool ask_is_public(json_t *order);

/* Like ask_daemon(), for callers that must not wait for the answer. */
struct ask_talk {
        int fd; /* readable when there is more of the answer; -EBADF: no order is under way */
        char *text;
        size_t used, room, line; /* line: where the line of the answer ends */
        size_t most;             /* largest answer in bytes; set it before ask_more() */
};
/* wait: if the daemon's queue is full, waits for a place in it; otherwise returns -ETIMEDOUT. */
int ask_begin(const char *dir, enum paths_kind kind, json_t *order, bool wait,
              struct ask_talk *ret);
/* Reads what has come of the answer. wait: waits for all of it. 1: the answer is complete; 0: it is
 * not complete yet; or -errno. */
int ask_more(struct ask_talk *t, bool wait, json_t **ret_answer);
void ask_end(struct ask_talk *t);
