/* kubelet.h: keeps this plugin registered with kubelet, whatever happens to the sockets of both. */
#pragma once

#include <systemd/sd-event.h>

#include "kubernetes/plugin/rpc.h"

struct kubelet;

/* The plugin serves as DIR/endpoint and registers at DIR/kubelet.sock. The strings and the rpc
 * outlive the kubelet. Nothing happens before kubelet_start(). 0 or -errno. */
int kubelet_new(sd_event *loop, struct rpc *rpc, const char *dir, const char *endpoint,
                const char *resource, struct kubelet **ret);
void kubelet_free(struct kubelet *k);
/* Serves, then registers. */
void kubelet_start(struct kubelet *k);
/* Registers again: call it when kubelet no longer watches the devices. */
void kubelet_lost(struct kubelet *k);
