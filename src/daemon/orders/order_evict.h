/* order_evict.h: the order to evict a program that has no work. */
#pragma once

#include <jansson.h>

struct peer;
struct server;

/* Carries out {"order": "evict", "pid": N} for the peer. Returns the program's name and the bytes
 * that will leave the cards, or an error for a person. A new reference. */
json_t *evict_order(struct server *s, json_t *order, const struct peer *by);
