/* sync.c: owns votes, shuffles and barriers, in which lanes act together, and the special
 * registers. It must never let a lane pass before all lanes that it names have arrived. */
#include "sim/ptx/internal.h"

#include <errno.h>

#include "base/clock.h"

static uint32_t live(const struct warp *w)
{
        return w->exists & ~w->exited;
}

/* Splits off the lanes whose guard is false: they continue after the instruction. */
static void leave_unguarded(struct warp *w)
{
        uint32_t others = w->current.mask & ~w->mask;

        if (others)
                warp_add(w, w->current.frame, w->current.pc + 1, others, FRAGMENT_READY, 0);
        w->current.mask = w->mask;
        w->limit = NO_INDEX;
}

static bool waits_here(const struct warp *w, const struct fragment *f)
{
        return f->state == FRAGMENT_WARP_WAIT && f->frame == w->current.frame &&
               f->pc == w->current.pc;
}

/* Joins the lanes that wait at this instruction. Reduces w->mask to the lanes whose named members
 * have all arrived; the other lanes wait. elsewhere: lanes that count as arrived although they are
 * at another instruction. Returns false if no lane can continue. */
static bool gather(struct warp *w, uint32_t members_slot, uint32_t elsewhere)
{
        const uint32_t *members = slot(w, members_slot);
        uint32_t here, ready = 0;

        leave_unguarded(w);
        for (uint32_t i = 0; i < w->fragments_n;) {
                if (waits_here(w, &w->fragment[i])) {
                        w->current.mask |= w->fragment[i].mask;
                        w->fragment[i] = w->fragment[--w->fragments_n];
                } else {
                        i++;
                }
        }
        here = w->current.mask;
        for (uint32_t m = here; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);

                if (!(members[lane] & live(w) & ~here & ~elsewhere))
                        ready |= 1U << lane;
        }
        if (here & ~ready)
                warp_add(w, w->current.frame, w->current.pc, here & ~ready, FRAGMENT_WARP_WAIT, 0);
        w->current.mask = w->mask = ready;
        w->limit = w->fragments_n ? 0 : NO_INDEX; /* other fragments may come first: select again */
        w->yield = !ready;
        return ready != 0;
}

void warp_sync(struct warp *w, const struct ptx_insn *in)
{
        const struct ptx_insn *code = w->run->module->insn;
        uint32_t elsewhere = 0, members = 0;

        /* Lanes on diverged paths may wait for each other at different bar.warp.sync. */
        for (uint32_t i = 0; i < w->fragments_n; i++)
                if (w->fragment[i].state == FRAGMENT_WARP_WAIT &&
                    code[w->fragment[i].pc].op == OP_SYNC_WARP)
                        elsewhere |= w->fragment[i].mask;
        if (!gather(w, in->r[0], elsewhere))
                return;
        for (uint32_t m = w->mask; m; m &= m - 1)
                members |= ((const uint32_t *)slot(w, in->r[0]))[__builtin_ctz(m)];
        for (uint32_t i = 0; i < w->fragments_n; i++) {
                struct fragment *f = &w->fragment[i];

                if (f->state == FRAGMENT_WARP_WAIT && (f->mask & members) &&
                    code[f->pc].op == OP_SYNC_WARP && f->pc != w->current.pc) {
                        f->state = FRAGMENT_READY;
                        f->pc++;
                }
        }
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Operand c of shfl.sync contains the segment mask and the clamp (PTX ISA, "shfl.sync"). */
void warp_shuffle(struct warp *w, const struct ptx_insn *in)
{
        uint32_t *d, value[WARP_LANES], inside = 0;
        const uint32_t *a, *b, *c;

        if (!gather(w, in->r[5], 0))
                return;
        d = slot(w, in->r[0]);
        a = slot(w, in->r[2]);
        b = slot(w, in->r[3]);
        c = slot(w, in->r[4]);
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint32_t clamp = c[lane] & 31, segment = c[lane] >> 8 & 31, by = b[lane] & 31;
                uint32_t most = (lane & segment) | (clamp & ~segment), least = lane & segment;
                int32_t from;
                bool in_range;

                switch (in->sub) {
                case SHUFFLE_UP:
                        from = (int32_t)lane - (int32_t)by;
                        in_range = from >= (int32_t)most;
                        break;
                case SHUFFLE_DOWN:
                        from = (int32_t)(lane + by);
                        in_range = from <= (int32_t)most;
                        break;
                case SHUFFLE_BFLY:
                        from = (int32_t)(lane ^ by);
                        in_range = from <= (int32_t)most;
                        break;
                default:
                        from = (int32_t)(least | (by & ~segment));
                        in_range = from <= (int32_t)most;
                }
                value[lane] = a[in_range ? from : (int32_t)lane];
                inside |= in_range ? 1U << lane : 0;
        }
        for (uint32_t m = w->mask; m; m &= m - 1)
                d[__builtin_ctz(m)] = value[__builtin_ctz(m)];
        if (in->r[1] != NO_SLOT) {
                uint32_t *p = slot_pred(w, in->r[1]);

                *p = (*p & ~w->mask) | inside;
        }
}

void warp_vote(struct warp *w, const struct ptx_insn *in)
{
        const uint32_t *members;
        uint32_t p, truth = 0;

        if (!gather(w, in->r[2], 0))
                return;
        members = slot(w, in->r[2]);
        p = *slot_pred(w, in->r[1]);
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint32_t group = members[lane] & w->mask, yes = p & group;
                bool t = in->sub == VOTE_ALL   ? yes == group
                         : in->sub == VOTE_ANY ? yes != 0
                                               : yes == 0 || yes == group;

                if (in->sub == VOTE_BALLOT)
                        ((uint32_t *)slot(w, in->r[0]))[lane] = yes;
                else
                        truth |= t ? 1U << lane : 0;
        }
        if (in->sub != VOTE_BALLOT) {
                uint32_t *d = slot_pred(w, in->r[0]);

                *d = (*d & ~w->mask) | truth;
        }
}

void warp_match(struct warp *w, const struct ptx_insn *in)
{
        uint32_t result[WARP_LANES], all = 0;
        const uint32_t *members;

        if (!gather(w, in->r[3], 0))
                return;
        members = slot(w, in->r[3]);
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint32_t group = members[lane] & w->mask, same = 0;

                for (uint32_t g = group; g; g &= g - 1) {
                        unsigned other = (unsigned)__builtin_ctz(g);
                        const uint64_t *v64 = slot(w, in->r[2]);
                        const uint32_t *v32 = slot(w, in->r[2]);

                        if (in->size == 8 ? v64[other] == v64[lane] : v32[other] == v32[lane])
                                same |= 1U << other;
                }
                result[lane] = in->sub && same != group ? 0 : same;
                all |= same == group ? 1U << lane : 0;
        }
        for (uint32_t m = w->mask; m; m &= m - 1)
                ((uint32_t *)slot(w, in->r[0]))[__builtin_ctz(m)] = result[__builtin_ctz(m)];
        if (in->r[1] != NO_SLOT) {
                uint32_t *p = slot_pred(w, in->r[1]);

                *p = (*p & ~w->mask) | all;
        }
}

static uint32_t combine(unsigned kind, bool sign, uint32_t a, uint32_t b)
{
        switch (kind) {
        case ATOMIC_ADD:
                return a + b;
        case ATOMIC_MIN:
                return sign ? (uint32_t)MIN((int32_t)a, (int32_t)b) : MIN(a, b);
        case ATOMIC_MAX:
                return sign ? (uint32_t)MAX((int32_t)a, (int32_t)b) : MAX(a, b);
        case ATOMIC_AND:
                return a & b;
        case ATOMIC_OR:
                return a | b;
        default:
                return a ^ b;
        }
}

void warp_redux(struct warp *w, const struct ptx_insn *in)
{
        uint32_t result[WARP_LANES];
        const uint32_t *members, *a;

        if (!gather(w, in->r[2], 0))
                return;
        a = slot(w, in->r[1]);
        members = slot(w, in->r[2]);
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint32_t group = members[lane] & w->mask & ~(1U << lane), r = a[lane];

                for (; group; group &= group - 1)
                        r = combine(in->sub, type_is(in->type, 's'), r, a[__builtin_ctz(group)]);
                result[lane] = r;
        }
        for (uint32_t m = w->mask; m; m &= m - 1)
                ((uint32_t *)slot(w, in->r[0]))[__builtin_ctz(m)] = result[__builtin_ctz(m)];
}

void warp_elect(struct warp *w, const struct ptx_insn *in)
{
        const uint32_t *members;
        uint32_t chosen = 0;

        if (!gather(w, in->r[2], 0))
                return;
        members = slot(w, in->r[2]);
        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint32_t group = (members[lane] & w->mask) | 1U << lane;
                unsigned leader = (unsigned)__builtin_ctz(group);

                if (in->r[0] != NO_SLOT)
                        ((uint32_t *)slot(w, in->r[0]))[lane] = leader;
                chosen |= leader == lane ? 1U << lane : 0;
        }
        if (in->r[1] != NO_SLOT) {
                uint32_t *p = slot_pred(w, in->r[1]);

                *p = (*p & ~w->mask) | chosen;
        }
}

void warp_activemask(struct warp *w, const struct ptx_insn *in)
{
        uint32_t *d = slot(w, in->r[0]);

        for (uint32_t m = w->mask; m; m &= m - 1)
                d[__builtin_ctz(m)] = w->mask;
}

/* True if all expected threads have arrived. The expected number is in whole warps, so absent and
 * exited lanes of an arrived warp count as arrived. */
static bool barrier_complete(const struct block *b, const struct barrier *bar,
                             uint32_t *ret_threads)
{
        uint32_t threads = 0, counted = 0;
        bool all = true;

        for (uint32_t i = 0; i < b->warps_n; i++) {
                uint32_t arrived = bar->arrived[i], alive = live(b->warp[i]);

                threads += (uint32_t)__builtin_popcount(arrived);
                if (arrived)
                        counted += (uint32_t)__builtin_popcount(arrived | ~alive);
                all = all && !(alive & ~arrived);
        }
        *ret_threads = threads;
        return bar->expected ? counted >= bar->expected : all && threads;
}

static void barrier_result(const struct ptx_insn *in, const struct barrier *bar, uint32_t threads,
                           const struct fragment *f)
{
        bool truth = in->sub == BARRIER_AND ? bar->ones == threads : bar->ones != 0;
        uint32_t *d;

        if (in->sub < BARRIER_POPC)
                return;
        d = (uint32_t *)(f->frame->regs + in->r[0]);
        if (in->sub == BARRIER_POPC)
                for (uint32_t m = f->mask; m; m &= m - 1)
                        d[__builtin_ctz(m)] = bar->ones;
        else
                *d = (*d & ~f->mask) | (truth ? f->mask : 0);
}

static void barrier_check(struct block *b, uint32_t id)
{
        const struct ptx_insn *code = b->run->module->insn;
        struct barrier *bar = &b->barrier[id];
        uint32_t threads;

        if (!bar->active || !barrier_complete(b, bar, &threads))
                return;
        for (uint32_t i = 0; i < b->warps_n; i++) {
                struct warp *w = b->warp[i];

                for (uint32_t k = 0; k < w->fragments_n; k++) {
                        struct fragment *f = &w->fragment[k];

                        if (f->state != FRAGMENT_BARRIER || f->barrier != id)
                                continue;
                        barrier_result(&code[f->pc], bar, threads, f);
                        f->state = FRAGMENT_READY;
                        f->barrier = 0;
                        f->pc++;
                }
                bar->arrived[i] = 0;
        }
        bar->active = false;
        bar->ones = bar->expected = 0;
        b->barriers_active--;
}

void block_check_barriers(struct block *b)
{
        for (uint32_t i = 0; i < BARRIERS_MAX; i++)
                barrier_check(b, i);
}

void warp_barrier(struct warp *w, const struct ptx_insn *in)
{
        const uint32_t *id = slot(w, in->r[1]);
        unsigned first = (unsigned)__builtin_ctz(w->mask);
        uint32_t same = 0, expected = 0;
        struct barrier *bar;

        leave_unguarded(w);
        for (uint32_t m = w->mask; m; m &= m - 1)
                same |= id[__builtin_ctz(m)] == id[first] ? 1U << __builtin_ctz(m) : 0;
        if (in->r[2] != NO_SLOT)
                expected = ((const uint32_t *)slot(w, in->r[2]))[first];
        if (id[first] >= BARRIERS_MAX || (in->r[2] != NO_SLOT && expected == 0) ||
            expected > align_up(w->run->threads, WARP_LANES)) {
                warp_fail(w, in, first, id[first] >= BARRIERS_MAX ? -EINVAL : -EDEADLK,
                          "barrier %u for %u threads", id[first], expected);
                return;
        }
        if (w->mask & ~same)
                warp_add(w, w->current.frame, w->current.pc, w->mask & ~same, FRAGMENT_READY, 0);
        bar = &w->block->barrier[id[first]];
        w->block->barriers_active += !bar->active;
        bar->active = true;
        bar->expected = expected;
        bar->arrived[w->index] |= same;
        if (in->sub >= BARRIER_POPC)
                bar->ones += (uint32_t)__builtin_popcount(*slot_pred(w, in->r[3]) & same);
        if (in->sub == BARRIER_ARRIVE)
                warp_add(w, w->current.frame, w->current.pc + 1, same, FRAGMENT_READY, 0);
        else
                warp_add(w, w->current.frame, w->current.pc, same, FRAGMENT_BARRIER, id[first]);
        w->current.mask = 0;
        w->yield = true;
        barrier_check(w->block, id[first]);
}

void warp_fence(struct warp *w, const struct ptx_insn *in)
{
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Ends the warp's step. run.c sleeps when every warp is asleep. */
void warp_nanosleep(struct warp *w, const struct ptx_insn *in)
{
        const uint32_t *ns = slot(w, in->r[0]);

        for (uint32_t m = w->mask; m; m &= m - 1)
                w->run->sleep_ns = MIN(w->run->sleep_ns, ns[__builtin_ctz(m)]);
        w->asleep = true;
        w->yield = true;
        w->current.pc++;
}

void warp_trap(struct warp *w, const struct ptx_insn *in)
{
        warp_fail(w, in, (unsigned)__builtin_ctz(w->mask), -EILSEQ, "trap");
}

void warp_isspace(struct warp *w, const struct ptx_insn *in)
{
        static const uint64_t window[] = {[SPACE_SHARED] = WINDOW_SHARED,
                                          [SPACE_LOCAL] = WINDOW_LOCAL,
                                          [SPACE_PARAM] = WINDOW_PARAM};
        uint32_t *d = slot_pred(w, in->r[0]), truth = 0;
        const uint64_t *a = slot(w, in->r[1]);

        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint64_t top = a[lane] & WINDOW_MASK;
                bool t = top == WINDOW_SHARED || top == WINDOW_LOCAL || top == WINDOW_PARAM
                                 ? in->space >= SPACE_SHARED && top == window[in->space]
                                 : in->space == SPACE_GLOBAL;

                truth |= t ? 1U << lane : 0;
        }
        *d = (*d & ~w->mask) | truth;
}

static uint64_t timer(const struct run *run)
{
        return run->memory->globaltimer_ns ? run->memory->globaltimer_ns(run->memory->context)
                                           : clock_now_ns();
}

/* A warp that reads the time so often in a step is waiting. Going on would only take the processor
 * from other programs, so its step ends as in nanosleep. */
static void read_time(struct warp *w)
{
        w->run->timer_reads++;
        if (++w->timer_reads < TIMER_READS)
                return;
        w->run->sleep_ns = MIN(w->run->sleep_ns, TIMER_NAP_NS);
        w->asleep = true;
        w->yield = true;
        w->current.pc++;
}

static void put32(const struct warp *w, const struct ptx_insn *in, uint32_t v)
{
        uint32_t *d = slot(w, in->r[0]);

        for (uint32_t m = w->mask; m; m &= m - 1)
                d[__builtin_ctz(m)] = v;
}

static void put64(const struct warp *w, const struct ptx_insn *in, uint64_t v)
{
        uint64_t *d = slot(w, in->r[0]);

        for (uint32_t m = w->mask; m; m &= m - 1)
                d[__builtin_ctz(m)] = v;
}

static void lane_special(const struct warp *w, const struct ptx_insn *in)
{
        uint32_t *d = slot(w, in->r[0]);

        for (uint32_t m = w->mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint32_t bit = 1U << lane;

                switch (in->sub) {
                case SPECIAL_LANEID:
                        d[lane] = lane;
                        break;
                case SPECIAL_LANEMASK_EQ:
                        d[lane] = bit;
                        break;
                case SPECIAL_LANEMASK_LT:
                        d[lane] = bit - 1;
                        break;
                case SPECIAL_LANEMASK_LE:
                        d[lane] = bit | (bit - 1);
                        break;
                case SPECIAL_LANEMASK_GT:
                        d[lane] = ~(bit | (bit - 1));
                        break;
                case SPECIAL_LANEMASK_GE:
                        d[lane] = ~(bit - 1);
                        break;
                default:
                        d[lane] = w->run->tid[w->index][in->sub - SPECIAL_TID_X][lane];
                }
        }
}

/* Reads a special register. Each thread block is a cluster, there is one multiprocessor, and a
 * clock tick is a nanosecond. */
void warp_special(struct warp *w, const struct ptx_insn *in)
{
        struct run *run = w->run;
        const struct ptx_launch *l = run->launch;

        switch (in->sub) {
        case SPECIAL_NTID_X:
        case SPECIAL_NTID_Y:
        case SPECIAL_NTID_Z:
                put32(w, in, l->block[in->sub - SPECIAL_NTID_X]);
                break;
        case SPECIAL_CTAID_X:
        case SPECIAL_CTAID_Y:
        case SPECIAL_CTAID_Z:
                put32(w, in, w->block->ctaid[in->sub - SPECIAL_CTAID_X]);
                break;
        case SPECIAL_NCTAID_X:
        case SPECIAL_NCTAID_Y:
        case SPECIAL_NCTAID_Z:
                put32(w, in, l->grid[in->sub - SPECIAL_NCTAID_X]);
                break;
        case SPECIAL_WARPID:
                put32(w, in, w->index);
                break;
        case SPECIAL_NWARPID:
                put32(w, in, run->warps);
                break;
        case SPECIAL_NSMID:
        case SPECIAL_CLUSTER_ONE_X:
        case SPECIAL_CLUSTER_ONE_Y:
        case SPECIAL_CLUSTER_ONE_Z:
        case SPECIAL_CLUSTER_SIZE:
                put32(w, in, 1);
                break;
        case SPECIAL_SMID:
        case SPECIAL_CLUSTER_ZERO_X:
        case SPECIAL_CLUSTER_ZERO_Y:
        case SPECIAL_CLUSTER_ZERO_Z:
        case SPECIAL_CLUSTER_RANK:
                put32(w, in, 0);
                break;
        case SPECIAL_ENVREG1:
                put32(w, in, (uint32_t)(WINDOW_GRID >> 32));
                break;
        case SPECIAL_ENVREG2:
                put32(w, in, (uint32_t)WINDOW_GRID);
                break;
        case SPECIAL_GRIDID:
                put64(w, in, 1);
                break;
        case SPECIAL_CLOCK:
        case SPECIAL_GLOBALTIMER_LO:
                put32(w, in, (uint32_t)timer(run));
                read_time(w);
                break;
        case SPECIAL_CLOCK_HI:
        case SPECIAL_GLOBALTIMER_HI:
                put32(w, in, (uint32_t)(timer(run) >> 32));
                break;
        case SPECIAL_CLOCK64:
        case SPECIAL_GLOBALTIMER:
                put64(w, in, timer(run));
                read_time(w);
                break;
        case SPECIAL_DYNAMIC_SMEM_SIZE:
                put32(w, in, l->dynamic_shared_bytes);
                break;
        case SPECIAL_TOTAL_SMEM_SIZE:
                put32(w, in, run->shared_bytes);
                break;
        default:
                lane_special(w, in);
        }
}
