/* pairs.h: how each two of some jobs run beside each other, for each way: by the model where both
 * fit the card, and by the model of turns where they do not. Not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "pairing/features.h"
#include "pairing/model.h"
#include "pairing/turns_model.h"

#define PAIRS_ERROR_MAX MODEL_ERROR_MAX
#define PAIRS_WHY_MAX   256
/* Another way than the driver's slices is taken if its predicted sum is this much greater. */
#define PAIRS_GAIN 1.02

/* What is known of each job before pairs are looked at. */
struct pairs {
        const struct job *jobs;
        size_t n;
        const struct model *model; /* NULL: only turns past memory can be predicted */
        struct features *features;
        struct turns_job *turns;
        struct turns_card card;
        unsigned threads; /* threads that predict; 0, which pairs_open() sets: one for each CPU */
};

struct pairs_way {
        bool possible, by_model;
        double progress[2];
        bool estimated; /* predicted from a rate on half of the SMs that nobody has measured */
};

struct pairs_pair {
        unsigned a, b; /* places in jobs */
        bool fits;
        struct pairs_way ways[WAYS];
        double missing_bytes, handoff_s, bus_bytes_s, host_bytes; /* past memory only */
};

/* Refuses jobs that were measured on different cards, or on another than the model's. capacity 0:
 * the card's; quantum 0: the daemon's. jobs and model must outlive ret. 0; or -errno after a
 * sentence. */
int pairs_open(const struct job *jobs, size_t n, const struct model *model, double capacity_bytes,
               double quantum_s, struct pairs *ret, char error[static PAIRS_ERROR_MAX]);
void pairs_close(struct pairs *p);

/* Predicts the pairs of list, whose a and b are set. */
int pairs_predict(const struct pairs *p, const bool allowed[static WAYS], struct pairs_pair *list,
                  size_t n, char error[static PAIRS_ERROR_MAX]);

/* Returns the power to which the model's interval and margins have to be raised for a prediction:
 * above 1 if it is less certain than those of the model usually are. */
double pairs_doubt(const struct pairs_way *w);
/* Returns the progress that predictions of this way have to exceed for the bound to be kept. */
double pairs_threshold(const struct pairs *p, const struct pairs_pair *pair, enum way way,
                       double bound);
/* Returns the sum of both programs' progress as it counts where ways are compared. */
double pairs_worth(const struct pairs_pair *pair, enum way way, double sum);
/* Chooses, of the ways that keep the bound, the one with the greatest sum. bound 0: of all ways. 0
 * or -ENOENT. */
int pairs_choose(const struct pairs *p, const struct pairs_pair *pair, double bound, enum way *ret);

/* Writes which resource is short, as one sentence. */
const char *pairs_why(const struct pairs *p, const struct pairs_pair *pair, enum way way,
                      char ret[static PAIRS_WHY_MAX]);
