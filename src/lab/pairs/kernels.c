/* kernels.c: owns the table of synthetic jobs and their names. Must never look at the machine: the
 * same table serves all cards. */
#include "lab/pairs/kernels.h"

#include <stdio.h>

#include "base/macros.h"

/* J(family, intensity, footprint in KiB, threads, values, blocks an SM, grid, µs, gap) */
#define J(family, intensity, footprint, threads, values, blocks, grid, us, gap)                \
        {                                                                                      \
                KERNEL_##family, intensity, footprint, threads, values, blocks, grid, us, gap, \
                        false                                                                  \
        }
#define M(mib) ((mib)*KIB_OF_MIB)

const struct kernel_job kernel_jobs[] = {
        /* Arithmetic without memory: the units, occupancy, the grid, the length. */
        J(FP32, 0, 0, 256, 8, 0, 1, 1000, 0),
        J(FP32, 0, 0, 256, 8, 1, 1, 200, 0),
        J(FP32, 0, 0, 256, 8, 4, 4, 500, 20),
        J(FP32, 0, 0, 256, 8, 0, -25, 1000, 0),
        J(FP32, 0, 0, 256, 96, 0, 2, 5000, 0),
        J(FP32, 0, 0, 128, 8, 0, -50, 20, 50),
        J(FP64, 0, 0, 256, 8, 0, 1, 500, 0),
        J(FP64, 0, 0, 256, 8, 2, 4, 2000, 0),
        J(FP64, 0, 0, 128, 4, 0, -50, 200, 30),
        J(FP16, 0, 0, 256, 8, 0, 2, 500, 0),
        J(INTEGER, 0, 0, 256, 8, 0, 1, 1000, 0),
        J(INTEGER, 0, 0, 512, 8, 1, 8, 200, 0),
        J(INTEGER, 0, 0, 256, 8, 0, -50, 50, 10),
        J(SPECIAL, 0, 0, 256, 8, 0, 1, 500, 0),
        J(SPECIAL, 0, 0, 256, 8, 2, -50, 100, 0),
        J(TENSOR, 0, 0, 256, 8, 0, 1, 1000, 0),
        J(TENSOR, 0, 0, 128, 8, 1, 1, 200, 0),
        J(TENSOR, 0, 0, 128, 4, 0, -25, 500, 0),
        J(TENSOR, 0, 0, 256, 8, 2, 8, 5000, 0),
        /* Arithmetic beside memory, in grades. */
        J(FP32, 8, M(1024), 256, 8, 0, 1, 500, 0),
        J(FP32, 32, M(1024), 256, 8, 0, 8, 1000, 0),
        J(FP32, 128, M(1024), 256, 8, 4, 4, 200, 0),
        J(FP32, 16, M(20), 256, 8, 0, 1, 200, 0),
        J(FP32, 32, M(20), 256, 32, 2, 4, 50, 20),
        J(FP64, 16, M(1024), 256, 8, 0, 4, 1000, 0),
        J(INTEGER, 32, M(1024), 256, 8, 0, 1, 2000, 0),
        J(INTEGER, 16, M(8), 256, 8, 2, 2, 100, 0),
        J(TENSOR, 2, M(1024), 256, 4, 0, 4, 500, 0),
        J(TENSOR, 8, M(1024), 128, 8, 2, 1, 1000, 0),
        J(TENSOR, 4, M(20), 128, 8, 0, 2, 100, 10),
        J(SPECIAL, 16, M(512), 256, 8, 0, 2, 200, 20),
        /* Memory. */
        J(READ, 0, M(1024), 256, 8, 0, 1, 1000, 0),
        J(READ, 0, M(1024), 256, 8, 2, 8, 5000, 0),
        J(READ, 0, M(512), 128, 8, 1, 1, 200, 0),
        J(READ, 0, M(1024), 512, 8, 0, -25, 500, 0),
        J(READ, 0, M(256), 256, 8, 0, 4, 50, 50),
        J(UPDATE, 0, M(1024), 256, 8, 0, 4, 1000, 0),
        J(UPDATE, 0, M(512), 256, 8, 4, 1, 100, 20),
        J(READ, 0, M(8), 256, 8, 0, 1, 500, 0),
        J(READ, 0, M(20), 256, 8, 0, 4, 1000, 0),
        J(READ, 0, M(30), 256, 8, 2, 1, 200, 20),
        J(UPDATE, 0, M(16), 256, 8, 0, 2, 500, 0),
        J(GATHER, 0, M(1024), 256, 8, 0, 1, 1000, 0),
        J(GATHER, 0, M(24), 256, 8, 4, 4, 200, 0),
        /* The SM's own memory, and atomics. */
        J(SHARED, 0, 0, 256, 8, 0, 1, 500, 0),
        J(SHARED, 0, 0, 256, 8, 2, 8, 2000, 10),
        J(ATOMIC, 0, M(16), 256, 8, 0, 1, 500, 0),
        J(ATOMIC, 0, 4, 256, 8, 0, 2, 200, 20),
};
const size_t kernel_jobs_count = ARRAY_SIZE(kernel_jobs);

static const char *const families[] = {
#define X(identifier, name, help) name,
        KERNEL_FAMILIES(X)
#undef X
};

const char *kernel_family_name(enum kernel_family family)
{
        return families[family];
}

static size_t add(char *buf, size_t used, const char *before, unsigned number, const char *after)
{
        return used + (size_t)snprintf(buf + used, KERNEL_NAME_MAX - used, "%s%u%s", before, number,
                                       after);
}

void kernel_name(const struct kernel_job *job, char buf[static KERNEL_NAME_MAX])
{
        size_t used = (size_t)snprintf(buf, KERNEL_NAME_MAX, "%s", kernel_family_name(job->family));

        if (job->intensity)
                used = add(buf, used, "-i", job->intensity, "");
        if (job->footprint_kib >= KIB_OF_MIB)
                used = add(buf, used, "-f", job->footprint_kib / KIB_OF_MIB, "m");
        else if (job->footprint_kib)
                used = add(buf, used, "-f", job->footprint_kib, "k");
        if (job->drawn)
                used = add(buf, used, "-t", job->threads, "");
        if (job->drawn || job->values > 8)
                used = add(buf, used, "-v", job->values, "");
        if (job->drawn && job->blocks_per_sm)
                used = add(buf, used, "-b", job->blocks_per_sm, "");
        else if (job->blocks_per_sm)
                used = add(buf, used, "-occ", 100 * job->blocks_per_sm * job->threads / SM_THREADS,
                           "");
        used = job->grid > 0 ? add(buf, used, "-waves", (unsigned)job->grid, "")
                             : add(buf, used, "-part", (unsigned)-job->grid, "");
        if (job->us >= 1000 && !job->drawn)
                used = add(buf, used, "-", job->us / 1000, "ms");
        else
                used = add(buf, used, "-", job->us, "us");
        if (job->gap)
                (void)add(buf, used, "-gap", job->gap, "");
}

void kernel_entry(const struct kernel_job *job, char buf[static KERNEL_NAME_MAX])
{
        kernel_name(job, buf);
        for (char *c = buf; *c; c++)
                if (*c == '-')
                        *c = '_';
}
