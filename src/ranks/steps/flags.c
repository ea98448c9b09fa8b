/* flags.c: owns the memory operations in a stream. A wait first says in host memory what it waits
 * for, so that the CPU can tell a rank that waits from one that computes. It takes that back before
 * it clears the flags: otherwise a program that is frozen in between would seem to wait for ever.
 */
#include "ranks/steps/flags.h"

#include <stdbool.h>

#include "ranks/real/real_functions.h"

static _Atomic uint16_t number; /* see ring_waiting_for() */

/* One batch: at most two operations for each rank, and two more. The driver takes 256 at least. */
struct batch {
        CUstreamBatchMemOpParams ops[2 * MEET_RANKS_MAX + 2];
        unsigned n;
};

static void add_write(struct batch *b, CUdeviceptr at, uint32_t value)
{
        CUstreamBatchMemOpParams *p = &b->ops[b->n++];

        *p = (CUstreamBatchMemOpParams){0};
        p->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        p->writeValue.address = at;
        p->writeValue.value = value;
}

static void add_wait(struct batch *b, CUdeviceptr at)
{
        CUstreamBatchMemOpParams *p = &b->ops[b->n++];

        *p = (CUstreamBatchMemOpParams){0};
        p->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
        p->waitValue.address = at;
        p->waitValue.value = 1;
        p->waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

static bool is_meant(const struct ring *r, unsigned ranks, int rank)
{
        return rank != r->rank && (ranks == RING_ALL || ranks == (unsigned)rank);
}

CUresult flags_set(const struct ring *r, enum ring_flag flag, unsigned part, unsigned to,
                   CUstream stream)
{
        struct batch b = {.n = 0};

        for (int i = 0; i < r->n; i++)
                if (is_meant(r, to, i))
                        add_write(&b, ring_flag(r, flag, part, r->rank, i), 1);
        return b.n ? real_cuda()->cuStreamBatchMemOp_v2(stream, b.n, b.ops, 0) : CUDA_SUCCESS;
}

CUresult flags_wait(const struct ring *r, enum ring_flag flag, unsigned part, unsigned from,
                    CUstream stream)
{
        struct batch b = {.n = 0};

        add_write(&b, ring_waiting(r), ring_waiting_for(flag, part, from, number++));
        for (int i = 0; i < r->n; i++)
                if (is_meant(r, from, i))
                        add_wait(&b, ring_flag(r, flag, part, i, r->rank));
        if (b.n == 1)
                return CUDA_SUCCESS;
        add_write(&b, ring_waiting(r), 0);
        for (int i = 0; i < r->n; i++)
                if (is_meant(r, from, i))
                        add_write(&b, ring_flag(r, flag, part, i, r->rank), 0);
        return real_cuda()->cuStreamBatchMemOp_v2(stream, b.n, b.ops, 0);
}

CUresult flags_wait_bells(const struct ring *r, unsigned bells, CUstream stream)
{
        CUstreamBatchMemOpParams *p;
        struct batch b = {.n = 0};
        uint64_t mask = 0;

        for (unsigned i = 0; i < RING_BELLS; i++)
                mask |= (uint64_t)(bells >> i & 1) << 8 * i;
        add_write(&b, ring_waiting(r), ring_waiting_for(RING_FLAGS, 0, bells, number++));
        p = &b.ops[b.n++];
        *p = (CUstreamBatchMemOpParams){0};
        p->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
        p->waitValue.address = ring_bells(r, r->rank);
        p->waitValue.value64 = mask;
        p->waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
        add_write(&b, ring_waiting(r), 0);
        p = &b.ops[b.n++];
        *p = (CUstreamBatchMemOpParams){0};
        p->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
        p->writeValue.address = ring_bells(r, r->rank);
        return real_cuda()->cuStreamBatchMemOp_v2(stream, b.n, b.ops, 0);
}
