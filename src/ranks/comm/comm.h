/* comm.h: communicators. A program's ncclComm_t is a struct comm. Either its ranks share a card and
 * it is served here, or it stands for a communicator of the real NCCL.
 *
 * Functions return NCCL's results. Any thread may call them, but only one thread at a time for one
 * communicator, except for comm_abort() and comm_error(). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ranks/real/nccl_abi.h"
#include "ranks/steps/collectives.h"

struct comm;

/* A rank's plan for a communicator, from the program's arguments. */
struct comm_plan {
        uint8_t name[MEET_NAME];
        int rank, n;
        bool must_wait;       /* the name's server may come later than this rank */
        bool must_not_block;  /* comm_error() is ncclInProgress until the communicator is made */
        ncclConfig_t *config; /* for the real NCCL; NULL: none */
        int device;           /* the program's ordinal */
        CUcontext context;    /* the context in which the communicator works */
        struct comm *parent;  /* aborting this communicator ends the making, too; NULL: none */
};

/* A communicator that a program makes of the ranks of another one. */
struct comm_child {
        struct comm *parent;
        uint64_t excluded; /* ncclCommShrink(): a bit for each rank; 0: ncclCommSplit() */
        int color, key;
};

ncclResult_t comm_unique_id(ncclUniqueId *ret);
/* Reads the name in an id. -1: the id was not made by comm_unique_id(). */
int comm_name_of(const ncclUniqueId *id, uint8_t ret_name[static MEET_NAME]);

/* Takes over what the program's configuration says. -1: this is no configuration of NCCL. */
int comm_read_config(const ncclConfig_t *config, struct comm_plan *plan);
/* Replaces the program's configuration, which may end before the group does, by a copy. The caller
 * frees it. -1: no memory. */
int comm_copy_config(struct comm_plan *plan);

/* Makes several communicators of this process at once: none waits for another one of this call. */
ncclResult_t comm_make(const struct comm_plan *plans, unsigned n, struct comm **ret);
/* Check the arguments of ncclCommSplit() and ncclCommShrink(), and fill the child. A shrink that
 * aborts ends the parent's operations. */
ncclResult_t comm_ask_split(struct comm *c, int color, int key, struct comm_child *ret);
ncclResult_t comm_ask_shrink(struct comm *c, const int *excluded, int n_excluded, int flags,
                             struct comm_child *ret);
/* Makes children, at most MEET_RANKS_MAX, as comm_make(). ret[i] is NULL for NCCL_SPLIT_NOCOLOR. */
ncclResult_t comm_make_children(const struct comm_child *children, unsigned n, struct comm **ret);
ncclResult_t comm_destroy(struct comm *c);
ncclResult_t comm_abort(struct comm *c);

/* Leaves the communicators in which this rank's work is done, at the end of the process, because
 * the other ranks may still have to run. In all others this rank counts as lost. may_ask: the
 * driver may be asked; otherwise the program may end in the middle of a call of the driver. */
void comm_leave_all(bool may_ask);

/* Returns a handle's communicator; NULL: the handle is something else. */
struct comm *comm_of(ncclComm_t handle);
ncclComm_t comm_handle(struct comm *c);
/* Returns the real NCCL's communicator; NULL: the communicator is one of ours. */
ncclComm_t comm_real(const struct comm *c);
/* Returns a communicator that stands for a child that the real NCCL makes of `parent`. NCCL stores
 * its handle at *ret_place, maybe when a group ends. NULL: no memory. */
struct comm *comm_real_child(const struct comm *parent, ncclComm_t **ret_place);
/* True once the process has had a communicator of the real NCCL. */
bool comm_any_is_real(void);
int comm_rank(const struct comm *c);
int comm_count(const struct comm *c);
int comm_device(const struct comm *c);
/* Returns ncclInProgress while the communicator is made, ncclRemoteError once a rank's process has
 * ended or another rank has aborted. */
ncclResult_t comm_error(struct comm *c);

/* Put a collective, or all sends and receives of a group, into a stream: that of the first call.
 * The streams of the other calls wait for it, and it waits for them. */
ncclResult_t comm_run(struct comm *c, const struct steps_call *calls, unsigned n,
                      const CUstream *streams);

/* Does the part of a call that may wait for the card. Call it for all ranks of this process before
 * comm_run() of any rank: afterwards their streams may wait for each other. */
ncclResult_t comm_prepare(const struct comm *c, const struct steps_call *call);

/* An order of communicators that is the same on all their ranks. False for ranks of one
 * communicator. */
bool comm_is_before(const struct comm *a, const struct comm *b);
/* True if both are ranks of one communicator, in one context. In one stream their operations would
 * wait for each other for ever. */
bool comm_is_beside(const struct comm *a, const struct comm *b);
/* Puts a stream of the communicator's own in the place of the program's: *ret follows what is in
 * `stream` now. Later comm_come_back() has `stream` follow what is in *ret by then. */
ncclResult_t comm_go_aside(struct comm *c, CUstream stream, CUstream *ret);
ncclResult_t comm_come_back(struct comm *c, CUstream stream);

/* Makes an operation that multiplies by the scalar before it reduces. The GPU reads a scalar whose
 * residence is ncclScalarDevice. */
ncclResult_t comm_add_scale(struct comm *c, const void *scalar, ncclDataType_t type,
                            ncclScalarResidence_t residence, ncclRedOp_t *ret);
ncclResult_t comm_remove_scale(struct comm *c, ncclRedOp_t op);
/* Fills a call's operation. */
ncclResult_t comm_reduce_op(const struct comm *c, ncclRedOp_t op, ncclDataType_t type,
                            struct reduce_op *ret);

/* Returns a sentence about the process's last error; it holds until this thread's next call. */
const char *comm_last_error(void);
ncclResult_t comm_fail(ncclResult_t result, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
