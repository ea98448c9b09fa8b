/* group.c: owns the group of each thread. */
#include "ranks/entry/group.h"

#include <stdlib.h>

#include "base/macros.h"
#include "ranks/real/nccl.h"

struct item {
        struct comm *comm;
        CUstream stream;
        struct steps_call call;
};

static __thread struct {
        unsigned depth, real_depth;
        ncclResult_t error; /* of a call that could not be collected */
        struct item *items;
        unsigned n, room;
        struct comm_plan plans[MEET_RANKS_MAX];
        ncclComm_t *made[MEET_RANKS_MAX];
        unsigned n_plans;
} group;

/* The real NCCL has groups of its own, for its communicators. */
void group_start(void)
{
        group.depth++;
        if (comm_any_is_real()) {
                group.real_depth++;
                (void)real_nccl()->ncclGroupStart();
        }
}

static ncclResult_t end_real(void)
{
        if (group.real_depth == 0)
                return ncclSuccess;
        group.real_depth--;
        return real_nccl()->ncclGroupEnd();
}

static bool is_point(const struct steps_call *c)
{
        return c->kind == STEPS_SEND || c->kind == STEPS_RECEIVE;
}

static ncclResult_t collect(struct comm *c, const struct steps_call *call, CUstream stream)
{
        if (group.n == group.room) {
                const unsigned room = MAX(2 * group.room, 16u);
                struct item *more = realloc(group.items, room * sizeof(*more));

                if (!more)
                        return group.error = comm_fail(ncclSystemError, "no memory");
                group.items = more;
                group.room = room;
        }
        group.items[group.n++] = (struct item){c, stream, *call};
        return ncclSuccess;
}

ncclResult_t group_add(struct comm *c, const struct steps_call *call, CUstream stream)
{
        return group.depth > 0 ? collect(c, call, stream) : comm_run(c, call, 1, &stream);
}

static ncclResult_t make_plans(void)
{
        struct comm *made[MEET_RANKS_MAX];
        const unsigned n = group.n_plans;
        ncclResult_t result;

        group.n_plans = 0;
        if (n == 0)
                return ncclSuccess;
        result = comm_make(group.plans, n, made);
        for (unsigned i = 0; i < n; i++)
                *group.made[i] = result == ncclSuccess ? comm_handle(made[i]) : NULL;
        return result;
}

ncclResult_t group_make(const struct comm_plan *plan, ncclComm_t *ret)
{
        if (group.n_plans == MEET_RANKS_MAX)
                return comm_fail(ncclInvalidUsage, "more than %d communicators in a group",
                                 MEET_RANKS_MAX);
        group.plans[group.n_plans] = *plan;
        group.made[group.n_plans++] = ret;
        return group.depth > 0 ? ncclSuccess : make_plans();
}

/* The calls of a group go on at the same time, so their order among the ranks may differ: first all
 * collectives of a communicator, then all its sends and receives. */
static ncclResult_t run_of(struct comm *c, struct item *items, unsigned n, struct steps_call *calls,
                           CUstream *streams)
{
        ncclResult_t result = ncclSuccess;
        unsigned m = 0;

        for (unsigned i = 0; i < n && result == ncclSuccess; i++) {
                if (items[i].comm != c)
                        continue;
                if (is_point(&items[i].call)) {
                        calls[m] = items[i].call;
                        streams[m++] = items[i].stream;
                } else {
                        result = comm_run(c, &items[i].call, 1, &items[i].stream);
                }
                items[i].comm = NULL;
        }
        return m > 0 && result == ncclSuccess ? comm_run(c, calls, m, streams) : result;
}

static ncclResult_t run_items(struct item *items, unsigned n)
{
        struct steps_call *calls = n ? calloc(n, sizeof(*calls)) : NULL;
        CUstream *streams = n ? calloc(n, sizeof(*streams)) : NULL;
        ncclResult_t result = ncclSuccess;

        if (n && (!calls || !streams))
                result = comm_fail(ncclSystemError, "no memory");
        for (unsigned i = 0; i < n && result == ncclSuccess; i++)
                if (items[i].comm)
                        result = run_of(items[i].comm, items + i, n - i, calls, streams);
        free(calls);
        free(streams);
        return result;
}

ncclResult_t group_end(void)
{
        struct item *items;
        ncclResult_t result = group.error, real;
        unsigned n;

        if (group.depth == 0)
                return comm_fail(ncclInvalidUsage, "ncclGroupEnd: no group was started");
        real = end_real();
        if (--group.depth > 0)
                return real;
        items = group.items;
        n = group.n;
        group.items = NULL;
        group.n = group.room = 0;
        group.error = ncclSuccess;
        if (result == ncclSuccess)
                result = make_plans();
        if (result == ncclSuccess)
                result = run_items(items, n);
        group.n_plans = 0;
        free(items);
        return result == ncclSuccess ? real : result;
}

void group_drop(void)
{
        if (group.depth == 0)
                return;
        (void)end_real();
        if (--group.depth > 0) {
                group.error = ncclInvalidUsage;
                return;
        }
        group.n = group.n_plans = 0;
        group.error = ncclSuccess;
}
