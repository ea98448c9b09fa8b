/* plan.h: what each program will do, whoever decides: its arrival, its phases and their lengths.
 *
 * All times are drawn from the seed of the workload, in an order that nothing but the program
 * itself determines. So a program does the same under each system that is compared. */
#pragma once

#include "workload.h"

struct plan {
        const struct job *job;
        uint64_t arrives_ns;
        uint64_t random, drains; /* states of chance: of the phases, and of the lengths of drains */
        unsigned phase, round;
};

/* Fills in one plan for each client of the workload, in the order of the jobs. */
void plan_all(const struct workload *w, struct plan *ret);
/* Returns the next phase, or NULL when the job is done. *ret_ns: its length from now on, for a
 * phase that has one. */
const struct phase *plan_next(struct plan *p, uint64_t now_ns, uint64_t *ret_ns);
/* Returns a number between 0 and 1. */
double plan_uniform(uint64_t *random);
