/* usage.h: whether programs use the servers of a control daemon, as the control daemon says.
 *
 * An empty list is an empty text, and so is an answer that never came. So empty lists are not
 * enough for MPS_UNUSED: each order must succeed, and as many servers must run as are listed. Then
 * the last order must get a figure that a control daemon always has. If one of these fails, it is
 * MPS_UNKNOWN. A pure machine, but for mps_usage_take(), which looks at the processes. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "mps/mps.h"

#define MPS_USAGE_SERVERS 8u

struct mps_usage {
        char order[48]; /* the next order to give */
        pid_t servers[MPS_USAGE_SERVERS];
        unsigned n_servers, n_given;
};

enum mps_use { MPS_ASK_ON, MPS_UNUSED, MPS_USED, MPS_UNKNOWN };

void mps_usage_begin(struct mps_usage *u);
/* Takes the answer to u->order. answer: NULL if the order has failed, or was given up. */
enum mps_use mps_usage_take(struct mps_usage *u, const struct mps_options *o, const char *answer);

/* Gives all orders, and waits up to 1 s for each answer. */
enum mps_use mps_usage_ask(const struct mps_options *o);
