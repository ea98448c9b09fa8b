/* wire_measure.h: what the library counts of a program that `sublet measure` runs. Each process
 * that submits work writes one such file, through a mapping, in the folder of SUBLET_MEASURE; the
 * name is its process number. So a reader sees the figures grow, and those of a killed process
 * stay.
 *
 * All numbers are in the byte order of the machine, because both ends are on one machine. All
 * counts only grow. A reader must check every number: the program can write anything there. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define MEASURE_MAGIC       UINT64_C(0x31727573656d7573) /* raise it when the layout changes */
#define MEASURE_NAME_MAX    128u
#define MEASURE_KERNELS     1024u
#define MEASURE_GRAPHS      256u
#define MEASURE_NODES       8192u /* sorts of kernels in all graphs */
#define MEASURE_STEPS       4096u /* begins of steps that are kept, a power of two */
#define MEASURE_UNSUPPORTED UINT32_MAX

enum measure_copy { MEASURE_TO_DEVICE, MEASURE_TO_HOST, MEASURE_WITHIN, MEASURE_COPIES };

/* Times of some of the launches, each measured by a pair of events around it. If the GPU was still
 * busy with earlier work of the stream when all was submitted, the time between the events is that
 * of the work. If not, the time that the processor took between the two submissions is subtracted
 * (`late` samples). Work on other streams at the same time makes a sample longer. */
struct measure_time {
        _Atomic uint64_t launches;
        _Atomic uint64_t samples, sampled_ns;
        _Atomic uint64_t late, late_ns; /* the samples from which time was subtracted */
};

/* One kernel in one geometry. It is valid once `ready` is set. */
struct measure_kernel {
        _Atomic uint32_t ready;
        uint32_t grid[3], block[3];
        uint32_t dynamic_bytes;
        /* MEASURE_UNSUPPORTED where the driver does not tell. */
        uint32_t static_bytes, local_bytes, registers, blocks_per_sm;
        struct measure_time time; /* launches that are no part of a graph */
        char name[MEASURE_NAME_MAX];
};

/* A part of the nodes of a graph: launches of one kernel in one geometry. */
struct measure_node {
        uint32_t kernel; /* place in kernels[] */
        uint32_t count;
};

/* One instantiated graph. Its kernels are those at the time of the instantiation. */
struct measure_graph {
        _Atomic uint32_t ready;
        uint32_t first, count; /* the part of nodes[] that belongs to the graph */
        uint32_t unknown;      /* nodes that are kernels and could not be listed */
        struct measure_time time;
};

struct measure_page {
        _Atomic uint64_t magic; /* the library sets it last */
        uint32_t pid;
        /* The GPU of the first kernel. */
        uint32_t sms, threads_per_sm, l2_bytes;
        uint32_t clock_khz, memory_clock_khz, memory_bus_bits;
        uint8_t uuid[16];
        uint64_t total_bytes;
        char gpu[96];

        _Atomic uint64_t first_ns, last_ns; /* CLOCK_MONOTONIC of the first and a recent launch */
        _Atomic uint64_t submissions;
        _Atomic uint64_t unlisted; /* launches of kernels and graphs that the tables have no room
                                      for */
        _Atomic uint64_t copied[MEASURE_COPIES]; /* bytes */
        _Atomic uint64_t peak_bytes;             /* memory of allocations and contexts */
        _Atomic uint64_t cost_ns; /* time that the program's threads spent on samples */

        /* The work that begins a step (work_steps.h). A rarer sort of work that is found later
         * begins another era, with its own count. */
        _Atomic uint64_t era, steps;
        _Atomic uint64_t step_ns[MEASURE_STEPS]; /* begin of step n at n % MEASURE_STEPS */

        _Atomic uint32_t kernel_count, graph_count, node_count;
        struct measure_kernel kernels[MEASURE_KERNELS];
        struct measure_graph graphs[MEASURE_GRAPHS];
        struct measure_node nodes[MEASURE_NODES];
};
