/* cluster.h: the nodes of a cluster, and the pods on them that ask for a GPU, as the API server
 * told last. No descriptor and no clock. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kubernetes/extender/extender_pod.h"

struct cluster;

struct cluster *cluster_new(void); /* NULL: no memory */
void cluster_free(struct cluster *c);

/* Begin and end a list of all pods or nodes. Pods or nodes that are not put in between are gone. */
void cluster_begin_pods(struct cluster *c);
void cluster_end_pods(struct cluster *c);
void cluster_begin_nodes(struct cluster *c);
void cluster_end_nodes(struct cluster *c);

/* A pod that has ended, is on no node or has no GPU is forgotten. 0 or -ENOMEM. */
int cluster_put_pod(struct cluster *c, const struct pod *pod);
void cluster_drop_pod(struct cluster *c, const char *uid);
int cluster_put_node(struct cluster *c, const struct node *node);
void cluster_drop_node(struct cluster *c, const char *name);

/* True once both lists were complete. */
bool cluster_is_known(const struct cluster *c);

/* A pod on a node. */
struct cluster_pod {
        struct cluster_pod *next; /* the next pod on this node */
        struct pod pod;
        unsigned list; /* the list that told it last */
};

/* NULL: the node is not known, or has no pods. Both pointers are valid until the cluster
 * changes. */
const struct node *cluster_node(const struct cluster *c, const char *name);
const struct cluster_pod *cluster_pods(const struct cluster *c, const char *node);
bool cluster_has_pod(const struct cluster *c, const char *uid);
size_t cluster_count_pods(const struct cluster *c);
