/* pod_classes.h: the text of the daemon's file for the node's pods. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kubernetes/plugin/plugin_pod.h"

#define CLASSES_GROUP_MAX 24u /* pods of one group; more are in the next class of that name */

/* Sorts pods: the oldest first. */
void classes_sort(struct pod *pods, size_t n);

/* Writes the file for n sorted pods. card_bytes: memory of the smallest card, for requests of
 * memory; 0: unknown. without: this many of the newest minima are left out, beyond those for which
 * there is no room. ret_left[i] is set if pod i goes without its minimum. *ret_minima: how many
 * minima are in the text. NULL: out of memory; the caller frees the text. */
char *classes_text(const struct pod *pods, size_t n, uint64_t card_bytes, unsigned without,
                   bool *ret_left, unsigned *ret_minima);
