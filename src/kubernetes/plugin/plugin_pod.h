/* plugin_pod.h: a pod of this node as the API server tells it, with what its annotations ask for.
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define POD_UID_MAX      37 /* with the NUL */
#define POD_NAME_MAX     161
#define POD_GROUP_MAX    32
#define POD_SENTENCE_MAX 512

/* What the node's owner allows. */
struct pod_bounds {
        int priority_most;
        unsigned minimum_most, weight_most; /* thousandths */
};

/* Holds what a pod asks for; a field of 0 asks for nothing. Its minimum, even one that
 * memory_request gives, is at most minimum_most. */
struct pod_wishes {
        unsigned minimum, maximum; /* thousandths of the time */
        unsigned weight;           /* thousandths */
        uint64_t memory_cap;       /* bytes */
        uint64_t memory_request;   /* bytes; gives the minimum if there is none */
        bool has_priority;
        int priority;
        char group[POD_GROUP_MAX];
        unsigned minimum_most; /* what the owner allows, in thousandths */
};

struct pod {
        char uid[POD_UID_MAX]; /* the UID in small letters */
        char namespace[POD_NAME_MAX], name[POD_NAME_MAX];
        char created[32]; /* such as 2026-11-27T10:26:15Z: sorts as text */
        bool ended;       /* all of its containers have ended */
        struct pod_wishes wishes;
        uint64_t annotations; /* a hash, which differs if the annotations do */
};

/* The members that pod_read() reads, in addition to names, in the form of sift.h. */
extern const char *const pod_fields[];

/* Reads a pod. 0; -ENOENT: its containers do not ask for the resource, or have ended, so it is none
 * of ours, but ret->uid is set; -EINVAL: this is no pod. complain is called with a sentence for
 * each annotation that is left out or lowered. */
int pod_read(const json_t *pod, const char *resource, const struct pod_bounds *bounds,
             void (*complain)(const char *sentence, void *userdata), void *userdata,
             struct pod *ret);
