/* child.c: owns how communicators are made of another one's ranks. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ranks/comm/comm_state.h"

/* How often a communicator was shrunk with the same ranks excluded. These ranks do not call
 * ncclCommShrink(), so they do not know of it. */
struct comm_shrinks {
        struct comm_shrinks *next;
        uint64_t excluded, n;
};

void comm_forget_shrinks(struct comm *c)
{
        while (c->shrinks) {
                struct comm_shrinks *s = c->shrinks;

                c->shrinks = s->next;
                free(s);
        }
}

static struct comm_shrinks *shrinks_without(struct comm *c, uint64_t excluded)
{
        struct comm_shrinks *s;

        for (s = c->shrinks; s && s->excluded != excluded; s = s->next)
                continue;
        if (s)
                return s;
        s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        s->excluded = excluded;
        s->next = c->shrinks;
        return c->shrinks = s;
}

/* ---- what a program asks for ---- */

static ncclResult_t not_ready(const char *function)
{
        return comm_fail(ncclInvalidArgument, "%s: the communicator is not made yet", function);
}

ncclResult_t comm_ask_split(struct comm *c, int color, int key, struct comm_child *ret)
{
        if (comm_error(c) == ncclInProgress)
                return not_ready("ncclCommSplit");
        if (color < NCCL_SPLIT_NOCOLOR)
                return comm_fail(ncclInvalidArgument, "ncclCommSplit: no color %d", color);
        *ret = (struct comm_child){.parent = c, .color = color, .key = key};
        return ncclSuccess;
}

ncclResult_t comm_ask_shrink(struct comm *c, const int *excluded, int n_excluded, int flags,
                             struct comm_child *ret)
{
        if (comm_error(c) == ncclInProgress)
                return not_ready("ncclCommShrink");
        if (!excluded || n_excluded < 1)
                return comm_fail(ncclInvalidArgument, "ncclCommShrink: no rank to exclude");
        *ret = (struct comm_child){.parent = c};
        for (int i = 0; i < n_excluded; i++) {
                if (excluded[i] < 0 || excluded[i] >= c->n || excluded[i] == c->rank)
                        return comm_fail(ncclInvalidArgument,
                                         "ncclCommShrink: no rank %d to exclude", excluded[i]);
                ret->excluded |= UINT64_C(1) << excluded[i];
        }
        if (flags & NCCL_SHRINK_ABORT)
                comm_end_operations(c);
        return ncclSuccess;
}

/* ---- making ---- */

/* All ranks of a child derive the same name for it. */
static void child_name(const struct comm *c, uint64_t number, uint64_t excluded, uint32_t color,
                       uint8_t ret[static MEET_NAME])
{
        const uint64_t what[3] = {number, excluded, color};
        uint64_t halves[2];

        halves[0] = hash_add(hash_add(HASH_BASIS, c->name, MEET_NAME), what, sizeof(what));
        halves[1] = hash_add(hash_add(halves[0], what, sizeof(what)), c->name, MEET_NAME);
        (void)memcpy(ret, halves, MEET_NAME);
}

static ncclResult_t make(struct comm *c, struct comm_plan *plan, struct comm **ret)
{
        int r = plan->rank == 0 && plan->n > 1 ? meet_serve(plan->name) : 0;

        if (r < 0)
                return comm_fail(ncclSystemError, "cannot listen: %s", strerror(-r));
        plan->must_wait = true;
        plan->parent = c;
        plan->device = c->device;
        plan->context = c->context;
        return comm_make(plan, 1, ret);
}

static ncclResult_t split(struct comm *c, const struct comm_child *child, struct comm **ret)
{
        struct {
                int32_t color, key;
        } mine = {child->color, child->key}, all[MEET_RANKS_MAX] = {{child->color, child->key}};
        struct comm_plan plan = {.n = 0};
        int r = 0;

        if (c->n > 1)
                r = meet_all(c->meet, &mine, sizeof(mine), NULL, 0, all, NULL);
        if (r < 0)
                return comm_meeting_failed(c, r);
        c->children++;
        if (child->color == NCCL_SPLIT_NOCOLOR)
                return ncclSuccess;
        for (int i = 0; i < c->n; i++) {
                if (all[i].color != child->color)
                        continue;
                plan.n++;
                if (all[i].key < child->key || (i < c->rank && all[i].key == child->key))
                        plan.rank++;
        }
        child_name(c, c->children, 0, (uint32_t)child->color, plan.name);
        return make(c, &plan, ret);
}

static ncclResult_t shrink(struct comm *c, uint64_t excluded, struct comm **ret)
{
        struct comm_shrinks *before = shrinks_without(c, excluded);
        struct comm_plan plan = {.n = 0};

        if (!before)
                return comm_fail(ncclSystemError, "no memory");
        for (int i = 0; i < c->n; i++) {
                if (excluded >> i & 1)
                        continue;
                plan.n++;
                plan.rank += i < c->rank;
        }
        child_name(c, before->n++, excluded, 0, plan.name);
        return make(c, &plan, ret);
}

/* A shrink also works on a communicator that has failed. */
static ncclResult_t make_child(struct comm *c, const struct comm_child *child, struct comm **ret)
{
        ncclResult_t result = comm_begin_use(c);

        if (child->excluded && result != ncclInvalidArgument)
                result = shrink(c, child->excluded, ret);
        else if (result == ncclSuccess)
                result = split(c, child, ret);
        comm_end_use(c);
        return result;
}

/* ---- several at once ---- */

struct children {
        const struct comm_child *asked;
        struct comm **made;
        unsigned n;
};

/* Makes the children of one communicator in the order of the calls. what: the struct children of
 * all communicators. */
static ncclResult_t make_row(struct comm *parent, const void *what)
{
        const struct children *all = what;
        ncclResult_t result = ncclSuccess;

        for (unsigned i = 0; i < all->n && result == ncclSuccess; i++)
                if (all->asked[i].parent == parent)
                        result = make_child(parent, &all->asked[i], &all->made[i]);
        return result;
}

/* Finds the parents, each of which gets a thread: they may be ranks of one communicator. */
static unsigned find_rows(const struct children *all, struct comm_task *rows)
{
        unsigned found = 0;

        for (unsigned i = 0; i < all->n; i++) {
                struct comm *parent = all->asked[i].parent;
                unsigned k = 0;

                while (k < found && rows[k].comm != parent)
                        k++;
                if (k == found)
                        rows[found++] =
                                (struct comm_task){.comm = parent, .run = make_row, .what = all};
        }
        return found;
}

ncclResult_t comm_make_children(const struct comm_child *children, unsigned n, struct comm **ret)
{
        const struct children all = {children, ret, n};
        struct comm_task rows[MEET_RANKS_MAX];
        ncclResult_t result;

        for (unsigned i = 0; i < n; i++)
                ret[i] = NULL;
        result = comm_run_tasks(rows, find_rows(&all, rows));
        for (unsigned i = 0; i < n && result != ncclSuccess; i++)
                if (ret[i]) {
                        comm_drop(ret[i]);
                        ret[i] = NULL;
                }
        return result;
}
