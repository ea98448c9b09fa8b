/* events.h: tells people about a pod by Events of Kubernetes, which kubectl describe pod shows.
 * Asks the API server for nothing but create of events. */
#pragma once

#include "kubernetes/plugin/plugin_pod.h"
#include "kubernetes/api/web.h"

struct events;

/* web and node outlive the events. 0 or -errno. */
int events_new(struct web *web, const char *node, struct events **ret);
void events_free(struct events *e); /* NULL is a no-op */

/* Makes one Event for this pod and this reason, however often it is called, also after a restart.
 * Does not wait. If it cannot be made, the log says so once. reason: a word, such as
 * SubletNotInjected. */
void events_tell(struct events *e, const struct pod *pod, const char *reason, const char *message);
