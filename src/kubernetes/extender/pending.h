/* pending.h: pods that the scheduler was told nodes for, and that the API server does not show on a
 * node yet.
 *
 * The scheduler asks about the next pod before the last one is bound. Without this list, both could
 * be sent to the same place. Pure: the caller passes the time in. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kubernetes/extender/cluster.h"

#define PENDING_MAX 16u
#define PENDING_NS  UINT64_C(500000000) /* how long a pod on no node is waited for */

struct pending {
        struct pending_pod {
                char uid[POD_KEY_MAX]; /* "": none */
                uint64_t until_ns;
        } pods[PENDING_MAX];
};

/* Notes that the scheduler now chooses a node for this pod. If there are too many pods, forgets the
 * oldest. */
void pending_add(struct pending *p, const char *uid, uint64_t now_ns);
/* True if another pod than this one is on its way to a node. */
bool pending_any(struct pending *p, const struct cluster *c, const char *uid, uint64_t now_ns);
