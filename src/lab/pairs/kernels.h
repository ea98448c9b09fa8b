/* kernels.h: the synthetic kernels of sublet bench pairs: a table of jobs, a sequence of any number
 * of them, and their code as PTX.
 *
 * A job repeats one kernel, or a sequence of up to four. Jobs differ in the units of the GPU that
 * they use, and in how. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB_OF_MIB       1024
#define SM_THREADS       2048 /* threads of an SM, on the cards for which the names are made */
#define KERNEL_NAME_MAX  64
#define KERNEL_PTX_MAX   (64 * 1024)
#define KERNEL_PARTS_MAX 4 /* kernels of a step */

/* KERNEL_FAMILY(identifier, name, what it is for the list) */
#define KERNEL_FAMILIES(X)                                            \
        X(FP32, "fp32", "multiplies and adds numbers of 32 bits")     \
        X(FP64, "fp64", "multiplies and adds numbers of 64 bits")     \
        X(FP16, "fp16", "multiplies and adds pairs of 16 bits")       \
        X(INTEGER, "int", "integers")                                 \
        X(SPECIAL, "special", "special functions")                    \
        X(TENSOR, "tensor", "tensor units, 16 bits")                  \
        X(READ, "read", "reads memory")                               \
        X(UPDATE, "update", "reads and writes memory")                \
        X(SHARED, "smem", "reads and writes shared memory of the SM") \
        X(GATHER, "gather", "reads memory at random")                 \
        X(ATOMIC, "atomic", "adds to memory at random, atomically")

enum kernel_family {
#define X(identifier, name, help) KERNEL_##identifier,
        KERNEL_FAMILIES(X)
#undef X
                KERNEL_FAMILIES_COUNT
};

struct kernel_job {
        enum kernel_family family;
        unsigned intensity;     /* arithmetic instructions for each access of 16 bytes; 0: no access
                                   (families of arithmetic) or no arithmetic (the others) */
        unsigned footprint_kib; /* memory that is accessed; 0: none */
        unsigned threads;       /* threads of a block */
        unsigned values; /* values that a thread computes with at once: more take more registers */
        unsigned blocks_per_sm; /* most blocks on an SM, bounded by unused shared memory; 0: as many
                                   as fit */
        int grid;     /* above 0: number of full waves; below: percent of the SMs, which get a block
                         each */
        unsigned us;  /* microseconds, about, that the kernel runs alone */
        unsigned gap; /* percent of the time without a kernel, because the host pauses */
        bool drawn;   /* not from the table: the name has all parameters */
};

/* The kernels that a job repeats, one after the other. */
struct kernel_step {
        unsigned n;
        struct kernel_job kernels[KERNEL_PARTS_MAX]; /* the first one has the step's gap */
};

extern const struct kernel_job kernel_jobs[];
extern const size_t kernel_jobs_count;

/* Writes the job's name: "fp32-i64-f1024m-occ50-waves8-200us-gap30", or of one that was drawn,
 * "fp32-i64-f1024m-t256-v8-b4-waves8-200us-gap30". */
void kernel_name(const struct kernel_job *job, char buf[static KERNEL_NAME_MAX]);
/* Writes the name of the job's kernel: its name, with underscores. */
void kernel_entry(const struct kernel_job *job, char buf[static KERNEL_NAME_MAX]);
/* Makes the job of this name, of the table or not. 0, or -ENOENT: there is no such job. */
int kernel_find(const char *name, struct kernel_step *ret);

/* Makes the i-th kernel of the seed's sequence, which spreads evenly over all parameters. */
void kernel_draw(uint64_t seed, unsigned i, struct kernel_job *ret);
/* Writes the i-th job's name and family; every seventh is a sequence of two to four kernels. */
void kernel_draw_name(uint64_t seed, unsigned i, char buf[static KERNEL_NAME_MAX],
                      const char **ret_family);
const char *kernel_family_name(enum kernel_family family);
/* Returns "mix" for a sequence, else the name of the kernel's family. */
const char *kernel_step_family(const struct kernel_step *step);

/* Writes the job's code. Its entry is
 *     kernel_entry(u64 base, u64 bytes, u64 stride, u32 loops, u32 never)
 * The memory at base has `bytes` bytes. A thread accesses 16 of them in each step, and goes on by
 * stride < bytes. The body runs `loops` times. The result is stored at base if it equals `never`,
 * so that no compiler may leave out the computation. 0, or -ENOSPC. */
int kernel_ptx(const struct kernel_job *job, char *buf, size_t room);
