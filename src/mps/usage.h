/* usage.h: whether programs use the servers of a control daemon, as the control daemon says.
 *
 * An empty list is an empty text, and so is an answer that never came. So no program uses a server
 * only if each order has succeeded, the list of servers names as many as run, no server has a
 * program, and the control daemon, asked last for a figure that it always has, tells it. All else
 * is MPS_UNKNOWN. A pure machine, but for mps_usage_take(), which looks at the processes. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "mps/mps.h"

#define MPS_USAGE_SERVERS 8u

struct mps_usage {
        char order[48]; /* to be given next */
        pid_t servers[MPS_USAGE_SERVERS];
        unsigned n_servers, n_given;
};

enum mps_use { MPS_ASK_ON, MPS_UNUSED, MPS_USED, MPS_UNKNOWN };

void mps_usage_begin(struct mps_usage *u);
/* Takes the answer to u->order. answer: NULL if the order has failed, or was given up. */
enum mps_use mps_usage_take(struct mps_usage *u, const struct mps_options *o, const char *answer);

/* Asks, and waits for 1 s a question. */
enum mps_use mps_usage_ask(const struct mps_options *o);
