/* checks.h: what a rank has, and the checks it can do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lobby.h"
#include "nccl.h"
#include "program.h"
#include "values.h"

struct settings {
        size_t counts[16];
        int count_n;
        bool types[ncclNumTypes];
        size_t big;      /* elements of the checks with large buffers */
        uint64_t fill;   /* bytes that each rank keeps beside its buffers */
        double patience; /* factor for all limits of time */
        int rounds;      /* of the checks that repeat */
        const char *until;
};
extern struct settings settings;

struct rank {
        int rank, n;
        int devices, ordinal;
        CUdevice device;
        CUcontext context;
        CUstream stream[3];
        ncclComm_t comm; /* of all ranks, made before the first check */
        CUdeviceptr fill;
};

struct check {
        const char *name;
        void (*run)(struct rank *r);
        bool fresh; /* needs new processes, and leaves them unusable */
        bool named; /* runs only if --only names it, and without a limit of time */
};
extern const struct check checks[];
extern const int check_count;

/* ---- the checks, by file ---- */

void check_versions(struct rank *r);
void check_properties(struct rank *r);
void check_arguments(struct rank *r);
void check_scalars(struct rank *r);
void check_config(struct rank *r);
void check_scalable(struct rank *r);
void check_nonblocking(struct rank *r);
void check_split(struct rank *r);
void check_shrink(struct rank *r);
void check_single(struct rank *r);
void check_finalize(struct rank *r);
void check_grouped_inits(struct rank *r);
void check_many_communicators(struct rank *r);
void check_registered(struct rank *r);

void check_devices(struct rank *r);
void check_devices_and_processes(struct rank *r);

void check_special_numbers(struct rank *r);

void check_all_reduce(struct rank *r);
void check_reduce(struct rank *r);
void check_reduce_scatter(struct rank *r);
void check_all_gather(struct rank *r);
void check_broadcast(struct rank *r);
void check_gather_scatter(struct rank *r);
void check_all_to_all(struct rank *r);
void check_big(struct rank *r);

void check_ring(struct rank *r);
void check_exchange(struct rank *r);
void check_self(struct rank *r);
void check_send_order(struct rank *r);

void check_streams(struct rank *r);
void check_stream_order(struct rank *r);
void check_groups(struct rank *r);
void check_two_communicators(struct rank *r);
void check_repeat(struct rank *r);
void check_random_numbers(struct rank *r);
void check_mixture(struct rank *r);
void check_endless(struct rank *r);
void check_graph(struct rank *r);
void check_graph_mixed(struct rank *r);
void check_wait_is_idle(struct rank *r);

void check_killed(struct rank *r);
void check_killed_amid(struct rank *r);
void check_left(struct rank *r);
void check_absent(struct rank *r);
void check_absent_at_init(struct rank *r);
void check_abort_often(struct rank *r);
void check_abort_idle(struct rank *r);
void check_shrink_absent(struct rank *r);
void check_shrink_killed(struct rank *r);

/* ---- calls ---- */

void nccl_expect(ncclResult_t got, ncclResult_t expected, const char *call, const char *file,
                 int line);
/* A call that must succeed; if not, the rank ends. */
#define NCCL(call) nccl_expect((call), ncclSuccess, #call, __FILE__, __LINE__)
/* A call that must answer with this code. */
#define ANSWERS(code, call)                                                                    \
        do {                                                                                   \
                ncclResult_t answer_ = (call);                                                 \
                                                                                               \
                EXPECT(answer_ == (code), "%s:%d: %s answered %d, not %s", __FILE__, __LINE__, \
                       #call, (int)answer_, #code);                                            \
        } while (0)
/* A driver call that must succeed; if not, the rank ends. */
#define CUDA(call) cuda_expect((call), #call, __FILE__, __LINE__)
void cuda_expect(CUresult got, const char *call, const char *file, int line);

/* Rank `from` makes an id; all ranks get it. */
ncclUniqueId id_from(const struct rank *r, int from);
/* Makes a communicator of all ranks. reversed: rank r is rank n-1-r in it. */
ncclComm_t comm_of_all(const struct rank *r, bool reversed);
/* A few operations of a communicator in which this rank has another number. */
void try_comm(const struct rank *r, ncclComm_t comm, int rank, int n);
/* Tells all ranks a word each. True if all are equal. */
bool equal_on_all_ranks(const struct rank *r, uint64_t word);
/* Waits until all that the stream has to do is done. False after `seconds` times the patience. */
bool stream_ends(CUstream s, double seconds);

/* Looks whether the memory of --fill is as it was. */
void fill_check(const struct rank *r);

/* ---- one operation ---- */

enum collective {
        ALL_REDUCE,
        REDUCE,
        REDUCE_SCATTER,
        ALL_GATHER,
        BROADCAST,
        BCAST,
        GATHER,
        SCATTER,
        ALL_TO_ALL,
        SEND_TO_NEXT, /* each rank sends to the next one and receives from the one before */
        COLLECTIVES,
};
extern const char *const collective_names[COLLECTIVES];

struct operation {
        enum collective what;
        int type;
        enum op op;
        size_t count;
        int root;
        bool in_place;
        unsigned shift; /* elements by which the buffers are off their alignment */
        uint64_t seed;
        ncclComm_t comm;
        int rank, n; /* in comm */
        CUstream stream;
        double tolerance;
        /* Filled in by operation_prepare(). */
        CUdeviceptr memory, send, recv;
        size_t send_bytes, recv_bytes, memory_bytes;
        int made_op; /* NCCL's number of the operation */
        CUdeviceptr scalar;
        bool receives;
};

bool operation_exists(enum collective what);
/* Allocates the buffers and fills them in the stream. */
void operation_prepare(struct operation *o);
/* Writes the inputs of another seed into the same buffers, in the stream. */
void operation_refill(struct operation *o, uint64_t seed);
void operation_call(struct operation *o);
/* Waits for the stream. Compares the results, and looks for bytes written beside them. */
void operation_check(struct operation *o);
void operation_free(struct operation *o);
/* All of these. */
void operation_do(struct operation *o);
uint64_t operation_digest(struct operation *o);
