/* collectives.h: puts collective operations into a rank's stream, as copies, one reduction and
 * waits for flags (ring.h); and sends and receives, as launches of a kernel and waits for a bell.
 * No call waits for the GPU or for another rank.
 *
 * An operation ends in a rank's stream when nobody reads this rank's ring any more, so the ring and
 * the flags are free between operations, and a captured operation can be replayed. Operations of
 * one communicator must therefore follow one another in its streams. */
#pragma once

#include <stdint.h>

#include "cuda/cuda_abi.h"
#include "ranks/reduce/reduce.h"
#include "ranks/ring/ring.h"

enum steps_kind {
        STEPS_ALL_REDUCE,
        STEPS_REDUCE_SCATTER,
        STEPS_ALL_GATHER,
        STEPS_BROADCAST,
        STEPS_REDUCE,
        STEPS_SEND,
        STEPS_RECEIVE,
};

struct steps_call {
        enum steps_kind kind;
        CUdeviceptr from, to;
        uint64_t count;      /* elements, as NCCL's function of this kind counts them */
        struct reduce_op op; /* op.type is always set */
        int peer;            /* root, receiver or sender */
};

/* Does the part of the call that may wait for other work on the card. */
CUresult steps_prepare(const struct steps_call *c);
/* Puts a call of any kind but STEPS_SEND and STEPS_RECEIVE into the stream. */
CUresult steps_collective(const struct ring *r, const struct steps_call *c, CUstream stream);
/* Runs all sends and receives of a group, which progress beside each other. Sends and receives
 * between two ranks are matched in their order. A send to this rank itself needs its receive in the
 * same group: CUDA_ERROR_INVALID_VALUE. */
CUresult steps_point_to_point(const struct ring *r, const struct steps_call *calls, unsigned n,
                              CUstream stream);
