/* allowance.h: what a user who is not the daemon's own may hold, over all his clients. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client;
struct sched_usage;

bool allowance_applies(const struct client *c);
/* For this client, beside what it has exported, and to be exported, beside what it has unevictable;
 * UINT64_MAX: no limit. */
uint64_t allowance_unevictable(struct client *c, unsigned gpu);
uint64_t allowance_exported(struct client *c, unsigned gpu);
bool allowance_commit(struct client *c, unsigned gpu, uint64_t wanted);
/* How much host memory c may map. */
uint64_t allowance_host(struct client *c);
/* He may name one more card that NVML does not know. */
bool allowance_card(const struct client *c);
/* Of the figures that a client comes with, what can be true. */
void allowance_claim(struct client *c, unsigned gpu, struct sched_usage *u);
/* Of the figures of a USAGE: nobody holds more than he was ever allowed. */
void allowance_usage(struct client *c, unsigned gpu, struct sched_usage *u);
