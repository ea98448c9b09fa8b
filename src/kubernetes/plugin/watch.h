/* watch.h: the pods of this node, listed from the API server and then watched. Asks for nothing but
 * get, list and watch of pods. */
#pragma once

#include <stdbool.h>

#include <jansson.h>
#include <systemd/sd-event.h>

#include "kubernetes/plugin/web.h"

struct watch;

struct watch_told {
        void (*begin)(void *userdata);                             /* a list begins */
        void (*pod)(const json_t *pod, bool gone, void *userdata); /* it is there, or gone */
        /* The list is complete: pods that were not told since begin() are gone. number: which list,
         * as watch_refresh() counts them. */
        void (*end)(unsigned number, void *userdata);
        void (*changed)(void *userdata); /* pods were told outside of a list */
};

/* web, node and told outlive the watch. 0 or -errno. */
int watch_new(sd_event *loop, struct web *web, const char *node, const struct watch_told *told,
              void *userdata, struct watch **ret);
void watch_free(struct watch *w);
/* Lists the pods anew, now. Returns the number of the list that shows all pods of this moment. */
unsigned watch_refresh(struct watch *w);
