/* measure.h: what NVML's figures mean for the ledger. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client;
struct gpu;
struct server;

/* There is a new look. sample: take one of each card, once a period; else of cards without any. */
void measure_looked(struct server *s, bool sample);
/* A period is over, whether anything was measured or not. */
void measure_period(struct server *s);
/* Bytes that others use, as last measured, one odd sample left out. */
uint64_t measure_foreign(const struct gpu *g);
/* Between the periods, where somebody has a reason to know soon: the next look is made at once. */
/* Foreign processes hold more than was thought: it did not fit beside them. */
void measure_rise(struct server *s, unsigned gpu);
/* The most that this process held of the card at the last look; UINT64_MAX: unknown. */
uint64_t measure_most(struct server *s, const struct client *c, unsigned gpu);
/* The card shows no memory of this process, in a listing later than since_ns, as far as can be
 * told; ret_sure: NVML has named this process before, or would have by now, so that its silence
 * means something. */
bool measure_is_gone(struct server *s, struct client *c, uint64_t since_ns, bool *ret_sure);
