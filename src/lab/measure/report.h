/* report.h: makes a job (job/job.h) of what was seen of a program. Pure. */
#pragma once

#include <stdbool.h>

#include "lab/measure/card.h"
#include "job/pages.h"
#include "job/job.h"

/* What was seen between two looks. */
struct report_seen {
        const struct pages *begin, *end;
        double seconds; /* time between the two looks */
        double cpu_s;   /* processor time that the program used meanwhile; NAN: not known */
        struct card_figures card;
};

/* Fills in all but the job's name, command and time. False: no memory. */
bool report_fill(const struct report_seen *seen, struct job *ret);
/* Writes the card's use, power and clock. */
void report_card(const struct card_figures *figures, struct job *ret);
/* Returns how many steps the program began between the two looks; 0: no step is known. */
unsigned long long report_steps(const struct pages *begin, const struct pages *end);
/* Adds the rate on half of the SMs. half: what report_fill() made of a run on half of the SMs; its
 * steps have as many launches as the job's. 0; -ENODATA: one of the two runs launched nothing;
 * -EAGAIN: the program did something else in that run. */
int report_half(const struct job *half, struct job *ret);
