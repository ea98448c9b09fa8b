/* words.h: the words of others for a part of a GPU, and the annotations of sublet that they become.
 *
 * sublet reads NVIDIA_GPU_MEMORY_REQUEST and _LIMIT in a container's environment, and the
 * annotations of KAI Scheduler: docs/kubernetes-words.md says what each one means. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "kubernetes/webhook/patch.h"

/* What a container may hold of each GPU. */
struct memory {
        bool requested, limited;
        uint64_t request_mib, limit_mib;
};

struct container {
        const json_t *json;
        const char *list; /* its place in the pod's specification */
        char index[24];
        const char *name; /* "" if it has none */
        bool alone;       /* it ends before the containers start */
        bool beside;      /* it starts before the containers, and stays */
        bool shares;      /* it gets the shared resource, now or before */
        bool worded;      /* it asks for a part of a GPU in the words of others */
        struct memory memory;
        uint64_t gpus; /* how many it gets, if only the words of others ask for GPUs */
};

/* What the words ask for the pod as a whole. */
struct words {
        unsigned fraction; /* part of a GPU, in millionths; 0: nothing said */
        bool kai;
};

/* Reads the words of a pod into its containers. Warns of words that cannot be read, and
 * leaves them out. */
void words_read(const json_t *pod, struct container *containers, size_t n, struct words *ret,
                struct patch *p);
/* Adds the annotations, unless the pod has its own of that kind. */
void words_annotate(const json_t *pod, const struct container *containers, size_t n,
                    const struct words *words, struct patch *p);

/* Whether a resource or annotation is a word of other systems that sublet does not read. */
bool words_are_foreign(const char *key);
/* Warns of each foreign annotation of a pod that gets no GPU: sublet ignores it. resource: what the
 * pod should ask for instead. */
void words_say_foreign(const json_t *pod, const char *resource, struct patch *p);
