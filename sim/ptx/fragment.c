/* fragment.c: adds fragments, which are lanes at the same instruction, and makes a launch fail. */
#include "sim/ptx/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void warp_fail(struct warp *w, const struct ptx_insn *in, unsigned lane, int error,
               const char *format, ...)
{
        struct run *run = w->run;
        const char *at = run->module->text, *end = at + run->module->text_bytes;
        char why[128], where[128] = "";
        const uint32_t *c = w->block->ctaid;
        va_list ap;

        if (run->failed)
                return;
        run->failed = error;
        w->yield = true;
        va_start(ap, format);
        (void)vsnprintf(why, sizeof(why), format, ap);
        va_end(ap);
        for (uint32_t line = 1; line < in->line && at < end; line++) {
                at = memchr(at, '\n', (size_t)(end - at));
                at = at ? at + 1 : end;
        }
        at += strspn(at, " \t");
        if (lane < WARP_LANES)
                (void)snprintf(where, sizeof(where), " (block %u,%u,%u thread %u,%u,%u)", c[0],
                               c[1], c[2], run->tid[w->index][0][lane], run->tid[w->index][1][lane],
                               run->tid[w->index][2][lane]);
        (void)snprintf(run->error, PTX_ERROR_MAX, "line %u: '%.*s': %s%s", in->line,
                       (int)MIN(strcspn(at, ";\r\n"), (size_t)64), at, why, where);
        /* The PTX text in the message may have tabs between its operands. */
        for (char *p = run->error; *p; p++)
                *p = *p == '\t' ? ' ' : *p;
}

void warp_add(struct warp *w, struct frame *frame, uint32_t pc, uint32_t mask,
              enum fragment_state state, uint32_t barrier)
{
        struct fragment *f;

        for (uint32_t i = 0; i < w->fragments_n; i++) {
                f = &w->fragment[i];
                if (f->frame == frame && f->pc == pc && f->state == state &&
                    f->barrier == barrier) {
                        f->mask |= mask;
                        return;
                }
        }
        w->fragment[w->fragments_n++] = (struct fragment){frame, pc, mask, barrier, state};
}
