/* half.h: the rate of a measured program on half of the SMs, which each of two jobs gets in the way
 * "shared". */
#pragma once

#include "lab/measure/measure_run.h"
#include "job/job.h"

/* Runs the program of an ended run again, as the only client of an MPS control daemon of its own.
 * Adds its rate to the job; if there is no rate, says why the job file `path` has no such rate.
 * Leaves nothing running. CLI_OK, also without the rate; or 128 plus the number of a signal that
 * ended the measurement. */
int half_measure(const struct measure_run *first, const char *path, struct job *job);
