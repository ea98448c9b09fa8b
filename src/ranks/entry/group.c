/* group.c: owns the group of each thread. */
#include "ranks/entry/group.h"

#include <stdlib.h>

#include "base/macros.h"
#include "ranks/real/real_nccl.h"

struct item {
        struct comm *comm;
        CUstream stream, program_stream; /* differ if the communicator goes aside */
        struct steps_call call;
        bool is_done;
};

static __thread struct {
        unsigned depth, real_depth;
        ncclResult_t error; /* error of a call that could not be collected */
        struct item *items;
        unsigned n, room;
        struct comm_plan plans[MEET_RANKS_MAX];
        ncclComm_t *made[MEET_RANKS_MAX];
        unsigned n_plans;
        struct comm_child children[MEET_RANKS_MAX];
        ncclComm_t *made_children[MEET_RANKS_MAX];
        unsigned n_children;
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
        group.items[group.n++] = (struct item){c, stream, stream, *call, false};
        return ncclSuccess;
}

ncclResult_t group_add(struct comm *c, const struct steps_call *call, CUstream stream)
{
        return group.depth > 0 ? collect(c, call, stream) : comm_run(c, call, 1, &stream);
}

static void forget_plans(void)
{
        for (unsigned i = 0; i < group.n_plans; i++)
                free(group.plans[i].config);
        group.n_plans = 0;
}

static ncclResult_t make_plans(void)
{
        struct comm *made[MEET_RANKS_MAX];
        const unsigned n = group.n_plans;
        ncclResult_t result;

        if (n == 0)
                return ncclSuccess;
        result = comm_make(group.plans, n, made);
        for (unsigned i = 0; i < n; i++)
                *group.made[i] = result == ncclSuccess ? comm_handle(made[i]) : NULL;
        forget_plans();
        return result;
}

ncclResult_t group_make(const struct comm_plan *plan, ncclComm_t *ret)
{
        if (group.n_plans == MEET_RANKS_MAX)
                return comm_fail(ncclInvalidUsage, "more than %d communicators in a group",
                                 MEET_RANKS_MAX);
        group.plans[group.n_plans] = *plan;
        if (comm_copy_config(&group.plans[group.n_plans]) < 0)
                return comm_fail(ncclSystemError, "no memory");
        group.made[group.n_plans++] = ret;
        return group.depth > 0 ? ncclSuccess : make_plans();
}

static ncclResult_t make_children(void)
{
        struct comm *made[MEET_RANKS_MAX];
        const unsigned n = group.n_children;
        ncclResult_t result;

        group.n_children = 0;
        if (n == 0)
                return ncclSuccess;
        result = comm_make_children(group.children, n, made);
        for (unsigned i = 0; i < n; i++)
                *group.made_children[i] = made[i] ? comm_handle(made[i]) : NULL;
        return result;
}

ncclResult_t group_make_child(const struct comm_child *child, ncclComm_t *ret)
{
        if (group.n_children == MEET_RANKS_MAX)
                return comm_fail(ncclInvalidUsage, "more than %d communicators in a group",
                                 MEET_RANKS_MAX);
        group.children[group.n_children] = *child;
        group.made_children[group.n_children++] = ret;
        return group.depth > 0 ? ncclSuccess : make_children();
}

/* The ranks may make the calls of a group in different orders. So all collectives of a communicator
 * come first, then all its sends and receives. */
static ncclResult_t run_of(struct comm *c, struct item *items, unsigned n, struct steps_call *calls,
                           CUstream *streams)
{
        ncclResult_t result = ncclSuccess;
        unsigned m = 0;

        for (unsigned i = 0; i < n && result == ncclSuccess; i++) {
                if (items[i].comm != c)
                        continue;
                items[i].is_done = true;
                if (is_point(&items[i].call)) {
                        calls[m] = items[i].call;
                        streams[m++] = items[i].stream;
                } else {
                        result = comm_run(c, &items[i].call, 1, &items[i].stream);
                }
        }
        return m > 0 && result == ncclSuccess ? comm_run(c, calls, m, streams) : result;
}

/* True if another rank of the communicator comes first in the group and uses this stream, such as
 * the default stream of two devices of one card. */
static bool is_taken(const struct item *items, const struct item *item)
{
        for (const struct item *i = items; i->comm != item->comm; i++)
                if (i->program_stream == item->program_stream &&
                    comm_is_beside(i->comm, item->comm))
                        return true;
        return false;
}

static ncclResult_t prepare(const struct item *items, unsigned n)
{
        ncclResult_t result = ncclSuccess;

        for (unsigned i = 0; i < n && result == ncclSuccess; i++)
                result = comm_prepare(items[i].comm, &items[i].call);
        return result;
}

static ncclResult_t go_aside(struct item *items, unsigned n)
{
        ncclResult_t result = ncclSuccess;

        for (unsigned i = 0; i < n && result == ncclSuccess; i++)
                if (is_taken(items, &items[i]))
                        result = comm_go_aside(items[i].comm, items[i].stream, &items[i].stream);
        return result;
}

static ncclResult_t come_back(struct item *items, unsigned n)
{
        ncclResult_t result = ncclSuccess;

        for (unsigned i = 0; i < n && result == ncclSuccess; i++)
                if (items[i].stream != items[i].program_stream)
                        result = comm_come_back(items[i].comm, items[i].program_stream);
        return result;
}

/* The ranks may name the communicators of a group in different orders, and one stream runs one
 * after the other. So all ranks use the order of the names, as NCCL does. The calls of a
 * communicator keep their order. */
static void sort_by_communicator(struct item *items, unsigned n)
{
        for (unsigned i = 1; i < n; i++) {
                const struct item item = items[i];
                unsigned at = i;

                while (at > 0 && comm_is_before(item.comm, items[at - 1].comm)) {
                        items[at] = items[at - 1];
                        at--;
                }
                items[at] = item;
        }
}

static ncclResult_t run_items(struct item *items, unsigned n)
{
        struct steps_call *calls = n ? calloc(n, sizeof(*calls)) : NULL;
        CUstream *streams = n ? calloc(n, sizeof(*streams)) : NULL;
        ncclResult_t result = ncclSuccess;

        if (n && (!calls || !streams))
                result = comm_fail(ncclSystemError, "no memory");
        sort_by_communicator(items, n);
        if (result == ncclSuccess)
                result = prepare(items, n);
        if (result == ncclSuccess)
                result = go_aside(items, n);
        for (unsigned i = 0; i < n && result == ncclSuccess; i++)
                if (!items[i].is_done)
                        result = run_of(items[i].comm, items + i, n - i, calls, streams);
        if (result == ncclSuccess)
                result = come_back(items, n);
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
                result = make_children();
        if (result == ncclSuccess)
                result = run_items(items, n);
        forget_plans();
        group.n_children = 0;
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
        forget_plans();
        group.n = group.n_children = 0;
        group.error = ncclSuccess;
}
