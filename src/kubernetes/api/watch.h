/* watch.h: objects of one kind, listed from the API server and then watched. Asks for nothing but
 * get, list and watch of them. */
#pragma once

#include <stdbool.h>

#include <jansson.h>
#include <systemd/sd-event.h>

#include "kubernetes/api/web.h"

struct watch;

/* What is watched. The strings outlive the watch. */
struct watch_what {
        const char *kind;          /* "pods": at /api/v1/pods */
        const char *which;         /* a part of the query, such as "fieldSelector=…&"; "": all */
        const char *name;          /* what messages call them: "this node's pods" */
        unsigned page;             /* objects of one answer at most */
        const char *const *fields; /* the members that one() reads, as sift.h says */
};

struct watch_told {
        void (*begin)(void *userdata); /* a list begins */
        /* The object is there, or gone. An object that is too large even with these members alone
         * is left out, with a line in the log. */
        void (*one)(const json_t *one, bool gone, void *userdata);
        /* The list is complete: objects without a call of one() since begin() are gone. number:
         * that of the list, as watch_refresh() returns it. */
        void (*end)(unsigned number, void *userdata);
        void (*changed)(void *userdata); /* an object came or went after the list; may be NULL */
};

/* web, what and told outlive the watch. 0 or -errno. */
int watch_new(sd_event *loop, struct web *web, const struct watch_what *what,
              const struct watch_told *told, void *userdata, struct watch **ret);
void watch_free(struct watch *w);
/* Lists anew, now. Returns the number of the list that shows all that is there at this moment. */
unsigned watch_refresh(struct watch *w);
