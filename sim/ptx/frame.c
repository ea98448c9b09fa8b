/* frame.c: owns calls, returns and frames, which hold the registers and local memory of one
 * function activation. It must never move a frame that lanes still use. */
#include "sim/ptx/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 4096 /* frames of one warp, each for another call stack */
#define DEPTH_MAX  512

static uint64_t constant_value(const struct run *run, const struct frame *f,
                               const struct ptx_constant *c)
{
        uint32_t base = f->function->shared_used || run->kernel->shared_used
                                ? (uint32_t)align_up(run->module->shared_bytes, 256)
                                : 0;
        uint64_t v = 0;

        switch (c->kind) {
        case CONSTANT_PRED:
                return c->value ? UINT32_MAX : 0;
        case CONSTANT_VARIABLE:
                return run->module->address[c->index] + c->value;
        case CONSTANT_SHARED_ENTRY:
                return base + c->value;
        case CONSTANT_DYNAMIC:
                return run->dynamic_start + c->value;
        case CONSTANT_LOCAL:
                return f->local_start + c->value;
        case CONSTANT_FUNCTION:
                return FUNCTION_HANDLE | c->index;
        case CONSTANT_PARAM:
                memcpy(&v, (const uint8_t *)run->launch->parameters + c->value, c->index);
                if ((c->flags & FLAG_SIGNED) && c->index < 8 && v >> (8 * c->index - 1))
                        v |= UINT64_MAX << (8 * c->index);
                return v;
        default:
                return c->value;
        }
}

static void fill_constants(const struct run *run, struct frame *f)
{
        for (size_t i = 0; i < f->function->constants_n; i++) {
                const struct ptx_constant *c = &f->function->constants[i];
                uint64_t v = constant_value(run, f, c);
                void *slot_of = f->regs + c->slot;

                if (c->bits == 1)
                        *(uint32_t *)slot_of = (uint32_t)v;
                for (unsigned lane = 0; lane < WARP_LANES && c->bits == 32; lane++)
                        ((uint32_t *)slot_of)[lane] = (uint32_t)v;
                for (unsigned lane = 0; lane < WARP_LANES && c->bits == 64; lane++)
                        ((uint64_t *)slot_of)[lane] = v;
        }
}

int frame_new(struct warp *w, struct frame *parent, const struct ptx_function *function,
              uint32_t site_pc, struct frame **ret_frame)
{
        size_t regs = align_up(MAX(function->frame_bytes, 1U), SLOT_ALIGN);
        size_t local = (size_t)function->local_bytes * WARP_LANES;
        struct frame *f;

        if (w->frames_n >= FRAMES_MAX || (parent && parent->depth >= DEPTH_MAX))
                return -ENOMEM;
        f = calloc(1, sizeof(*f));
        if (!f)
                return -ENOMEM;
        *f = (struct frame){.parent = parent, .function = function, .site_pc = site_pc};
        if (parent) {
                f->depth = parent->depth + 1;
                f->local_start =
                        align_up(parent->local_start + parent->function->local_bytes, 4096);
        }
        f->regs = aligned_alloc(SLOT_ALIGN, regs);
        f->local = calloc(1, MAX(local, (size_t)1));
        if (!f->regs || !f->local) {
                free(f->regs);
                free(f->local);
                free(f);
                return -ENOMEM;
        }
        memset(f->regs, 0, regs);
        if (parent) {
                f->sibling = parent->child;
                parent->child = f;
        }
        w->run->bytes += regs + local;
        w->frames_n++;
        fill_constants(w->run, f);
        *ret_frame = f;
        return 0;
}

void frame_free(struct run *run, struct frame *f)
{
        while (f) {
                struct frame *up = f->parent;

                /* Free the leaves first. Call stacks may be too deep for recursion. */
                if (f->child) {
                        struct frame *child = f->child;

                        f->child = child->sibling;
                        f = child;
                        continue;
                }
                run->bytes -= align_up(MAX(f->function->frame_bytes, 1U), SLOT_ALIGN) +
                              (size_t)f->function->local_bytes * WARP_LANES;
                free(f->regs);
                free(f->local);
                free(f);
                f = up;
        }
}

/* Resolves a local address. Local addresses grow along the call stack, so that a caller may pass
 * the address of its local memory to a callee. */
uint8_t *frame_local(const struct frame *f, unsigned lane, uint64_t address, size_t bytes)
{
        for (; f; f = f->parent) {
                uint64_t offset = address - f->local_start;

                if (address < f->local_start)
                        continue;
                if (offset > f->function->local_bytes || bytes > f->function->local_bytes - offset)
                        return NULL;
                return f->local + (size_t)lane * f->function->local_bytes + offset;
        }
        return NULL;
}

static uint8_t *local_at(const struct frame *f, unsigned lane, uint32_t offset)
{
        return f->local + (size_t)lane * f->function->local_bytes + offset;
}

struct place {
        uint32_t slot, local, bytes;
};

/* Copies one parameter of the masked lanes from one frame to another. In each frame it is in a
 * register or in local memory. */
static void pass(const struct frame *from, struct place source, const struct frame *to,
                 struct place target, uint32_t mask)
{
        uint32_t bytes = MIN(source.bytes, target.bytes);

        for (uint32_t m = mask; m; m &= m - 1) {
                unsigned lane = (unsigned)__builtin_ctz(m);
                uint8_t *s = source.slot == NO_SLOT
                                     ? local_at(from, lane, source.local)
                                     : from->regs + source.slot + (size_t)lane * source.bytes;
                uint8_t *t = target.slot == NO_SLOT
                                     ? local_at(to, lane, target.local)
                                     : to->regs + target.slot + (size_t)lane * target.bytes;

                if (target.slot != NO_SLOT)
                        memset(t, 0, target.bytes);
                memcpy(t, s, bytes);
        }
}

static void pass_argument(const struct frame *caller, const struct call_argument *a,
                          const struct frame *callee, const struct function_param *p, bool result,
                          uint32_t mask)
{
        struct place outside = {a->slot, a->local, a->bytes};
        struct place inside = {p->slot, p->offset, p->bytes};

        if (result)
                pass(callee, inside, caller, outside, mask);
        else
                pass(caller, outside, callee, inside, mask);
}

static const struct ptx_function *call_target(struct warp *w, const struct ptx_insn *in,
                                              uint32_t mask, uint32_t *ret_mask)
{
        const struct ptx_module *m = w->run->module;
        const struct call_site *site = &m->call[in->cache];
        unsigned first = (unsigned)__builtin_ctz(mask);
        const uint64_t *handle;

        *ret_mask = mask;
        if (site->callee != NO_INDEX)
                return &m->function[site->callee]->f;
        handle = (const uint64_t *)(w->current.frame->regs + in->r[0]);
        if ((handle[first] & WINDOW_MASK) != FUNCTION_HANDLE ||
            (handle[first] & ~WINDOW_MASK) >= m->functions_n) {
                warp_fail(w, in, first, -EFAULT, "call of 0x%llx, which is no function",
                          (unsigned long long)handle[first]);
                return NULL;
        }
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
                unsigned lane = (unsigned)__builtin_ctz(rest);

                if (handle[lane] != handle[first])
                        *ret_mask &= ~(1U << lane);
        }
        return &m->function[handle[first] & ~WINDOW_MASK]->f;
}

/* Makes the masked lanes continue in the callee, and the others after the call. Lanes whose
 * indirect call has another target execute this instruction again. */
void frame_call(struct warp *w, const struct ptx_insn *in, uint32_t mask)
{
        const struct call_site *site = &w->run->module->call[in->cache];
        struct frame *caller = w->current.frame, *f;
        const struct ptx_function *callee;
        uint32_t pc = w->current.pc, others = w->current.mask & ~mask, now;
        int r = 0;

        callee = call_target(w, in, mask, &now);
        if (!callee)
                return;
        if (!callee->defined || callee->entry) {
                warp_fail(w, in, (unsigned)__builtin_ctz(now), -ENOTSUP,
                          "function '%s' has no body here", callee->name);
                return;
        }
        if (site->arguments_n != callee->params_n || site->returns_n > callee->returns_n) {
                warp_fail(w, in, NO_INDEX, -ENOTSUP, "function '%s' takes %u arguments, not %u",
                          callee->name, callee->params_n, site->arguments_n);
                return;
        }
        for (f = caller->child; f && (f->site_pc != pc || f->function != callee); f = f->sibling)
                ;
        if (!f)
                r = frame_new(w, caller, callee, pc, &f);
        if (r < 0) {
                warp_fail(w, in, (unsigned)__builtin_ctz(now), r, "calls nested too deep");
                return;
        }
        for (unsigned i = 0; i < site->arguments_n; i++)
                pass_argument(caller, &site->argument[i], f, &callee->params[i], false, now);
        warp_add(w, f, callee->first, now, FRAGMENT_READY, 0);
        if (mask & ~now)
                warp_add(w, caller, pc, mask & ~now, FRAGMENT_READY, 0);
        if (others)
                warp_add(w, caller, pc + 1, others, FRAGMENT_READY, 0);
        w->current.mask = 0;
        w->yield = true;
}

void frame_return(struct warp *w, const struct ptx_insn *in, uint32_t mask)
{
        struct frame *f = w->current.frame, *caller = f->parent;
        const struct ptx_module *m = w->run->module;
        const struct call_site *site = &m->call[m->insn[f->site_pc].cache];
        uint32_t pc = w->current.pc, others = w->current.mask & ~mask;

        for (unsigned i = 0; i < site->returns_n; i++)
                pass_argument(caller, &site->argument[site->arguments_n + i], f,
                              &f->function->returns[i], true, mask);
        warp_add(w, caller, f->site_pc + 1, mask, FRAGMENT_READY, 0);
        if (others)
                warp_add(w, f, pc + 1, others, FRAGMENT_READY, 0);
        w->current.mask = 0;
        w->yield = true;
}
