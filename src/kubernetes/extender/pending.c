/* pending.c: owns the list of pods on their way to a node. Must never wait for a pod for longer
 * than its time.
 * Why: docs/decisions.md, "The scheduler of Kubernetes asks, and sublet does not schedule". */
#include "kubernetes/extender/pending.h"

#include <string.h>

#include "base/macros.h"

void pending_add(struct pending *p, const char *uid, uint64_t now_ns)
{
        struct pending_pod *at = &p->pods[0];

        for (size_t i = 0; i < PENDING_MAX; i++) {
                struct pending_pod *one = &p->pods[i];

                if (strcmp(one->uid, uid) == 0) {
                        at = one;
                        break;
                }
                if (one->until_ns < at->until_ns)
                        at = one;
        }
        (void)strcpy(at->uid, uid);
        at->until_ns = now_ns + PENDING_NS;
}

bool pending_any(struct pending *p, const struct cluster *c, const char *uid, uint64_t now_ns)
{
        bool any = false;

        for (size_t i = 0; i < PENDING_MAX; i++) {
                struct pending_pod *one = &p->pods[i];

                if (one->until_ns <= now_ns || cluster_has_pod(c, one->uid))
                        one->until_ns = 0;
                else if (strcmp(one->uid, uid) != 0)
                        any = true;
        }
        return any;
}
