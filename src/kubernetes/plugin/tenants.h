/* tenants.h: tells the daemon of the node's pods: one file in its conf.d, and the order to read it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "kubernetes/plugin/plugin_pod.h"

struct tenants;

/* settled: called each time that the daemon knows all pods, or will not know them. dir outlives the
 * tenants. 0 or -errno. */
int tenants_new(sd_event *loop, const char *dir, void (*settled)(void *userdata), void *userdata,
                struct tenants **ret);
void tenants_free(struct tenants *t);

/* Begins a complete list of pods: pods that are not put before tenants_end() are gone. */
void tenants_begin(struct tenants *t);
void tenants_end(struct tenants *t);
/* True if the pod is new or its annotations have changed. */
bool tenants_put(struct tenants *t, const struct pod *pod);
void tenants_remove(struct tenants *t, const char *uid);
/* Returns the pod; NULL: it is none of ours. Valid until a pod is put or removed. */
const struct pod *tenants_find(const struct tenants *t, const char *uid);

/* Names the daemon that answers now, and the memory of the node's smallest card. A new instance is
 * told everything again. */
void tenants_serve(struct tenants *t, const char *instance, uint64_t card_bytes);
/* Tells the daemon what has changed. */
void tenants_tell(struct tenants *t);
bool tenants_settled(const struct tenants *t);
