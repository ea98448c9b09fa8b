/* top_history.h: what follows from several looks at the daemon: rates, shares, lines of recent use.
 *
 * A pure function of the looks; the daemon's age is the clock. */
#pragma once

#include <jansson.h>

#define HISTORY_LOOKS 256

struct history_gpu {
        int index;
        char uuid[64];
        float use[HISTORY_LOOKS]; /* 0 to 1; look i is at i % HISTORY_LOOKS; negative: not known */
        float bus[HISTORY_LOOKS]; /* bytes a second, in both directions; kept and negative as in
                                     `use` */
        unsigned looks;
};

struct history;

struct history *history_new(void); /* NULL: no memory */
void history_free(struct history *h);

/* Takes the answer to the order "status", and keeps a reference. Adds to each client:
 * "got", the part of the last half minute in which it had a turn and was not idle; "bus", bytes a
 * second in both directions since the look before (null: not known); and "hue", a small number that
 * no other program has as long as this one is there. */
void history_add(struct history *h, json_t *status);
/* Returns the last status; NULL: there was none. */
const json_t *history_now(const struct history *h);
/* Returns the card with this number; NULL: it is not there. */
const struct history_gpu *history_gpu(const struct history *h, int index);
