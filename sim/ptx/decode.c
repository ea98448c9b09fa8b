/* decode.c: owns the choice of a decoder for an opcode, and decodes the plain instructions, which
 * have no decoder of their own. It must never accept a modifier that it does not honour. */
#include "sim/ptx/parser.h"

#include <string.h>

const struct op_info ptx_op_info[OP_LANES_END] = {
#define OP1(name, td, ta, expr)     [OP_##name] = {1, {TYPE_##td, TYPE_##ta}},
#define OP2(name, td, ta, tb, expr) [OP_##name] = {2, {TYPE_##td, TYPE_##ta, TYPE_##tb}},
#define OP3(name, td, ta, tb, tc, expr) \
        [OP_##name] = {3, {TYPE_##td, TYPE_##ta, TYPE_##tb, TYPE_##tc}},
#define CMP(name, ta, expr) [OP_##name] = {2, {TYPE_pred, TYPE_##ta, TYPE_##ta}},
#include "sim/ptx/ops.def"
        [OP_MOV_PRED] = {1, {TYPE_pred, TYPE_pred}},
        [OP_NOT_PRED] = {1, {TYPE_pred, TYPE_pred}},
        [OP_AND_PRED] = {2, {TYPE_pred, TYPE_pred, TYPE_pred}},
        [OP_OR_PRED] = {2, {TYPE_pred, TYPE_pred, TYPE_pred}},
        [OP_XOR_PRED] = {2, {TYPE_pred, TYPE_pred, TYPE_pred}},
};

struct instruction {
        const char *name;
        decoder *decode;
};

static const struct instruction instruction[] = {
#define INSTRUCTION(name, decode) {#name, decode},
#define FORM(name, mode, types, op)
#include "sim/ptx/ptx_instructions.def"
};

struct form {
        const char *name, *mode;
        uint64_t types;
        uint16_t op;
};

static const struct form form[] = {
#define INSTRUCTION(name, decode)
#define FORM(name, mode, types, op) {#name, mode, types, OP_##op},
#include "sim/ptx/ptx_instructions.def"
};

/* Properties that the table's rows do not list: rounding, flushing, saturation. */
struct plain {
        enum ptx_type type;
        char mode[32];
        enum ptx_round round;
        bool ftz, saturate, carry;
};

static int plain_parts(struct parser *p, struct plain *plain)
{
        static const struct {
                const char *name;
                enum ptx_round round;
        } rounds[] = {
                {"rn", ROUND_NEAREST}, {"rz", ROUND_ZERO}, {"rm", ROUND_DOWN}, {"rp", ROUND_UP}};
        size_t used = 0;

        *plain = (struct plain){0};
        for (unsigned i = 1; i < p->parts_n; i++) {
                const struct opcode_part *part = &p->part[i];
                enum ptx_type type = type_named(part->text, part->length);
                bool known = false;

                if (type != TYPE_NONE) {
                        if (plain->type != TYPE_NONE)
                                return parser_fail_insn(p, "two types");
                        plain->type = type;
                        continue;
                }
                for (size_t k = 0; k < ARRAY_SIZE(rounds); k++)
                        if (part_is(p, i, rounds[k].name)) {
                                plain->round = rounds[k].round;
                                known = true;
                        }
                if (part_is(p, i, "ftz"))
                        known = plain->ftz = true;
                else if (part_is(p, i, "cc"))
                        known = plain->carry = true;
                else if (part_is(p, i, "sat"))
                        known = plain->saturate = true;
                else if (part_is(p, i, "approx") || part_is(p, i, "full"))
                        known = true;
                if (known)
                        continue;
                if (used + part->length + 2 > sizeof(plain->mode))
                        return parser_fail_insn(p, "unknown modifier '.%.*s'",
                                                (int)MIN(part->length, 32U), part->text);
                if (used)
                        plain->mode[used++] = '.';
                memcpy(plain->mode + used, part->text, part->length);
                used += part->length;
        }
        return 0;
}

static int emit_unary(struct parser *p, enum ptx_op op, uint32_t d, uint32_t a)
{
        struct ptx_insn *in;
        int r = insn_emit(p, op, &in);

        if (r < 0)
                return r;
        in->r[0] = d;
        in->r[1] = a;
        return 0;
}

static int half_plain(struct parser *p, const struct plain *plain)
{
        static const struct {
                const char *name;
                uint8_t kind, sources;
        } halves[] = {{"add", HALF_ADD, 2}, {"sub", HALF_SUB, 2}, {"mul", HALF_MUL, 2},
                      {"fma", HALF_FMA, 3}, {"min", HALF_MIN, 2}, {"max", HALF_MAX, 2},
                      {"neg", HALF_NEG, 1}, {"abs", HALF_ABS, 1}};
        struct ptx_insn *in;
        uint32_t r[4];
        int error;

        if (plain->mode[0] || plain->ftz || plain->carry ||
            (plain->round != ROUND_DEFAULT && plain->round != ROUND_NEAREST))
                return parser_fail_insn(p, "a modifier is not supported for 16-bit floats");
        for (size_t i = 0; i < ARRAY_SIZE(halves); i++) {
                if (!part_is(p, 0, halves[i].name))
                        continue;
                if (p->operands_n != halves[i].sources + 1U)
                        return parser_fail_insn(p, "%u operands where %u belong", p->operands_n,
                                                halves[i].sources + 1U);
                error = operand_destination(p, &p->operand[0], plain->type, &r[0]);
                for (unsigned k = 1; k < p->operands_n && error == 0; k++)
                        error = operand_source(p, &p->operand[k], plain->type, &r[k]);
                if (error == 0)
                        error = insn_emit(p, OP_HALF, &in);
                if (error < 0)
                        return error;
                memcpy(in->r, r, p->operands_n * sizeof(r[0]));
                in->type = (uint8_t)plain->type;
                in->sub = halves[i].kind;
                in->count = halves[i].sources;
                in->flags = plain->saturate ? FLAG_SAT : 0;
                return 0;
        }
        return parser_fail_insn(p, "unknown instruction");
}

static const struct form *form_find(const struct parser *p, const struct plain *plain,
                                    bool *ret_known)
{
        *ret_known = false;
        for (size_t i = 0; i < ARRAY_SIZE(form); i++) {
                if (!part_is(p, 0, form[i].name))
                        continue;
                *ret_known = true;
                if (strcmp(form[i].mode, plain->mode) == 0 &&
                    (form[i].types >> plain->type & 1) != 0)
                        return &form[i];
        }
        return NULL;
}

static int decode_plain(struct parser *p)
{
        const struct op_info *info;
        const struct form *f;
        struct plain plain;
        struct ptx_insn *in;
        uint32_t slots[4];
        bool known;
        int r = plain_parts(p, &plain);

        if (r < 0)
                return r;
        if (plain.carry)
                return decode_carry(p);
        if (plain.type == TYPE_f16 || plain.type == TYPE_f16x2 || plain.type == TYPE_bf16 ||
            plain.type == TYPE_bf16x2)
                return half_plain(p, &plain);
        if (plain.saturate && type_is(plain.type, 's')) {
                (void)strcpy(plain.mode, plain.mode[0] ? "?" : "sat");
                plain.saturate = false;
        }
        f = form_find(p, &plain, &known);
        if (!f)
                return parser_fail_insn(p, known ? "this form of the instruction is not known"
                                                 : "unknown instruction");
        if (!type_is(plain.type, 'f') && (plain.ftz || plain.saturate || plain.round))
                return parser_fail_insn(p, "a modifier for floats on .%s",
                                        ptx_type_info[plain.type].name);
        info = &ptx_op_info[f->op];
        if (p->operands_n != info->sources + 1U)
                return parser_fail_insn(p, "%u operands where %u belong", p->operands_n,
                                        info->sources + 1U);
        r = operand_destination(p, &p->operand[0], info->type[0], &slots[0]);
        for (unsigned i = 1; i <= info->sources && r == 0; i++) {
                /* A number in the text has the instruction's type, which may differ from the type
                 * of the operation's lanes. */
                const struct operand *o = &p->operand[i];
                bool own = type_lane_bits(plain.type) == type_lane_bits(info->type[i]) &&
                           type_is(plain.type, 'f');

                r = operand_source(p, o, own ? plain.type : info->type[i], &slots[i]);
                if (r == 0 && plain.ftz && plain.type == TYPE_f32) {
                        uint32_t flushed;

                        r = slot_new(p, TYPE_f32, &flushed);
                        if (r == 0)
                                r = emit_unary(p, OP_FTZ_F32, flushed, slots[i]);
                        slots[i] = flushed;
                }
        }
        if (r < 0)
                return r;
        r = insn_emit(p, f->op, &in);
        if (r < 0)
                return r;
        memcpy(in->r, slots, (info->sources + 1U) * sizeof(slots[0]));
        if (plain.round > ROUND_NEAREST) {
                in->op = OP_ROUNDED;
                in->offset = f->op;
                in->sub = plain.round;
        }
        if (plain.ftz && plain.type == TYPE_f32)
                r = emit_unary(p, OP_FTZ_F32, slots[0], slots[0]);
        if (r == 0 && plain.saturate)
                r = emit_unary(p, plain.type == TYPE_f32 ? OP_SATURATE_F32 : OP_SATURATE_F64,
                               slots[0], slots[0]);
        return r;
}

static int opcode_split(struct parser *p)
{
        const char *at = p->opcode, *end = p->opcode + p->opcode_length;

        p->parts_n = 0;
        for (;;) {
                const char *dot = memchr(at, '.', (size_t)(end - at));

                if (p->parts_n == PARTS_MAX)
                        return parser_fail_insn(p, "too many modifiers");
                p->part[p->parts_n++] =
                        (struct opcode_part){at, (uint32_t)((dot ? dot : end) - at)};
                if (!dot)
                        return 0;
                at = dot + 1;
        }
}

int decode_instruction(struct parser *p)
{
        size_t first = p->m->insns_n;
        const struct instruction *known = NULL;
        int r = opcode_split(p);

        if (r < 0)
                return r;
        if (part_is(p, 0, "call")) {
                r = decode_call(p);
        } else {
                r = operands_parse(p);
                for (size_t i = 0; i < ARRAY_SIZE(instruction) && !known; i++)
                        if (part_is(p, 0, instruction[i].name))
                                known = &instruction[i];
                if (r == 0)
                        r = known ? known->decode(p) : decode_plain(p);
        }
        if (r < 0)
                return r;
        /* All operations of one instruction run under its guard. */
        for (size_t i = first; i < p->m->insns_n; i++) {
                p->m->insn[i].guard = p->guard;
                p->m->insn[i].guard_not = p->guard_not;
        }
        return parser_expect(p, ';');
}
