/* card_figures.h: what NVML's figures mean for the ledger. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct client;
struct client_account;
struct gpu;
struct server;

/* Evaluates a new look. sample: takes a sample of each card, once in each period; otherwise only of
 * cards without a sample. */
void figures_looked(struct server *s, bool sample);
/* Ends a period, whether or not anything was measured. */
void figures_period(struct server *s);
/* Returns the client's unevictable bytes that it has not reported, such as code: the least of its
 * samples. figures_excess_soon() returns what this will be after the next sample, if that agrees
 * with the last ones. */
uint64_t figures_excess(const struct client_account *acc);
uint64_t figures_excess_soon(const struct client_account *acc);
/* Returns the foreign bytes as last measured, where one odd sample does not count. */
uint64_t figures_foreign(const struct gpu *g);
/* Asks for a look at once: a client found less free memory than expected, so foreign processes hold
 * more. */
void figures_rise(struct server *s, unsigned gpu);
/* Returns the most that this process can have held of the card at the last look; UINT64_MAX:
 * unknown. */
uint64_t figures_most(struct server *s, const struct client *c, unsigned gpu);
/* True if no card lists memory of this process in a look that began after since_ns. ret_sure: NVML
 * has listed the process before, or would list it, so that its absence means something. */
bool figures_is_gone(struct server *s, struct client *c, uint64_t since_ns, bool *ret_sure);
