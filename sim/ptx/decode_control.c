/* decode_control.c: owns branches, calls, synchronisation and arithmetic of unusual form. */
#include "sim/ptx/parser.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static int emit_bare(struct parser *p, enum ptx_op op)
{
        struct ptx_insn *in;

        return insn_emit(p, op, &in);
}

int decode_bra(struct parser *p)
{
        const struct operand *o = &p->operand[0];
        int r = operands_want(p, 1);

        if (r == 0 && !(p->parts_n == 1 || (p->parts_n == 2 && part_is(p, 1, "uni"))))
                return decode_unknown_form(p);
        if (r == 0 && o->kind != OPERAND_NAME)
                return parser_fail_insn(p, "the label is missing");
        if (r == 0)
                r = emit_bare(p, OP_BRA);
        return r < 0 ? r
                     : fixup_add(p, o->name, o->length, (uint32_t)p->m->insns_n - 1, NO_INDEX, 0);
}

int decode_brx(struct parser *p)
{
        const struct operand *o = &p->operand[1];
        struct ptx_insn *in;
        uint32_t index;
        int r = operands_want(p, 2);

        if (r == 0 && (!part_is(p, 1, "idx") || p->parts_n > 3))
                return decode_unknown_form(p);
        if (r == 0 && (o->kind != OPERAND_NAME || !o->symbol || o->symbol->kind != SYMBOL_TABLE))
                return parser_fail_insn(p, "the list of branch targets is missing");
        if (r == 0)
                r = operand_source(p, &p->operand[0], TYPE_u32, &index);
        if (r == 0)
                r = insn_emit_slots(p, OP_BRX, &index, 1, &in);
        if (r == 0)
                in->cache = (uint32_t)o->symbol->value;
        return r;
}

int decode_ret(struct parser *p)
{
        return operands_want(p, 0) < 0 ? -EINVAL : emit_bare(p, p->f->entry ? OP_EXIT : OP_RET);
}

int decode_exit(struct parser *p)
{
        return operands_want(p, 0) < 0 ? -EINVAL : emit_bare(p, OP_EXIT);
}

int decode_trap(struct parser *p)
{
        return operands_want(p, 0) < 0 ? -EINVAL : emit_bare(p, OP_TRAP);
}

int decode_fence(struct parser *p)
{
        if (part_is(p, 1, "proxy") || part_is(p, 1, "mbarrier_init"))
                return decode_unknown_form(p);
        return operands_want(p, 0) < 0 ? -EINVAL : emit_bare(p, OP_FENCE);
}

int decode_nanosleep(struct parser *p)
{
        struct ptx_insn *in;
        uint32_t slot;
        int r = operands_want(p, 1);

        if (r == 0 && (p->parts_n != 2 || !part_is(p, 1, "u32")))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_source(p, &p->operand[0], TYPE_u32, &slot);
        return r < 0 ? r : insn_emit_slots(p, OP_NANOSLEEP, &slot, 1, &in);
}

/* Decodes bar.warp.sync, and bar or barrier{.cta} with .sync, .arrive or .red{.aligned}. */
int decode_bar(struct parser *p)
{
        static const struct {
                const char *name;
                enum barrier_kind kind;
        } red[] = {{"popc", BARRIER_POPC}, {"and", BARRIER_AND}, {"or", BARRIER_OR}};
        uint32_t slots[4] = {NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT};
        unsigned at = part_is(p, 1, "cta") ? 2 : 1, first = 0, last = p->operands_n;
        unsigned kind = BARRIER_SYNC;
        struct ptx_insn *in;
        int r = 0;

        if (part_is(p, 1, "warp")) {
                r = operands_want(p, 1);
                if (r == 0 && (!part_is(p, 2, "sync") || p->parts_n != 3))
                        return decode_unknown_form(p);
                if (r == 0)
                        r = operand_source(p, &p->operand[0], TYPE_b32, &slots[0]);
                return r < 0 ? r : insn_emit_slots(p, OP_SYNC_WARP, slots, 1, &in);
        }
        if (part_is(p, at, "arrive")) {
                kind = BARRIER_ARRIVE;
        } else if (part_is(p, at, "red")) {
                at++;
                kind = UINT32_MAX;
                for (size_t i = 0; i < ARRAY_SIZE(red); i++)
                        if (part_is(p, at, red[i].name))
                                kind = red[i].kind;
        } else if (!part_is(p, at, "sync")) {
                kind = UINT32_MAX;
        }
        if (kind == UINT32_MAX)
                return decode_unknown_form(p);
        at++;
        if (part_is(p, at, "aligned"))
                at++;
        if (kind >= BARRIER_POPC) {
                enum ptx_type type = part_type(p, p->parts_n - 1);

                if (at + 1 != p->parts_n || type != (kind == BARRIER_POPC ? TYPE_u32 : TYPE_pred))
                        return decode_unknown_form(p);
                if (p->operands_n < 3)
                        return operands_want(p, 3);
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
                if (r == 0)
                        r = operand_source(p, &p->operand[p->operands_n - 1], TYPE_pred, &slots[3]);
                first = 1;
                last--;
        } else if (at != p->parts_n) {
                return decode_unknown_form(p);
        }
        if (last - first < 1 || last - first > 2 || (kind == BARRIER_ARRIVE && last - first != 2))
                return parser_fail_insn(p, "the barrier's operands are wrong");
        if (r == 0)
                r = operand_source(p, &p->operand[first], TYPE_u32, &slots[1]);
        if (r == 0 && last - first == 2)
                r = operand_source(p, &p->operand[first + 1], TYPE_u32, &slots[2]);
        if (r == 0)
                r = insn_emit_slots(p, OP_BARRIER, slots, 4, &in);
        if (r == 0)
                in->sub = (uint8_t)kind;
        return r;
}

int decode_shfl(struct parser *p)
{
        static const char *const mode[] = {"up", "down", "bfly", "idx"};
        uint32_t slots[6] = {NO_SLOT, p->operand[0].second, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT};
        struct ptx_insn *in;
        int r = operands_want(p, 5);

        if (r == 0 && (!part_is(p, 1, "sync") || p->parts_n != 4 || !part_is(p, 3, "b32")))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_b32, &slots[0]);
        for (unsigned i = 1; i < 5 && r == 0; i++)
                r = operand_source(p, &p->operand[i], TYPE_b32, &slots[i + 1]);
        for (unsigned k = 0; k < ARRAY_SIZE(mode) && r == 0; k++)
                if (part_is(p, 2, mode[k])) {
                        r = insn_emit_slots(p, OP_SHUFFLE, slots, 6, &in);
                        if (r == 0)
                                in->sub = (uint8_t)k;
                        return r;
                }
        return r < 0 ? r : decode_unknown_form(p);
}

int decode_vote(struct parser *p)
{
        static const char *const mode[] = {"all", "any", "uni", "ballot"};
        struct ptx_insn *in;
        uint32_t slots[3];
        int r = operands_want(p, 3);

        if (r == 0 && (!part_is(p, 1, "sync") || p->parts_n != 4))
                return decode_unknown_form(p);
        for (unsigned k = 0; k < ARRAY_SIZE(mode) && r == 0; k++) {
                enum ptx_type type = k == VOTE_BALLOT ? TYPE_b32 : TYPE_pred;

                if (!part_is(p, 2, mode[k]) || part_type(p, p->parts_n - 1) != type)
                        continue;
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
                if (r == 0)
                        r = operand_source(p, &p->operand[1], TYPE_pred, &slots[1]);
                if (r == 0)
                        r = operand_source(p, &p->operand[2], TYPE_b32, &slots[2]);
                if (r == 0)
                        r = insn_emit_slots(p, OP_VOTE, slots, 3, &in);
                if (r == 0)
                        in->sub = (uint8_t)k;
                return r;
        }
        return r < 0 ? r : decode_unknown_form(p);
}

int decode_match(struct parser *p)
{
        uint32_t slots[4] = {NO_SLOT, p->operand[0].second, NO_SLOT, NO_SLOT};
        bool all = part_is(p, 1, "all");
        enum ptx_type type = part_type(p, p->parts_n - 1);
        struct ptx_insn *in;
        int r = operands_want(p, 3);

        if (r == 0 && ((!all && !part_is(p, 1, "any")) || !part_is(p, 2, "sync") ||
                       p->parts_n != 4 || (type != TYPE_b32 && type != TYPE_b64)))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_b32, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[2]);
        if (r == 0)
                r = operand_source(p, &p->operand[2], TYPE_b32, &slots[3]);
        if (r == 0)
                r = insn_emit_slots(p, OP_MATCH, slots, 4, &in);
        if (r == 0) {
                in->sub = all;
                in->size = (uint8_t)type_bytes(type);
        }
        return r;
}

int decode_redux(struct parser *p)
{
        static const struct {
                const char *name;
                enum atomic_kind kind;
        } kinds[] = {{"add", ATOMIC_ADD}, {"min", ATOMIC_MIN}, {"max", ATOMIC_MAX},
                     {"and", ATOMIC_AND}, {"or", ATOMIC_OR},   {"xor", ATOMIC_XOR}};
        enum ptx_type type = part_type(p, p->parts_n - 1);
        struct ptx_insn *in;
        uint32_t slots[3];
        int r = operands_want(p, 3);

        if (r == 0 && (!part_is(p, 1, "sync") || p->parts_n != 4 || type_bits(type) != 32 ||
                       type_is(type, 'f')))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0)
                r = operand_source(p, &p->operand[2], TYPE_b32, &slots[2]);
        for (size_t i = 0; i < ARRAY_SIZE(kinds) && r == 0; i++)
                if (part_is(p, 2, kinds[i].name)) {
                        r = insn_emit_slots(p, OP_REDUX, slots, 3, &in);
                        if (r == 0) {
                                in->sub = kinds[i].kind;
                                in->type = (uint8_t)type;
                        }
                        return r;
                }
        return r < 0 ? r : decode_unknown_form(p);
}

int decode_activemask(struct parser *p)
{
        struct ptx_insn *in;
        uint32_t slot;
        int r = operands_want(p, 1);

        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_b32, &slot);
        return r < 0 ? r : insn_emit_slots(p, OP_ACTIVEMASK, &slot, 1, &in);
}

int decode_elect(struct parser *p)
{
        uint32_t slots[3] = {NO_SLOT, p->operand[0].second, NO_SLOT};
        struct ptx_insn *in;
        int r = operands_want(p, 2);

        if (r == 0 && (!part_is(p, 1, "sync") || p->parts_n != 2))
                return decode_unknown_form(p);
        if (r == 0 && p->operand[0].kind != OPERAND_SINK)
                r = operand_destination(p, &p->operand[0], TYPE_b32, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], TYPE_b32, &slots[2]);
        return r < 0 ? r : insn_emit_slots(p, OP_ELECT, slots, 3, &in);
}

int decode_lop3(struct parser *p)
{
        const struct operand *table = &p->operand[4];
        struct ptx_insn *in;
        uint32_t slots[4];
        int r = operands_want(p, 5);

        if (r == 0 && (p->parts_n != 2 || !part_is(p, 1, "b32") || table->kind != OPERAND_NUMBER ||
                       table->value > 255))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_b32, &slots[0]);
        for (unsigned i = 1; i < 4 && r == 0; i++)
                r = operand_source(p, &p->operand[i], TYPE_b32, &slots[i]);
        if (r == 0)
                r = insn_emit_slots(p, OP_LOP3, slots, 4, &in);
        if (r == 0)
                in->sub = (uint8_t)table->value;
        return r;
}

int decode_bfi(struct parser *p)
{
        enum ptx_type type = part_type(p, p->parts_n - 1);
        struct ptx_insn *in;
        uint32_t slots[5];
        int r = operands_want(p, 5);

        if (r == 0 && (p->parts_n != 2 || (type != TYPE_b32 && type != TYPE_b64)))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
        for (unsigned i = 1; i < 5 && r == 0; i++)
                r = operand_source(p, &p->operand[i], i < 3 ? type : TYPE_u32, &slots[i]);
        return r < 0 ? r
                     : insn_emit_slots(p, type == TYPE_b64 ? OP_BFI_64 : OP_BFI_32, slots, 5, &in);
}

int decode_testp(struct parser *p)
{
        static const char *const kind[] = {
                [TESTP_FINITE] = "finite", [TESTP_INFINITE] = "infinite",
                [TESTP_NUMBER] = "number", [TESTP_NOTANUMBER] = "notanumber",
                [TESTP_NORMAL] = "normal", [TESTP_SUBNORMAL] = "subnormal"};
        enum ptx_type type = part_type(p, p->parts_n - 1);
        struct ptx_insn *in;
        uint32_t slots[2];
        int r = operands_want(p, 2);

        if (r == 0 && (p->parts_n != 3 || (type != TYPE_f32 && type != TYPE_f64)))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_pred, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        for (unsigned k = 0; k < ARRAY_SIZE(kind) && r == 0; k++)
                if (part_is(p, 1, kind[k])) {
                        r = insn_emit_slots(p, OP_TESTP, slots, 2, &in);
                        if (r == 0) {
                                in->sub = (uint8_t)k;
                                in->size = (uint8_t)type_bytes(type);
                        }
                        return r;
                }
        return r < 0 ? r : decode_unknown_form(p);
}

/* Decodes add, addc, sub, subc, mad and madc with a carry in or out. */
int decode_carry(struct parser *p)
{
        bool sub = part_is(p, 0, "sub") || part_is(p, 0, "subc");
        bool mad = part_is(p, 0, "mad") || part_is(p, 0, "madc");
        bool in_carry = part_is(p, 0, "addc") || part_is(p, 0, "subc") || part_is(p, 0, "madc");
        bool high = part_is(p, 1, "hi"), low = part_is(p, 1, "lo");
        unsigned at = mad ? 2 : 1;
        bool out = part_is(p, at, "cc");
        enum ptx_type type = part_type(p, p->parts_n - 1);
        uint32_t slots[4], product[3];
        struct ptx_insn *in;
        int r = operands_want(p, mad ? 4 : 3);

        if (r == 0 && ((mad && !high && !low) || p->parts_n != at + out + 1 ||
                       (type_bits(type) != 32 && type_bits(type) != 64) ||
                       !(type_is(type, 'u') || type_is(type, 's')) ||
                       (!mad && !sub && !part_is(p, 0, "add") && !part_is(p, 0, "addc"))))
                return decode_unknown_form(p);
        if (r == 0 && p->f->carry == NO_SLOT)
                r = slot_new(p, TYPE_pred, &p->f->carry);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0)
                r = operand_source(p, &p->operand[2], type, &slots[2]);
        if (r < 0)
                return r;
        if (mad) {
                bool wide = type_bits(type) == 64, sign = type_is(type, 's');
                enum ptx_op op = low    ? (wide ? OP_MUL_LO_64 : OP_MUL_LO_32)
                                 : sign ? (wide ? OP_MUL_HI_S64 : OP_MUL_HI_S32)
                                        : (wide ? OP_MUL_HI_U64 : OP_MUL_HI_U32);

                product[1] = slots[1];
                product[2] = slots[2];
                r = slot_new(p, type, &product[0]);
                if (r == 0)
                        r = insn_emit_slots(p, op, product, 3, &in);
                slots[1] = product[0];
                if (r == 0)
                        r = operand_source(p, &p->operand[3], type, &slots[2]);
        }
        slots[3] = p->f->carry;
        if (r == 0)
                r = insn_emit_slots(p, sub ? OP_SUB_CARRY : OP_ADD_CARRY, slots, 4, &in);
        if (r == 0) {
                in->size = (uint8_t)type_bytes(type);
                in->flags = (uint8_t)((in_carry ? FLAG_CARRY_IN : 0) | (out ? FLAG_CARRY_OUT : 0));
        }
        return r;
}

static int two_typed(struct parser *p, const uint16_t op[2][2], unsigned parts)
{
        enum ptx_type a = p->parts_n > 2
                                  ? type_named(p->part[parts - 2].text, p->part[parts - 2].length)
                                  : TYPE_NONE;
        enum ptx_type b = part_type(p, p->parts_n - 1);
        struct ptx_insn *in;
        uint32_t slots[4];
        int r = operands_want(p, 4);

        if (r == 0 &&
            (p->parts_n != parts || (a != TYPE_u32 && a != TYPE_s32) ||
             (b != TYPE_u32 && b != TYPE_s32) || op[a == TYPE_s32][b == TYPE_s32] == OP_LANES_END))
                return decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_b32, &slots[0]);
        for (unsigned i = 1; i < 4 && r == 0; i++)
                r = operand_source(p, &p->operand[i], TYPE_b32, &slots[i]);
        return r < 0 ? r : insn_emit_slots(p, op[a == TYPE_s32][b == TYPE_s32], slots, 4, &in);
}

int decode_dp4a(struct parser *p)
{
        static const uint16_t op[2][2] = {{OP_DP4A_UU, OP_DP4A_US}, {OP_DP4A_SU, OP_DP4A_SS}};

        return two_typed(p, op, 3);
}

/* Decodes vabsdiff4.d.a.b{.add}, in the forms to which CUDA's SIMD intrinsics compile. */
int decode_vabsdiff4(struct parser *p)
{
        static const uint16_t plain[2][2] = {{OP_VABSDIFF4_UU, OP_LANES_END},
                                             {OP_LANES_END, OP_VABSDIFF4_SS}};
        static const uint16_t sum[2][2] = {{OP_VABSDIFF4_ADD_UU, OP_LANES_END},
                                           {OP_LANES_END, OP_VABSDIFF4_ADD_SS}};

        if (part_is(p, p->parts_n - 1, "add") && p->parts_n == 5) {
                p->parts_n--;
                return two_typed(p, sum, 4);
        }
        return two_typed(p, plain, 4);
}

/* Parses the arguments between parentheses: registers, .param variables, numbers. */
static int call_list(struct parser *p, struct call_argument **list, size_t *n, size_t *cap)
{
        int r = parser_expect(p, '(');

        while (r == 0 && !lex_is(&p->lex, ')')) {
                struct call_argument a = {.slot = NO_SLOT};
                struct operand o;

                p->elements_n = 0;
                r = operand_parse(p, &o);
                if (r < 0)
                        return r;
                if (o.kind == OPERAND_ADDRESS && o.symbol->kind == SYMBOL_LOCAL) {
                        a.local = (uint32_t)o.symbol->value;
                        a.bytes = o.symbol->count;
                } else if (o.kind == OPERAND_REGISTER && o.type != TYPE_pred) {
                        a.slot = o.slot;
                        a.bytes = type_lane_bits(o.type) / 8;
                } else if (o.kind == OPERAND_NUMBER) {
                        r = operand_source(p, &o, TYPE_b64, &a.slot);
                        a.bytes = 8;
                } else {
                        return parser_fail_insn(p, "an argument of the wrong kind");
                }
                if (r == 0)
                        r = parser_grow(list, cap, *n + 1, sizeof(**list));
                if (r < 0)
                        return r;
                (*list)[(*n)++] = a;
                if (!lex_is(&p->lex, ','))
                        break;
                lex_next(&p->lex);
        }
        return r < 0 ? r : parser_expect(p, ')');
}

int decode_call(struct parser *p)
{
        _cleanup_free_ struct call_argument *returns = NULL, *arguments = NULL;
        struct call_argument *all;
        size_t returns_n = 0, returns_cap = 0, arguments_n = 0, arguments_cap = 0;
        struct ptx_module *m = p->m;
        struct call_site *site;
        struct operand callee;
        struct ptx_insn *in;
        int r;

        if (!(p->parts_n == 1 || (p->parts_n == 2 && part_is(p, 1, "uni"))))
                return decode_unknown_form(p);
        if (lex_is(&p->lex, '(')) {
                r = call_list(p, &returns, &returns_n, &returns_cap);
                if (r == 0)
                        r = parser_expect(p, ',');
                if (r < 0)
                        return r;
        }
        p->elements_n = 0;
        r = operand_parse(p, &callee);
        if (r < 0)
                return r;
        if (lex_is(&p->lex, ',')) {
                lex_next(&p->lex);
                if (lex_is(&p->lex, '('))
                        r = call_list(p, &arguments, &arguments_n, &arguments_cap);
                else
                        lex_next(&p->lex);
        }
        if (r == 0 && lex_is(&p->lex, ',')) {
                /* Skip the prototype of an indirect call: the arguments already tell enough. */
                lex_next(&p->lex);
                lex_next(&p->lex);
        }
        if (r < 0)
                return r;
        if (!(callee.kind == OPERAND_REGISTER && type_bits(callee.type) == 64) &&
            !(callee.kind == OPERAND_ADDRESS && callee.constant == CONSTANT_FUNCTION))
                return parser_fail_insn(p, "the function is not declared");
        if (m->calls_n >= NO_INDEX ||
            parser_grow(&m->call, &p->calls_cap, m->calls_n + 1, sizeof(*m->call)) < 0)
                return -ENOMEM;
        all = reallocarray(arguments, arguments_n + returns_n + 1, sizeof(*arguments));
        if (!all)
                return -ENOMEM;
        arguments = all;
        if (returns_n)
                memcpy(arguments + arguments_n, returns, returns_n * sizeof(*returns));
        r = insn_emit(p, callee.kind == OPERAND_REGISTER ? OP_CALL_INDIRECT : OP_CALL, &in);
        if (r < 0)
                return r;
        in->r[0] = callee.kind == OPERAND_REGISTER ? callee.slot : NO_SLOT;
        in->cache = (uint32_t)m->calls_n;
        site = &m->call[m->calls_n++];
        *site = (struct call_site){.callee = callee.kind == OPERAND_REGISTER ? NO_INDEX
                                                                             : callee.index,
                                   .arguments_n = (uint32_t)arguments_n,
                                   .returns_n = (uint32_t)returns_n,
                                   .argument = TAKE_PTR(arguments)};
        if (site->callee == NO_INDEX)
                return 0;
        r = parser_grow(&p->f->callees, &p->callees_cap, p->f->callees_n + 1,
                        sizeof(*p->f->callees));
        if (r == 0)
                p->f->callees[p->f->callees_n++] = site->callee;
        return r;
}
