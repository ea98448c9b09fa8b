/* measure.h: what NVML's figures mean for the ledger. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client;
struct gpu;
struct server;

/* Use a new look. sample: take one sample of each card, once a period; else only of cards without
 * any. */
void measure_looked(struct server *s, bool sample);
/* A period is over, whether anything was measured or not. */
void measure_period(struct server *s);
/* Foreign bytes as last measured, without one odd sample. */
uint64_t measure_foreign(const struct gpu *g);
/* Call these between periods: the next look is made at once. */
/* A client found less free memory than expected, so foreign processes hold more. */
void measure_rise(struct server *s, unsigned gpu);
/* The most that this process held of the card at the last look; UINT64_MAX: unknown. */
uint64_t measure_most(struct server *s, const struct client *c, unsigned gpu);
/* Whether the card shows no memory of this process in a listing later than since_ns. ret_sure: NVML
 * has listed the process before, or would have by now, so that its absence means something. */
bool measure_is_gone(struct server *s, struct client *c, uint64_t since_ns, bool *ret_sure);
