/* extender_answer.h: the answers to kube-scheduler's extender protocol, v1: filter and prioritize.
 *
 * Text in, text out. A pod without a measured job, and a node of which nothing is known, pass with
 * the score 0. The extender keeps no pod off a node of which it knows nothing. Not thread-safe.
 * now_ns: of clock_now_ns(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kubernetes/extender/cluster.h"
#include "kubernetes/extender/extender_jobs.h"
#include "kubernetes/extender/pending.h"
#include "kubernetes/extender/extender_pod.h"

#define ANSWER_ERROR_MAX 256
/* Values in one request, as in review.h. A node that is sent whole has a few hundred. */
#define ANSWER_VALUES_MAX 1000000u

enum prefer { PREFER_PACK, PREFER_SPREAD };

struct answer_context {
        struct jobs *jobs;
        struct cluster *cluster;
        struct pod_rules rules;
        enum prefer prefer;
        struct pending pending;
};

/* Writes the answer, which the caller frees. 0; -EINVAL: the text is no request, and the error says
 * why; -EAGAIN: the cluster is not known yet; -EBUSY: another pod is about to be bound, so ask
 * again in a moment; -ENOMEM. */
int answer_filter(const char *text, size_t size, struct answer_context *context, uint64_t now_ns,
                  char **ret_answer, char error[static ANSWER_ERROR_MAX]);
int answer_prioritize(const char *text, size_t size, struct answer_context *context,
                      uint64_t now_ns, char **ret_answer, char error[static ANSWER_ERROR_MAX]);
