/* allowance.h: limits on a user who is not the daemon's own, over all of the user's clients. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client;
struct sched_usage;

bool allowance_applies(const struct client *c);
/* For this client: unevictable bytes, beside those it has exported; and exported bytes, beside the
 * unevictable ones. UINT64_MAX: no limit. */
uint64_t allowance_unevictable(struct client *c, unsigned gpu);
uint64_t allowance_exported(struct client *c, unsigned gpu);
bool allowance_commit(struct client *c, unsigned gpu, uint64_t wanted);
/* How much host memory c may map. */
uint64_t allowance_host(struct client *c);
/* Whether its user may add one more card that NVML does not know. */
bool allowance_card(const struct client *c);
/* Reduce the figures that a client reports at ATTACH to what can be true. */
void allowance_claim(struct client *c, unsigned gpu, struct sched_usage *u);
/* Reduce the figures of a USAGE: a client never holds more than it was allowed. */
void allowance_usage(struct client *c, unsigned gpu, struct sched_usage *u);
