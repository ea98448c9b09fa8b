/* roof.h: a simple estimate, without a model, of how fast two jobs run beside each other.
 *
 * Each job alternates between the host and the card: it is on the card for a part `duty` of its
 * time alone. While both are on the card, the card's part of each lasts `stretch` times as long:
 * twice where the driver slices the time; under MPS as long as the fullest resource says, whose
 * uses add up, and not less than alone. How often both are on the card depends on how fast both
 * run, so the two rates are solved together. Pure. */
#pragma once

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
};

/* Returns the largest sum of the uses that both make of a resource while both are on the card; *ret
 * is the resource, which may be NULL. 0 where nothing is known. */
double roof_fullest(const struct roof_job jobs[static 2], enum roof_resource *ret);
/* Writes the progress of both for the driver's slices, or under MPS (shared). */
void roof_progress(const struct roof_job jobs[static 2], int shared, double ret[static 2]);
