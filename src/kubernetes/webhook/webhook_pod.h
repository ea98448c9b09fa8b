/* webhook_pod.h: what becomes of a pod that asks for a GPU and opted in. Pure: the pod stays as it
 * is, the changes go into a patch. */
#pragma once

#include <jansson.h>

#include "kubernetes/webhook/patch.h"
#include "kubernetes/webhook/review.h"

/* Writes what must change for the pod to share its GPUs, and sentences about what cannot be done. A
 * pod that was changed before needs no change. */
void pod_share(const json_t *pod, const struct review_options *options, struct patch *p);
