/* allowance.h: limits on a user other than the daemon's own, for all of the user's clients
 * together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client;
struct sched_usage;

bool allowance_applies(const struct client *c);
/* Returns how many unevictable bytes c may have, beside its exported bytes. UINT64_MAX: no limit.
 */
uint64_t allowance_unevictable(struct client *c, unsigned gpu);
/* Returns how many exported bytes c may have, beside its unevictable bytes. UINT64_MAX: no limit.
 */
uint64_t allowance_exported(struct client *c, unsigned gpu);
/* True if c may allocate `wanted` bytes in all on this GPU. */
bool allowance_commit(struct client *c, unsigned gpu, uint64_t wanted);
/* Returns how much host memory c may map. */
uint64_t allowance_host(struct client *c);
/* True if c's user may add one more card that NVML does not know. */
bool allowance_card(const struct client *c);
/* Reduces the figures that a client reports at ATTACH to possible ones. */
void allowance_claim(struct client *c, unsigned gpu, struct sched_usage *u);
/* Reduces the figures of a USAGE: a client never holds more than it was allowed. */
void allowance_usage(struct client *c, unsigned gpu, struct sched_usage *u);
