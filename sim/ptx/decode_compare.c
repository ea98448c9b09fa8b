/* decode_compare.c: owns comparisons and selections: setp, set, selp, slct. */
#include "sim/ptx/parser.h"

/* Finds the operation for a comparison. The table has the first operation of each type; in ops.def
 * the others follow in the order of enum compare_kind. */
static int compare_op(enum ptx_type type, unsigned kind, uint16_t *ret_op)
{
        static const uint16_t first_float[2] = {OP_EQ_F32, OP_EQ_F64};
        static const uint16_t equal[3] = {OP_EQ_16, OP_EQ_32, OP_EQ_64};
        static const uint16_t less[2][3] = {{OP_LT_U16, OP_LT_U32, OP_LT_U64},
                                            {OP_LT_S16, OP_LT_S32, OP_LT_S64}};
        unsigned bits = type_bits(type), width = bits == 16 ? 0 : bits == 32 ? 1 : 2;

        if (type == TYPE_f32 || type == TYPE_f64) {
                *ret_op = (uint16_t)(first_float[type == TYPE_f64] + kind);
                return 0;
        }
        if (type_is(type, 'f') || bits < 16 || kind > COMPARE_GE)
                return -EINVAL;
        if (kind <= COMPARE_NE)
                *ret_op = (uint16_t)(equal[width] + kind);
        else
                *ret_op = (uint16_t)(less[type_is(type, 's')][width] + kind - COMPARE_LT);
        return 0;
}

struct compare {
        unsigned kind;
        enum ptx_compare combine;
        enum ptx_type type;   /* type of the compared values */
        enum ptx_type result; /* type of the result of set */
        bool ftz;
};

static int compare_parts(struct parser *p, struct compare *c)
{
        static const char *const kind[COMPARE_KINDS] = {"eq",  "ne",  "lt",  "le",  "gt",
                                                        "ge",  "equ", "neu", "ltu", "leu",
                                                        "gtu", "geu", "num", "nan"};
        static const struct {
                const char *name;
                uint8_t kind;
        } unsigned_kind[] = {
                {"lo", COMPARE_LT}, {"ls", COMPARE_LE}, {"hi", COMPARE_GT}, {"hs", COMPARE_GE}};
        static const char *const combine[] = {"", "and", "or", "xor"};
        bool have_kind = false;

        *c = (struct compare){0};
        for (unsigned i = 1; i < p->parts_n; i++) {
                bool known = false;

                for (unsigned k = 0; k < COMPARE_KINDS && !have_kind; k++)
                        if (part_is(p, i, kind[k])) {
                                c->kind = k;
                                known = true;
                        }
                for (unsigned k = 0; k < ARRAY_SIZE(unsigned_kind) && !have_kind; k++)
                        if (part_is(p, i, unsigned_kind[k].name)) {
                                c->kind = unsigned_kind[k].kind;
                                known = true;
                        }
                have_kind = have_kind || known;
                for (unsigned k = 1; k < ARRAY_SIZE(combine) && !known; k++)
                        if (part_is(p, i, combine[k])) {
                                c->combine = k;
                                known = true;
                        }
                if (!known && part_is(p, i, "ftz"))
                        known = c->ftz = true;
                if (!known && part_type(p, i) != TYPE_NONE) {
                        c->result = c->type;
                        c->type = part_type(p, i);
                        known = true;
                }
                if (!known)
                        return decode_unknown_part(p, i);
        }
        if (!have_kind || c->type == TYPE_NONE || c->type == TYPE_pred)
                return decode_unknown_form(p);
        return 0;
}

/* Emits a comparison of operands 1 and 2 into predicate d. */
static int emit_compare(struct parser *p, const struct compare *c, uint32_t d)
{
        bool half = c->type == TYPE_f16 || c->type == TYPE_bf16;
        uint32_t slots[3] = {d};
        struct ptx_insn *in;
        uint16_t op = OP_COMPARE_HALF;
        int r = operand_source(p, &p->operand[1], c->type, &slots[1]);

        if (r == 0)
                r = operand_source(p, &p->operand[2], c->type, &slots[2]);
        if (r < 0)
                return r;
        if (!half && compare_op(c->type, c->kind, &op) < 0)
                return decode_unknown_form(p);
        for (unsigned i = 1; i < 3 && c->ftz && c->type == TYPE_f32; i++) {
                uint32_t flush[2] = {0, slots[i]};

                r = slot_new(p, TYPE_f32, &flush[0]);
                if (r == 0)
                        r = insn_emit_slots(p, OP_FTZ_F32, flush, 2, &in);
                if (r < 0)
                        return r;
                slots[i] = flush[0];
        }
        r = insn_emit_slots(p, op, slots, 3, &in);
        if (r == 0) {
                in->type = (uint8_t)c->type;
                in->sub = (uint8_t)c->kind;
        }
        return r;
}

/* Decodes the predicate with which setp or set combines its comparison; NO_SLOT: there is none. */
static int combine_operand(struct parser *p, const struct compare *c, unsigned n,
                           uint32_t *ret_slot)
{
        int r = operands_want(p, c->combine == COMBINE_NONE ? n : n + 1);

        *ret_slot = NO_SLOT;
        if (r == 0 && c->combine != COMBINE_NONE)
                r = operand_source(p, &p->operand[n], TYPE_pred, ret_slot);
        return r;
}

int decode_setp(struct parser *p)
{
        const struct operand *d = &p->operand[0];
        uint32_t slots[4] = {NO_SLOT, d->second, NO_SLOT, NO_SLOT};
        struct ptx_insn *in;
        struct compare c;
        int r = compare_parts(p, &c);

        if (r == 0)
                r = combine_operand(p, &c, 3, &slots[3]);
        if (r < 0)
                return r;
        if (c.result != TYPE_NONE)
                return parser_fail_insn(p, "two types");
        if (d->kind != OPERAND_SINK)
                r = operand_destination(p, d, TYPE_pred, &slots[0]);
        if (r < 0)
                return r;
        if (c.combine == COMBINE_NONE && d->second == NO_SLOT && slots[0] != NO_SLOT)
                return emit_compare(p, &c, slots[0]);
        r = slot_new(p, TYPE_pred, &slots[2]);
        if (r == 0)
                r = emit_compare(p, &c, slots[2]);
        if (r == 0)
                r = insn_emit_slots(p, OP_SET_COMBINE, slots, 4, &in);
        if (r == 0)
                in->sub = (uint8_t)c.combine;
        return r;
}

int decode_set(struct parser *p)
{
        uint32_t slots[4] = {NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT}, value[2];
        struct ptx_insn *in;
        struct compare c;
        int r = compare_parts(p, &c);

        if (r == 0)
                r = combine_operand(p, &c, 3, &slots[3]);
        if (r < 0)
                return r;
        if (c.result != TYPE_u32 && c.result != TYPE_s32 && c.result != TYPE_f32 &&
            c.result != TYPE_b32)
                return decode_unknown_form(p);
        r = operand_destination(p, &p->operand[0], c.result, &value[0]);
        if (r == 0)
                r = slot_new(p, TYPE_pred, &slots[2]);
        if (r == 0)
                r = slot_new(p, TYPE_pred, &slots[0]);
        if (r == 0)
                r = emit_compare(p, &c, slots[2]);
        if (r == 0)
                r = insn_emit_slots(p, OP_SET_COMBINE, slots, 4, &in);
        if (r < 0)
                return r;
        in->sub = (uint8_t)c.combine;
        value[1] = slots[0];
        r = insn_emit_slots(p, OP_SET_VALUE, value, 2, &in);
        if (r == 0)
                in->sub = c.result == TYPE_f32;
        return r;
}

int decode_selp(struct parser *p)
{
        enum ptx_type type = part_type(p, 1);
        struct ptx_insn *in;
        uint32_t slots[4];
        int r = operands_want(p, 4);

        if (r == 0 && (type == TYPE_NONE || type == TYPE_pred || p->parts_n != 2))
                r = decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0)
                r = operand_source(p, &p->operand[2], type, &slots[2]);
        if (r == 0)
                r = operand_source(p, &p->operand[3], TYPE_pred, &slots[3]);
        return r < 0 ? r
                     : insn_emit_slots(p, type_bits(type) == 64 ? OP_SELP_64 : OP_SELP_32, slots, 4,
                                       &in);
}

int decode_slct(struct parser *p)
{
        unsigned at = part_is(p, 1, "ftz") ? 2 : 1;
        enum ptx_type type = part_type(p, at), by = part_type(p, at + 1);
        struct ptx_insn *in;
        uint32_t slots[4];
        int r = operands_want(p, 4);

        if (r == 0 && (type == TYPE_NONE || type == TYPE_pred || p->parts_n != at + 2 ||
                       (by != TYPE_s32 && by != TYPE_f32)))
                r = decode_unknown_form(p);
        if (r == 0)
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0)
                r = operand_source(p, &p->operand[2], type, &slots[2]);
        if (r == 0)
                r = operand_source(p, &p->operand[3], by, &slots[3]);
        if (r == 0)
                r = insn_emit_slots(p, OP_SLCT, slots, 4, &in);
        if (r == 0) {
                in->size = type_lane_bits(type) / 8;
                in->sub = by == TYPE_f32;
        }
        return r;
}
