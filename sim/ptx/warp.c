/* warp.c: owns the order in which the lanes of a warp run. Lanes at the same instruction form a
 * fragment. The fragment with the deepest call stack runs; if several have the same depth, the one
 * at the lowest address runs. It runs until it reaches the instruction of another fragment. So
 * diverged lanes join where the compiler joined their paths. Regularly another fragment has a turn,
 * so that lanes which wait for each other (locks) make progress. A lane must never be in two
 * fragments. */
#include "sim/ptx/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In a warp that stays diverged, another fragment has a turn now and then. */
#define TURN_EVERY  512 /* instructions between two turns */
#define TURN_BUDGET 128 /* instructions of a turn */

static lane_op *const warp_op[] = {
#define WARP_OP(name, handler) handler,
#include "sim/ptx/warp_ops.def"
};

bool warp_ready(const struct warp *w)
{
        for (uint32_t i = 0; i < w->fragments_n; i++)
                if (w->fragment[i].state == FRAGMENT_READY)
                        return true;
        return false;
}

/* Returns the first instruction after pc at which another fragment of the current frame is ready to
 * run. There the current fragment stops. */
static uint32_t meeting_point(const struct warp *w, uint32_t pc)
{
        uint32_t limit = NO_INDEX;

        for (uint32_t i = 0; i < w->fragments_n; i++) {
                const struct fragment *f = &w->fragment[i];

                if (f->state == FRAGMENT_READY && f->frame == w->current.frame && f->pc > pc)
                        limit = MIN(limit, f->pc);
        }
        return limit;
}

static bool runs_before(const struct fragment *a, const struct fragment *b)
{
        if (a->frame->depth != b->frame->depth)
                return a->frame->depth > b->frame->depth;
        return a->pc < b->pc;
}

/* Takes a fragment out of the list: if forced, the one whose turn it is; otherwise the first in the
 * order of runs_before(). */
static bool warp_select(struct warp *w, bool forced)
{
        uint32_t best = NO_INDEX;

        for (uint32_t n = 0; n < w->fragments_n; n++) {
                uint32_t i = forced ? (w->turn + n) % w->fragments_n : n;

                if (w->fragment[i].state != FRAGMENT_READY)
                        continue;
                if (best == NO_INDEX ||
                    (!forced && runs_before(&w->fragment[i], &w->fragment[best])))
                        best = i;
        }
        if (best == NO_INDEX)
                return false;
        w->current = w->fragment[best];
        w->fragment[best] = w->fragment[--w->fragments_n];
        /* Fragments that a barrier releases may be at the same instruction. */
        for (uint32_t i = 0; i < w->fragments_n;) {
                struct fragment *f = &w->fragment[i];

                if (f->state == FRAGMENT_READY && f->frame == w->current.frame &&
                    f->pc == w->current.pc) {
                        w->current.mask |= f->mask;
                        *f = w->fragment[--w->fragments_n];
                } else {
                        i++;
                }
        }
        w->regs = w->current.frame->regs;
        w->limit = meeting_point(w, w->current.pc);
        w->yield = false;
        return true;
}

static void warp_exit(struct warp *w, uint32_t mask)
{
        w->exited |= mask;
        w->current.mask &= ~mask;
        w->current.pc++;
        w->yield = w->yield || !w->current.mask;
        /* Waiting lanes may have waited for the lanes that exit. */
        for (uint32_t i = 0; i < w->fragments_n; i++)
                if (w->fragment[i].state == FRAGMENT_WARP_WAIT)
                        w->fragment[i].state = FRAGMENT_READY;
        if (w->exited == w->exists)
                w->block->warps_left--;
        if (w->block->barriers_active)
                block_check_barriers(w->block);
        w->yield = true;
}

static void branch_diverged(struct warp *w, uint32_t taken, uint32_t target)
{
        uint32_t next = w->current.pc + 1, others = w->current.mask & ~taken;
        uint32_t low = MIN(next, target), high = MAX(next, target);

        if (next == target) {
                w->current.pc = next;
                return;
        }
        warp_add(w, w->current.frame, high, high == target ? taken : others, FRAGMENT_READY, 0);
        w->current.mask = low == target ? taken : others;
        w->current.pc = low;
        w->limit = meeting_point(w, low);
        /* If another fragment is already at this instruction, stop, so that the two are joined. */
        for (uint32_t i = 0; i < w->fragments_n; i++)
                if (w->fragment[i].frame == w->current.frame && w->fragment[i].pc == low)
                        w->yield = true;
}

/* Executes a branch by table: makes a fragment for each target. */
static void branch_table(struct warp *w, const struct ptx_insn *in, uint32_t mask)
{
        const struct branch_table *t = &w->run->module->table[in->cache];
        const uint32_t *index = slot(w, in->r[0]);
        uint32_t others = w->current.mask & ~mask;

        for (uint32_t m = mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);

                if (index[lane] >= t->targets_n) {
                        warp_fail(w, in, lane, -EFAULT, "index %u of %u branch targets",
                                  index[lane], t->targets_n);
                        return;
                }
                warp_add(w, w->current.frame, t->target[index[lane]], 1U << lane, FRAGMENT_READY,
                         0);
        }
        if (others)
                warp_add(w, w->current.frame, w->current.pc + 1, others, FRAGMENT_READY, 0);
        w->current.mask = 0;
        w->yield = true;
}

/* Executes an operation that needs the warp. Sets current.pc to the fragment's next instruction. */
static void warp_control(struct warp *w, const struct ptx_insn *in, uint32_t mask)
{
        switch (in->op) {
        case OP_BRA:
                branch_diverged(w, mask, (uint32_t)in->offset);
                break;
        case OP_BRX:
                branch_table(w, in, mask);
                break;
        case OP_CALL:
        case OP_CALL_INDIRECT:
                frame_call(w, in, mask);
                break;
        case OP_RET:
                frame_return(w, in, mask);
                break;
        case OP_EXIT:
                warp_exit(w, mask);
                break;
        default:
                w->mask = mask;
                warp_op[in->op - OP_LANES_END](w, in);
                /* A fragment that could not pass a synchronization keeps its pc. */
                if (!w->yield)
                        w->current.pc++;
        }
}

static uint32_t run_fragment(struct warp *w, lane_op *const *lanes, uint32_t budget, bool forced)
{
        const struct ptx_insn *code = w->run->module->insn;
        uint32_t pc = w->current.pc;

        while (budget) {
                const struct ptx_insn *in = &code[pc];
                uint32_t mask = w->current.mask;

                budget--;
                if (in->guard != NO_SLOT)
                        mask &= *slot_pred(w, in->guard) ^ in->guard_not;
                if (unlikely(!mask)) {
                        pc++;
                } else if (likely(in->op < OP_LANES_END)) {
                        w->mask = mask;
                        lanes[in->op](w, in);
                        pc++;
                } else if (in->op == OP_BRA && mask == w->current.mask) {
                        pc = (uint32_t)in->offset;
                        if (forced)
                                w->limit = meeting_point(w, pc);
                } else {
                        w->current.pc = pc;
                        warp_control(w, in, mask);
                        pc = w->current.pc;
                        if (w->yield)
                                break;
                }
                if (pc >= w->limit)
                        break;
        }
        w->current.pc = pc;
        if (w->current.mask)
                warp_add(w, w->current.frame, pc, w->current.mask, FRAGMENT_READY, 0);
        return budget;
}

uint32_t warp_step(struct warp *w, lane_op *const *lanes, uint32_t budget)
{
        /* Fragments that the last step left diverged may wait for each other. */
        bool apart = w->fragments_n > 1;

        w->asleep = false;
        w->timer_reads = 0;
        while (budget && !w->run->failed && !w->asleep) {
                uint32_t share = apart ? MIN(budget, (uint32_t)TURN_BUDGET) : 0, used;

                budget -= share;
                w->turn++;
                if (share && warp_select(w, true))
                        budget += run_fragment(w, lanes, share, true);
                share = apart ? MIN(budget, (uint32_t)TURN_EVERY) : budget;
                for (used = share; used && !w->run->failed && !w->asleep;) {
                        if (!warp_select(w, false))
                                return budget - (share - used);
                        used = run_fragment(w, lanes, used, false);
                }
                budget -= share - used;
        }
        return budget;
}

int warp_start(struct run *run, struct block *block, uint32_t index)
{
        struct warp *w = run->free_warps;
        uint32_t lanes = MIN(run->threads - index * WARP_LANES, (uint32_t)WARP_LANES);
        int r;

        if (w) {
                run->free_warps = w->next_free;
        } else {
                w = calloc(1, sizeof(*w));
                if (!w)
                        return -ENOMEM;
                w->run = run;
                r = frame_new(w, NULL, run->kernel, 0, &w->root);
                if (r < 0) {
                        free(w);
                        return r;
                }
        }
        w->block = block;
        w->index = index;
        w->exists = lanes == WARP_LANES ? FULL_MASK : (1U << lanes) - 1;
        w->exited = 0;
        w->fragments_n = 0;
        w->turn = 0;
        warp_add(w, w->root, run->kernel->first, w->exists, FRAGMENT_READY, 0);
        block->warp[index] = w;
        return 0;
}

/* Keeps w for reuse. The warp released last is reused first, because its frame may still be in the
 * cache. */
void warp_release(struct warp *w)
{
        w->next_free = w->run->free_warps;
        w->run->free_warps = w;
}

void warp_destroy(struct warp *w)
{
        frame_free(w->run, w->root);
        free(w);
}
