/* decode_convert.c: owns cvt, and knows which conversions have an operation of their own. */
#include "sim/ptx/parser.h"

/* Returns the operation of a frequent conversion, which works on a whole warp. OP_CVT, the general
 * conversion, works lane by lane. */
static enum ptx_op cvt_fast(enum ptx_type to, enum ptx_type from, bool wide_to, bool wide_from)
{
        static const struct {
                uint8_t to, from;
                uint16_t op;
        } floats[] = {
                {TYPE_f32, TYPE_s32, OP_CVT_F32_S32}, {TYPE_f32, TYPE_u32, OP_CVT_F32_U32},
                {TYPE_f32, TYPE_s64, OP_CVT_F32_S64}, {TYPE_f32, TYPE_u64, OP_CVT_F32_U64},
                {TYPE_f64, TYPE_s32, OP_CVT_F64_S32}, {TYPE_f64, TYPE_u32, OP_CVT_F64_U32},
                {TYPE_f64, TYPE_s64, OP_CVT_F64_S64}, {TYPE_f64, TYPE_u64, OP_CVT_F64_U64},
                {TYPE_f64, TYPE_f32, OP_CVT_F64_F32}, {TYPE_f32, TYPE_f64, OP_CVT_F32_F64},
        };
        /* Indices: bits (8, 16, 32), sign, source register of 64 bits, destination of 64 bits. */
        static const uint16_t integers[3][2][2][2] = {
                {{{OP_EXT_U8_32, OP_EXT_U8_64}, {OP_CUT_64_U8, OP_CVT}},
                 {{OP_EXT_S8_32, OP_EXT_S8_64}, {OP_CUT_64_S8, OP_CVT}}},
                {{{OP_EXT_U16_32, OP_EXT_U16_64}, {OP_CUT_64_U16, OP_CVT}},
                 {{OP_EXT_S16_32, OP_EXT_S16_64}, {OP_CUT_64_S16, OP_CVT}}},
                {{{OP_MOV_32, OP_EXT_U32_64}, {OP_CUT_64_32, OP_CVT}},
                 {{OP_MOV_32, OP_EXT_S32_64}, {OP_CUT_64_32, OP_CVT}}},
        };
        unsigned bits = MIN(type_bits(to), type_bits(from));
        bool sign;

        if (type_is(to, 'f') || type_is(from, 'f')) {
                for (size_t i = 0; i < ARRAY_SIZE(floats); i++)
                        if (floats[i].to == to && floats[i].from == from &&
                            wide_to == (type_bits(to) == 64) &&
                            wide_from == (type_bits(from) == 64))
                                return floats[i].op;
                return OP_CVT;
        }
        if (bits == 64)
                return OP_MOV_64;
        /* The value is cut to the narrower type and extended by that type's sign. Other
         * combinations (a register wider than both types, a destination type in between) need
         * OP_CVT. */
        sign = type_bits(to) <= type_bits(from) ? type_is(to, 's') : type_is(from, 's');
        if (wide_to && type_bits(to) < 64)
                return OP_CVT;
        return integers[bits == 8 ? 0 : bits == 16 ? 1 : 2][sign][wide_from][wide_to];
}

struct cvt {
        enum ptx_type to, from;
        enum ptx_round round;
        unsigned integral, flags;
        bool relu;
};

static int cvt_parts(struct parser *p, struct cvt *c)
{
        static const struct {
                const char *name;
                uint8_t round, integral, flags;
        } mode[] = {{"rn", ROUND_NEAREST, 0, 0},
                    {"rz", ROUND_ZERO, 0, 0},
                    {"rm", ROUND_DOWN, 0, 0},
                    {"rp", ROUND_UP, 0, 0},
                    {"rni", 0, INTEGRAL_NEAREST, 0},
                    {"rzi", 0, INTEGRAL_ZERO, 0},
                    {"rmi", 0, INTEGRAL_DOWN, 0},
                    {"rpi", 0, INTEGRAL_UP, 0},
                    {"ftz", 0, 0, FLAG_FTZ},
                    {"sat", 0, 0, FLAG_SAT},
                    {"rna", 0xff, 0, 0}};

        *c = (struct cvt){0};
        for (unsigned i = 1; i < p->parts_n; i++) {
                enum ptx_type type = part_type(p, i);
                size_t k;

                if (type != TYPE_NONE) {
                        if (c->from != TYPE_NONE)
                                return parser_fail_insn(p, "three types");
                        if (c->to == TYPE_NONE)
                                c->to = type;
                        else
                                c->from = type;
                        continue;
                }
                for (k = 0; k < ARRAY_SIZE(mode) && !part_is(p, i, mode[k].name); k++)
                        ;
                if (k == ARRAY_SIZE(mode) || mode[k].round == 0xff)
                        return decode_unknown_part(p, i);
                c->round = mode[k].round ? mode[k].round : c->round;
                c->integral = mode[k].integral ? mode[k].integral : c->integral;
                c->flags |= mode[k].flags;
        }
        if (c->from == TYPE_NONE || c->to == TYPE_pred || c->from == TYPE_pred ||
            c->to == TYPE_f16x2 || c->to == TYPE_bf16x2 || c->from == TYPE_f16x2 ||
            c->from == TYPE_bf16x2)
                return decode_unknown_form(p);
        return 0;
}

int decode_cvt(struct parser *p)
{
        const struct operand *o = &p->operand[1];
        enum ptx_type register_to = TYPE_NONE, register_from;
        uint32_t slots[2], temp;
        enum ptx_op op = OP_CVT;
        struct ptx_insn *in;
        struct cvt c;
        bool wide_to, wide_from;
        int r = cvt_parts(p, &c);

        if (r == 0)
                r = operands_want(p, 2);
        if (r == 0)
                r = operand_any_register(p, &p->operand[0], &register_to);
        if (r < 0)
                return r;
        register_from = o->kind == OPERAND_REGISTER ? o->type : c.from;
        if (type_lane_bits(register_to) < type_lane_bits(c.to) || register_from == TYPE_pred ||
            type_lane_bits(register_from) < type_lane_bits(c.from))
                return parser_fail_insn(p, "a register is too narrow");
        slots[0] = p->operand[0].slot;
        r = operand_source(p, o, register_from, &slots[1]);
        if (r < 0)
                return r;
        wide_to = type_lane_bits(register_to) == 64;
        wide_from = type_lane_bits(register_from) == 64;
        if (!c.flags && c.round <= ROUND_NEAREST && !c.integral)
                op = cvt_fast(c.to, c.from, wide_to, wide_from);
        if (op != OP_CVT)
                return insn_emit_slots(p, op, slots, 2, &in);
        /* OP_CVT needs registers as wide as the types. */
        if (wide_from && type_lane_bits(c.from) == 32) {
                uint32_t cut[2] = {0, slots[1]};

                r = slot_new(p, TYPE_b32, &cut[0]);
                if (r == 0)
                        r = insn_emit_slots(p, OP_CUT_64_32, cut, 2, &in);
                if (r < 0)
                        return r;
                slots[1] = cut[0];
        }
        temp = slots[0];
        if (wide_to && type_lane_bits(c.to) == 32) {
                r = slot_new(p, TYPE_b32, &slots[0]);
                if (r < 0)
                        return r;
        }
        r = insn_emit_slots(p, OP_CVT, slots, 2, &in);
        if (r < 0)
                return r;
        in->type = (uint8_t)c.to;
        in->count = (uint8_t)c.from;
        in->sub = (uint8_t)c.round;
        in->size = (uint8_t)c.integral;
        in->flags = (uint8_t)c.flags;
        if (temp != slots[0]) {
                uint32_t widen[2] = {temp, slots[0]};

                r = insn_emit_slots(p, type_is(c.to, 's') ? OP_EXT_S32_64 : OP_EXT_U32_64, widen, 2,
                                    &in);
        }
        return r;
}
