/* roof.h: an estimate, without trees, of how fast two jobs run beside each other: small formulae,
 * fitted to pairs that ran on an H200 (sliced kernels) and an H100 (models) with driver 580.
 *
 * Sliced. Jobs that have work get the card in turn, for a slice each. Two jobs whose hosts launch
 * ahead get half of the time each, less what the switches take; what one does not need, the other
 * may take. A host that waits for each launch before it prepares the next gives its slice up at
 * once: its step lasts its burst on the card and the longer of its gap and the other's slice, so
 * that short bursts starve. If both hosts wait, the bursts alternate, and each change of the job
 * costs SWITCH_S.
 *
 * Shared (MPS, each with half of the SMs). A job has its rate on half of the SMs, divided by
 *
 *      stretch = 1 + a × DRAM of both, multiplied
 *                  + (b + c / length of its kernels) × DRAM of the other
 *                  + (d + e / length of its kernels) × duty of the other
 *
 * where the DRAM is that which each uses on its half. Only the part of a step that is on the card
 * stretches. A job whose host sets the pace, as a server's, loses steps only if its kernels do not
 * fit its time any more. A rate on half of the SMs that nobody has measured is estimated: it falls
 * with the SMs, threads and tensor cores in use, and rises with the DRAM, which then is the limit.
 *
 * Where launches are not known, uses and duties decide alone. Pure. */
#pragma once

#include <stdbool.h>

enum roof_resource {
        ROOF_DRAM,
        ROOF_TENSOR,
        ROOF_FP64,
        ROOF_FP32,
        ROOF_FP16,
        ROOF_INTEGER,
        ROOF_SLOTS, /* threads that the SMs have room for */
        ROOF_RESOURCES
};

struct roof_job {
        double duty;                /* part of its time alone that it is on the card */
        double use[ROOF_RESOURCES]; /* alone, of the whole time; NAN where not known */
        double sm, occupancy;       /* SMs with work, and threads of all; NAN where not known */
        double half;       /* its rate on half of the SMs / its rate on all; NAN or 0: not known */
        double kernel_s;   /* how long its kernels last on average; 0 or NAN: not known */
        double interval_s; /* time between launches; 0 or NAN: not known */
        bool waits;        /* the host waits for each launch before the next */
        bool paced;        /* the host launches at a pace of its own, as a server's */
};

/* Returns the largest sum of both jobs' uses of one resource, while both are on the card. 0:
 * nothing is known. */
double roof_fullest(const struct roof_job jobs[static 2]);
/* Returns the job's rate on half of the SMs as a part of its rate on all: measured or estimated. */
double roof_half(const struct roof_job *j);
/* Writes the progress of both for the driver's slices, or under MPS (shared). */
void roof_progress(const struct roof_job jobs[static 2], int shared, double ret[static 2]);
