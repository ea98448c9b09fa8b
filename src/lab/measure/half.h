/* half.h: the rate of a measured program on half of the SMs, as the way shared gives it to each of
 * two jobs. */
#pragma once

#include "lab/measure/measure_run.h"
#include "job/job.h"

/* Runs the program of an ended run again, as the only client of an MPS control daemon of its own,
 * and adds its rate to the job; where there is none, says why `path` goes without it. Leaves
 * nothing running. CLI_OK, also without the rate; or 128 and the number of a signal that ended it
 * all. */
int half_measure(const struct measure_run *first, const char *path, struct job *job);
