/* extender_pod.h: what the extender reads of a pod and of a node, as the API server and the
 * scheduler show them. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#define POD_KEY_MAX 64  /* a UID, with the NUL */
#define POD_JOB_MAX 96  /* as JOB_NAME_MAX */
#define NODE_MAX    254 /* bytes of a node's name, with the NUL */

struct pod_rules {
        const char *resource;     /* sublet.dev/gpu */
        unsigned devices_per_gpu; /* as many as the nodes' plugins offer for each GPU */
        double bound;             /* the bound of pods that name none */
};

struct pod {
        char uid[POD_KEY_MAX];
        char name[128]; /* NAMESPACE/NAME, for messages */
        char node[NODE_MAX];
        char job[POD_JOB_MAX]; /* "": it names no possible job */
        double bound;
        bool bound_is_wrong; /* the annotation cannot be read, and the rules' bound is used */
        unsigned gpus;       /* how many GPUs it asks for; 0: none of ours */
        bool ended;
};

/* The members that pod_read() and node_read() read, in addition to names, in the form of sift.h. */
extern const char *const pod_fields[], *const node_fields[];

/* Reads a pod. 0; -EINVAL: this is no pod. */
int pod_read(const json_t *json, const struct pod_rules *rules, struct pod *ret);

struct node {
        char name[NODE_MAX];
        char product[96]; /* the label nvidia.com/gpu.product; "": not known */
        unsigned gpus;
};

int node_read(const json_t *json, const struct pod_rules *rules, struct node *ret);

/* True if a card of this name, such as "NVIDIA H200", may be the node's product. */
bool node_may_have(const char *product, const char *gpu);
