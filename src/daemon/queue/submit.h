/* submit.h: the queue of submitted jobs (sublet submit), with its connections and its helper.
 *
 * A connection is its job's place in the queue: when it ends, the job has ended, or has given up.
 * The daemon starts no program: it tells the connection where to start its own. For the loop's
 * thread. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

struct peer;
struct server;

#define SUBMIT_FILE_MAX (256u << 10)

/* Makes the daemon's queue of jobs. 0 or -errno. */
int submit_new(struct server *s);
void submit_free(struct server *s);

/* Handles the order `submit`, and takes the connection over. Returns an answer that is an error:
 * then the connection stays the caller's; or NULL. */
json_t *submit_take(struct server *s, json_t *order, const struct peer *peer, int fd);
/* Call it after each batch of events: starts jobs, ends what has ended. */
void submit_settle(struct server *s);
/* True if jobs wait or run. */
bool submit_busy(const struct server *s);
/* True if jobs run, which would come back to the daemon that follows. */
bool submit_runs(const struct server *s);
/* Describes the queue, for status. */
json_t *submit_json(struct server *s, const struct peer *viewer);
