/* reserve.h: reservations: which card a program that starts gets, so that programs that start
 * together do not all choose the same one.
 *
 * A reservation counts as one client until its process attaches another card, ends, or RESERVE_NS
 * have passed. From its attach on, the process counts with its own commit, or with the guess of the
 * reservation as long as that is more: a program commits most of its memory some time after its
 * start. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define RESERVE_NS      (60 * NSEC_PER_SEC)
#define RESERVE_OF_USER 64u
#define RESERVE_MAX     128u

struct peer;
struct reservations;
struct server;

/* What counts for the choice of a card. */
struct reserve_card {
        bool eligible;
        unsigned waiting; /* clients that wait */
        unsigned clients; /* clients and reservations */
        uint64_t bytes;   /* commits, and guesses of reservations */
        uint64_t capacity;
};

/* Returns the card with the fewest waiting clients; among those the one with the smallest part of
 * its capacity committed; then the one with the fewest clients; then the first. -1: none is
 * eligible. Pure. */
int reserve_choose(const struct reserve_card *cards, unsigned n);

/* Chooses among the cards of the mask, and reserves the card for this process. Replaces an earlier
 * reservation of the process. Takes a copy of the peer's pidfd. 0; -ENODEV: no card of the mask is
 * here; -EUSERS: too many reservations; or another -errno. */
int reserve_take(struct server *s, const struct peer *peer, uint32_t among, unsigned *ret_gpu);
/* Returns how many reservations of a card are not attached yet. */
unsigned reserve_count(struct server *s, unsigned gpu);
/* Ends the reservations that no longer count. Call it from time to time. */
void reserve_prune(struct server *s);
void reserve_free(struct server *s);
