/* roof.h: an estimate, without trees, of how fast two jobs run beside each other: small formulae of
 * what an H200 with driver 580 did with pairs of kernels.
 *
 * Sliced. Each job with work on the card has it for a slice, then the other. Two jobs whose hosts
 * launch ahead get SLICED_SHARE of the time each; what one does not need, the other may take. A
 * host that waits for each launch before it prepares the next gives its slice up at once: its step
 * lasts its burst on the card and the longer of its gap and the other's slice, so that short bursts
 * starve. If both hosts wait, the bursts alternate, and each change of the job costs SWITCH_S.
 *
 * Shared (MPS). Blocks go to the SMs in the order of their launches. If the blocks of both fit the
 * SMs side by side, both go on as the fullest resource says, whose uses add up. If not, launches
 * alternate one by one, whatever their lengths: both launch once within
 *
 *      T = longer launch + overlap × shorter launch,   progress = interval between launches / T
 *
 * where the overlap is below 1 as far as they use different resources: blocks of one begin while
 * the last of the other end. So a job of short launches starves beside one of long launches. A host
 * that pauses for longer than the other's launches waits for half of one, and takes its part of the
 * other's time.
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

/* What blocks hold of an SM while they run. */
enum roof_room { ROOF_THREADS, ROOF_SHARED_MEMORY, ROOF_REGISTERS, ROOF_ROOMS };

struct roof_job {
        double duty;                /* part of its time alone that it is on the card */
        double use[ROOF_RESOURCES]; /* alone, of the whole time; NAN where not known */
        double room[ROOF_ROOMS];    /* of all SMs, while its kernels run; NAN where not known */
        double filled;              /* part of the SMs that have a block meanwhile; NAN: all */
        double interval_s;          /* between launches; 0 or NAN: not known */
        bool waits;                 /* the host waits for each launch before the next */
};

/* Returns the largest sum of the uses that both make of a resource while both are on the card; *ret
 * is the resource, which may be NULL. 0 where nothing is known. */
double roof_fullest(const struct roof_job jobs[static 2], enum roof_resource *ret);
/* Returns the largest sum of what the blocks of both hold of the SMs; 0 where nothing is known. */
double roof_crowded(const struct roof_job jobs[static 2]);
/* Returns the part of the room that the first takes alone which the second leaves it: 0 to 1. */
double roof_left(const struct roof_job *j, const struct roof_job *beside);
/* Writes the progress of both if they ran side by side, and the fullest resource decided. */
void roof_beside(const struct roof_job jobs[static 2], double ret[static 2]);
/* Writes the progress of both for the driver's slices, or under MPS (shared). */
void roof_progress(const struct roof_job jobs[static 2], int shared, double ret[static 2]);
