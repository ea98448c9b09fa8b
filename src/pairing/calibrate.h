/* calibrate.h: computes from predictions and measurements how far a model can be trusted: errors,
 * intervals, delta and margins. Pure. */
#pragma once

#include <stddef.h>

#include "pairing/model.h"

struct calibrate_pair {
        double predicted[2], measured[2];
};

/* Writes errors, low to sum_high, delta and margins of ret. n is at least 1. 0 or -ENOMEM. */
int calibrate(const struct calibrate_pair *pairs, size_t n, struct model_way *ret);

/* Sorts values; returns the one that this part of them does not exceed. With few values it errs to
 * the greater side, as split conformal prediction does. */
double calibrate_quantile(double *values, size_t n, double part);
