/* features.h: two jobs as a row of numbers: features.def has the table. Pure, thread-safe. */
#pragma once

#include "job/job.h"
#include "pairing/roof.h"

enum job_feature {
#define JOB(name, value, beside) JOB_FEATURE_##name,
#include "pairing/features.def"
        JOB_FEATURES
};

enum pair_feature {
#define PAIR(name, value, falls) PAIR_FEATURE_##name,
#include "pairing/features.def"
        PAIR_FEATURES
};

#define FEATURES (2 * JOB_FEATURES + PAIR_FEATURES)

/* The names of a row's columns, and the signs of features.def. */
extern const char *const feature_names[FEATURES];
extern const signed char feature_signs[FEATURES];

/* What is computed once for each job. */
struct features {
        double job[JOB_FEATURES];
        struct roof_job roof;
};

void features_of(const struct job *job, struct features *ret);
/* Writes two rows: how a runs beside b, and how b runs beside a. */
void features_rows(const struct features *a, const struct features *b,
                   float ret[static 2 * FEATURES]);
