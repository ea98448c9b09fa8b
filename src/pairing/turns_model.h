/* turns_model.h: the model of turns: two jobs that have the card one after the other.
 *
 * Missing bytes. A job runs only while all of its memory is on the card. While A runs, B has the
 * rest of the card, so M = a + b - capacity bytes of B are in host memory, and as many of A while B
 * runs. Each hand-off moves M out and M in at the same time, and takes
 *
 *      h = M / W + h0            W: the bus each way while both ways are busy
 *
 * Turns. A turn lasts Q: with the daemon's `auto`, such that moving takes the part `handoff_share`
 * of the time. The daemon is fair in time: a job whose turns are shorter gets several in a row. So
 * Q is the longer of both turns, and jobs that always have work get Q of each cycle of 2 Q + 2 h.
 *
 * Gaps. A job gives the card up while it computes on the host for longer than moving out and in
 * costs (2 h). It keeps the card in shorter gaps, and then counts as always busy. With gap c and
 * burst g, the other's burst o, and p the part of its time that the other wants the card:
 *
 *      T = c + h + g + p (o / 2 + turns more (o + 2 h)),   progress = (c + g) / T
 *
 * where `turns more` is how often a turn ends within the burst, and o is at most a turn. p depends
 * on the other's T, so the two are solved together. The model leaves out that pinning memory slows
 * the first hand-offs, and that short bursts interrupt long turns. Pure. */
#pragma once

#include <stdbool.h>

#include "job/job.h"

struct turns_card {
        double capacity_bytes, each_way_bytes_s;
        double fixed_s;   /* h0: drain, messages, and the pipeline that fills again */
        double quantum_s; /* 0: as the daemon's auto */
};

struct turns_job {
        double memory_bytes;
        double gap_s, burst_s; /* parts of a step: on the host, on the card */
};

struct turns {
        double missing_bytes; /* M; 0: both fit */
        double handoff_s;
        double quantum_s; /* Q */
        double progress[2];
        double bus_bytes_s; /* traffic of the bus each way, on average */
        double host_bytes;  /* host memory at most: both have room for what they lack */
};

/* Writes what the job file says of the card. A value that is not known is that of an H200. */
void turns_card_of(const struct job *job, struct turns_card *ret);
void turns_job_of(const struct job *job, struct turns_job *ret);

/* Predicts how two jobs take turns. 0; -ENOSPC: one of them does not fit the card by itself. */
int turns_predict(const struct turns_job jobs[static 2], const struct turns_card *card,
                  struct turns *ret);
