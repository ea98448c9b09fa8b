/* decode_parts.c: helpers of all decoders: the parts of an opcode, the number of operands. */
#include "sim/ptx/parser.h"

#include <string.h>

bool part_is(const struct parser *p, unsigned i, const char *text)
{
        size_t n = strlen(text);

        return i < p->parts_n && p->part[i].length == n && memcmp(p->part[i].text, text, n) == 0;
}

enum ptx_type part_type(const struct parser *p, unsigned i)
{
        return i < p->parts_n ? type_named(p->part[i].text, p->part[i].length) : TYPE_NONE;
}

int operands_want(struct parser *p, unsigned n)
{
        if (p->operands_n != n)
                return parser_fail_insn(p, "%u operands where %u belong", p->operands_n, n);
        return 0;
}

int insn_emit_slots(struct parser *p, enum ptx_op op, const uint32_t *slots, unsigned n,
                    struct ptx_insn **ret_insn)
{
        int r = insn_emit(p, op, ret_insn);

        if (r < 0)
                return r;
        memcpy((*ret_insn)->r, slots, n * sizeof(*slots));
        return 0;
}

int decode_unknown_part(struct parser *p, unsigned i)
{
        return parser_fail_insn(p, "unknown modifier '.%.*s'", (int)MIN(p->part[i].length, 32U),
                                p->part[i].text);
}

int decode_unknown_form(struct parser *p)
{
        return parser_fail_insn(p, "this form of the instruction is not known");
}
