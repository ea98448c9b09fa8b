/* shrink.c: the check of communicators without some of the ranks. Failures are in failures.c. */
#include "checks.h"

#define MASK(rank) (1u << (rank))

/* Makes a communicator without the ranks of the mask, which do not call. Returns NULL on those. */
static ncclComm_t without(ncclComm_t parent, unsigned mask, int rank, int n, int flags)
{
        int excluded[RANKS_MAX], excluded_n = 0, own = -1, count = -1, before = 0;
        ncclComm_t comm = NULL;

        for (int i = n - 1; i >= 0; i--) { /* the order does not matter */
                if (mask & MASK(i))
                        excluded[excluded_n++] = i;
                else
                        before += i < rank;
        }
        if (mask & MASK(rank))
                return NULL;
        at("shrink without the ranks %#x of %d", mask, n);
        NCCL(nccl.CommShrink(parent, excluded, excluded_n, &comm, NULL, flags));
        NCCL(nccl.CommUserRank(comm, &own));
        NCCL(nccl.CommCount(comm, &count));
        EXPECT(own == before && count == n - excluded_n,
               "shrink without %#x: rank %d of %d, not %d of %d", mask, own, count, before,
               n - excluded_n);
        return comm;
}

static void try_without(const struct rank *r, unsigned mask)
{
        ncclComm_t comm = without(r->comm, mask, r->rank, r->n, NCCL_SHRINK_DEFAULT);
        int rank, n;

        if (!comm)
                return;
        NCCL(nccl.CommUserRank(comm, &rank));
        NCCL(nccl.CommCount(comm, &n));
        try_comm(r, comm, rank, n);
        NCCL(nccl.CommDestroy(comm));
}

static void refuse_wrong_lists(const struct rank *r)
{
        int self = r->rank;
        ncclComm_t comm = NULL;

        at("shrink with wrong arguments");
        ANSWERS(ncclInvalidArgument, nccl.CommShrink(NULL, &self, 1, &comm, NULL, 0));
        ANSWERS(ncclInvalidArgument, nccl.CommShrink(r->comm, &self, 1, &comm, NULL, 0));
        ANSWERS(ncclInvalidArgument, nccl.CommShrink(r->comm, &self, 0, &comm, NULL, 0));
        ANSWERS(ncclInvalidArgument, nccl.CommShrink(r->comm, NULL, 1, &comm, NULL, 0));
        ANSWERS(ncclInvalidArgument, nccl.CommShrink(r->comm, &self, 1, NULL, NULL, 0));
        lobby_meet();
}

/* A communicator that was shrunk is shrunk again. */
static void shrink_twice(const struct rank *r)
{
        ncclComm_t first = without(r->comm, MASK(0), r->rank, r->n, NCCL_SHRINK_DEFAULT), second;
        const int rank = r->rank - 1, n = r->n - 1;

        if (!first)
                return;
        second = without(first, MASK(n - 1), rank, n, NCCL_SHRINK_DEFAULT);
        try_comm(r, first, rank, n);
        NCCL(nccl.CommDestroy(first)); /* before its child */
        if (!second)
                return;
        try_comm(r, second, rank, n - 1);
        NCCL(nccl.CommDestroy(second));
}

void check_shrink(struct rank *r)
{
        ncclComm_t comm = NULL;

        if (!nccl.CommShrink || r->n < 2) {
                skip(r->n < 2 ? "one rank cannot be excluded" : "this NCCL has no ncclCommShrink");
                return;
        }
        refuse_wrong_lists(r);
        for (int i = 0; i < r->n; i++) {
                try_without(r, MASK(i));
                try_without(r, MASK(i)); /* once more */
        }
        /* All but the first, and all but the last. */
        try_without(r, (MASK(r->n) - 1) & ~MASK(0));
        try_without(r, MASK(r->n - 1) - 1);
        if (r->n > 2)
                shrink_twice(r);
        /* An operation of the old communicator may be on its way. */
        {
                struct operation o = {.what = ALL_REDUCE,
                                      .type = ncclFloat32,
                                      .count = 3000,
                                      .seed = 3,
                                      .comm = r->comm,
                                      .rank = r->rank,
                                      .n = r->n,
                                      .stream = r->stream[1]};

                operation_prepare(&o);
                operation_call(&o);
                try_without(r, MASK(r->n - 1));
                operation_check(&o);
                operation_free(&o);
        }
        /* The old communicator serves all ranks, of which some called more often than others. */
        try_comm(r, r->comm, r->rank, r->n);
        if (r->rank != r->n - 1)
                try_without(r, MASK(r->n - 1));
        at("split after shrinks");
        NCCL(nccl.CommSplit(r->comm, 0, -r->rank, &comm, NULL));
        try_comm(r, comm, r->n - 1 - r->rank, r->n);
        NCCL(nccl.CommDestroy(comm));
}
