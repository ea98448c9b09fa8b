/* decode_data.c: owns the instructions that move, load, store, convert and compare. */
#include "ptx/parser.h"

#include <string.h>

static int emit(struct parser *p, enum ptx_op op, const uint32_t *slots, unsigned n,
                struct ptx_insn **ret_insn)
{
        int r = insn_emit(p, op, ret_insn);

        if (r < 0)
                return r;
        memcpy((*ret_insn)->r, slots, n * sizeof(*slots));
        return 0;
}

static int want_operands(struct parser *p, unsigned n)
{
        if (p->operands_n != n)
                return parser_fail_insn(p, "%u operands where %u belong", p->operands_n, n);
        return 0;
}

static enum ptx_type part_type(const struct parser *p, unsigned i)
{
        return i < p->parts_n ? type_named(p->part[i].text, p->part[i].length) : TYPE_NONE;
}

static int unknown_part(struct parser *p, unsigned i)
{
        return parser_fail_insn(p, "unknown modifier '.%.*s'", (int)MIN(p->part[i].length, 32U),
                                p->part[i].text);
}

/* Registers of another width than the instruction's are allowed for loads, stores and cvt. */
static int any_register(struct parser *p, const struct operand *o, enum ptx_type *ret_type)
{
        if (o->kind != OPERAND_REGISTER || o->type == TYPE_pred)
                return parser_fail_insn(p, "a register is missing");
        *ret_type = o->type;
        return 0;
}

static int decode_pack(struct parser *p, enum ptx_type type)
{
        bool pack = p->operand[1].kind == OPERAND_VECTOR;
        const struct operand *vector = &p->operand[pack ? 1 : 0],
                             *scalar = &p->operand[pack ? 0 : 1];
        unsigned bits = type_bits(type) / MAX(vector->count, 1U);
        enum ptx_type element = bits == 32 ? TYPE_b32 : bits == 16 ? TYPE_b16 : TYPE_b8;
        uint32_t slots[5];
        struct ptx_insn *in;
        int r;

        if ((vector->count != 2 && vector->count != 4) || type_bits(type) < 16)
                return parser_fail_insn(p, "%u elements in a .%s", vector->count,
                                        ptx_type_info[type].name);
        r = pack ? operand_destination(p, scalar, type, &slots[0])
                 : operand_source(p, scalar, type, &slots[0]);
        for (unsigned i = 0; i < vector->count && r == 0; i++) {
                const struct operand *o = &p->element[vector->first + i];

                r = pack ? operand_source(p, o, element, &slots[1 + i])
                         : operand_destination(p, o, element, &slots[1 + i]);
        }
        if (r == 0)
                r = emit(p, pack ? OP_PACK : OP_UNPACK, slots, vector->count + 1, &in);
        if (r < 0)
                return r;
        in->size = (uint8_t)(bits / 8);
        in->count = (uint8_t)vector->count;
        in->flags = type_bits(type) == 64 ? FLAG_WIDE : 0;
        return 0;
}

int decode_mov(struct parser *p)
{
        enum ptx_type type = part_type(p, 1);
        struct ptx_insn *in;
        uint32_t slots[2];
        int r = want_operands(p, 2);

        if (r < 0)
                return r;
        if (type == TYPE_NONE || p->parts_n != 2)
                return parser_fail_insn(p, "this form of the instruction is not known");
        if (p->operand[0].kind == OPERAND_VECTOR || p->operand[1].kind == OPERAND_VECTOR)
                return decode_pack(p, type);
        r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r < 0)
                return r;
        r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r < 0)
                return r;
        return emit(p,
                    type == TYPE_pred       ? OP_MOV_PRED
                    : type_bits(type) == 64 ? OP_MOV_64
                                            : OP_MOV_32,
                    slots, 2, &in);
}

/* Space, type, vector size of ld, st, atom and red; cache and ordering hints change nothing here:
 * memory is as coherent as the machine's own. */
struct access {
        enum ptx_space space;
        enum ptx_type type;
        unsigned count;
        unsigned operation; /* part that names it, for atom */
};

static bool is_hint(const struct parser *p, unsigned i)
{
        static const char *const hint[] = {
                "ca",  "cg",   "cs",       "cv",      "lu",      "wb",      "wt",
                "nc",  "weak", "volatile", "relaxed", "acquire", "release", "acq_rel",
                "sys", "gpu",  "cta",      "cluster", "mmio",    "noftz",   "unified"};
        const struct opcode_part *part = &p->part[i];

        for (size_t k = 0; k < ARRAY_SIZE(hint); k++)
                if (part_is(p, i, hint[k]))
                        return true;
        return part->length > 4 &&
               (memcmp(part->text, "L1::", 4) == 0 || memcmp(part->text, "L2::", 4) == 0);
}

static int access_parts(struct parser *p, bool atomic, struct access *a)
{
        static const struct {
                const char *name;
                enum ptx_space space;
        } spaces[] = {{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED},
                      {"shared::cta", SPACE_SHARED}, {"local", SPACE_LOCAL},
                      {"param", SPACE_PARAM},        {"param::entry", SPACE_PARAM},
                      {"param::func", SPACE_PARAM},  {"const", SPACE_CONST}};

        *a = (struct access){.space = SPACE_GENERIC, .count = 1};
        for (unsigned i = 1; i < p->parts_n; i++) {
                bool known = is_hint(p, i);

                for (size_t k = 0; k < ARRAY_SIZE(spaces); k++)
                        if (part_is(p, i, spaces[k].name)) {
                                a->space = spaces[k].space;
                                known = true;
                        }
                if (part_is(p, i, "v2") || part_is(p, i, "v4")) {
                        a->count = (unsigned)(p->part[i].text[1] - '0');
                        known = true;
                }
                if (!known && part_type(p, i) != TYPE_NONE) {
                        a->type = part_type(p, i);
                        known = true;
                }
                if (!known && atomic && !a->operation) {
                        a->operation = i;
                        known = true;
                }
                if (!known)
                        return unknown_part(p, i);
        }
        if (a->type == TYPE_NONE || a->type == TYPE_pred)
                return parser_fail_insn(p, "the type is missing");
        return 0;
}

static int address(struct parser *p, struct access *a, const struct operand *o,
                   struct ptx_insn *ret_fields)
{
        uint8_t kind = o->constant;
        uint32_t slot;
        int r;

        if (o->kind != OPERAND_MEMORY)
                return parser_fail_insn(p, "the address is missing");
        if (o->base_register) {
                if (o->type == TYPE_pred || type_bits(o->type) < 32)
                        return parser_fail_insn(p, "a .%s register as an address",
                                                ptx_type_info[o->type].name);
                if (type_bits(o->type) == 32)
                        ret_fields->flags |= FLAG_ADDRESS32;
                ret_fields->r[5] = o->slot;
                ret_fields->offset = o->offset;
                if (a->space == SPACE_PARAM && !p->f->entry)
                        a->space = SPACE_LOCAL;
        } else {
                /* A function's parameters, and those of a call being made, are local memory. */
                if (kind == CONSTANT_LOCAL && a->space == SPACE_PARAM)
                        a->space = SPACE_LOCAL;
                if (kind == CONSTANT_VARIABLE && a->space == SPACE_GENERIC)
                        a->space = SPACE_GLOBAL;
                r = constant_slot(p, kind, o->value, o->index, 64, 0, &slot);
                if (r < 0)
                        return r;
                ret_fields->r[5] = slot;
                ret_fields->offset = 0;
        }
        ret_fields->space = (uint8_t)a->space;
        ret_fields->cache = p->m->caches_n++;
        return 0;
}

/* A parameter of the kernel at a fixed place is the same for the whole launch: a constant. */
static int load_parameter(struct parser *p, const struct access *a, uint32_t offset)
{
        const struct operand *d = &p->operand[0];

        for (unsigned i = 0; i < a->count; i++) {
                const struct operand *e = d->kind == OPERAND_VECTOR ? &p->element[d->first + i] : d;
                bool sign = type_is(a->type, 's');
                struct ptx_insn *in;
                enum ptx_type type = TYPE_NONE;
                uint32_t slots[2];
                int r;

                if (e->kind == OPERAND_SINK)
                        continue;
                r = any_register(p, e, &type);
                if (r < 0)
                        return r;
                if (type_lane_bits(type) < type_lane_bits(a->type))
                        return parser_fail_insn(p, "the register is too narrow");
                slots[0] = e->slot;
                r = constant_slot(p, CONSTANT_PARAM, offset + i * type_bytes(a->type),
                                  type_bytes(a->type), type_lane_bits(type), sign ? FLAG_SIGNED : 0,
                                  &slots[1]);
                if (r == 0)
                        r = emit(p, type_bits(type) == 64 ? OP_MOV_64 : OP_MOV_32, slots, 2, &in);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* The registers of a load or store, all of one lane width. */
static int access_registers(struct parser *p, const struct access *a, const struct operand *o,
                            bool load, struct ptx_insn *fields)
{
        enum ptx_type type = a->type;
        bool decided = false;
        int r;

        if (o->kind == OPERAND_VECTOR ? o->count != a->count : a->count != 1)
                return parser_fail_insn(p, "the number of registers does not match");
        for (unsigned i = 0; i < a->count; i++) {
                const struct operand *e = o->kind == OPERAND_VECTOR ? &p->element[o->first + i] : o;

                if (e->kind != OPERAND_REGISTER)
                        continue;
                if (e->type == TYPE_pred || type_lane_bits(e->type) < type_lane_bits(a->type))
                        return parser_fail_insn(p, "register '%.*s' is .%s",
                                                (int)MIN(e->length, 64U), e->name,
                                                ptx_type_info[e->type].name);
                if (decided && type_lane_bits(e->type) != type_lane_bits(type))
                        return parser_fail_insn(p, "registers of different widths");
                type = e->type;
                decided = true;
        }
        for (unsigned i = 0; i < a->count; i++) {
                const struct operand *e = o->kind == OPERAND_VECTOR ? &p->element[o->first + i] : o;
                enum ptx_type t = e->kind == OPERAND_REGISTER                       ? e->type
                                  : type_lane_bits(type) == type_lane_bits(a->type) ? a->type
                                                                                    : type;

                if (load && e->kind == OPERAND_SINK)
                        r = slot_new(p, t, &fields->r[i]);
                else if (load)
                        r = operand_destination(p, e, t, &fields->r[i]);
                else
                        r = operand_source(p, e, t, &fields->r[i]);
                if (r < 0)
                        return r;
        }
        if (type_lane_bits(type) == 64)
                fields->flags |= FLAG_WIDE;
        if (type_is(a->type, 's'))
                fields->flags |= FLAG_SIGNED;
        fields->size = (uint8_t)type_bytes(a->type);
        fields->count = (uint8_t)a->count;
        fields->type = (uint8_t)a->type;
        return 0;
}

static int emit_fields(struct parser *p, enum ptx_op op, const struct ptx_insn *fields)
{
        struct ptx_insn *in;
        int r = insn_emit(p, op, &in);

        if (r < 0)
                return r;
        *in = *fields;
        in->op = (uint16_t)op;
        in->line = p->line;
        return 0;
}

/* Operands past the address are cache policies. */
int decode_load(struct parser *p)
{
        struct ptx_insn fields = {.guard = NO_SLOT};
        struct access a;
        int r = access_parts(p, false, &a);

        if (r < 0)
                return r;
        r = want_operands(p, 2);
        if (r < 0)
                return r;
        if (p->operand[1].kind == OPERAND_MEMORY && !p->operand[1].base_register &&
            p->operand[1].symbol && p->operand[1].symbol->kind == SYMBOL_PARAM) {
                const struct symbol *s = p->operand[1].symbol;
                uint64_t offset = p->operand[1].value, bytes = type_bytes(a.type) * a.count;

                if (a.space != SPACE_PARAM)
                        return parser_fail_insn(p, "a parameter in another space");
                if (offset < s->value || offset + bytes > s->value + s->count)
                        return parser_fail_insn(p, "beyond the parameter's end");
                if (p->operand[0].kind == OPERAND_VECTOR ? p->operand[0].count != a.count
                                                         : a.count != 1)
                        return parser_fail_insn(p, "the number of registers does not match");
                return load_parameter(p, &a, (uint32_t)offset);
        }
        r = address(p, &a, &p->operand[1], &fields);
        if (r == 0)
                r = access_registers(p, &a, &p->operand[0], true, &fields);
        return r < 0 ? r : emit_fields(p, OP_LOAD, &fields);
}

int decode_store(struct parser *p)
{
        struct ptx_insn fields = {.guard = NO_SLOT};
        struct access a;
        int r = access_parts(p, false, &a);

        if (r < 0)
                return r;
        r = want_operands(p, 2);
        if (r == 0)
                r = address(p, &a, &p->operand[0], &fields);
        if (r < 0)
                return r;
        if (a.space == SPACE_CONST || a.space == SPACE_PARAM)
                return parser_fail_insn(p, "this memory cannot be written");
        r = access_registers(p, &a, &p->operand[1], false, &fields);
        return r < 0 ? r : emit_fields(p, OP_STORE, &fields);
}

/* In the order of enum atomic_kind. */
static const char *const atomic_name[] = {"add", "min",  "max", "and", "or",
                                          "xor", "exch", "cas", "inc", "dec"};

int decode_atomic(struct parser *p)
{
        bool red = part_is(p, 0, "red");
        struct ptx_insn fields = {.guard = NO_SLOT};
        unsigned kind, first = red ? 0 : 1;
        struct access a;
        bool floats, sized;
        int r = access_parts(p, true, &a);

        if (r < 0)
                return r;
        for (kind = 0; kind < ARRAY_SIZE(atomic_name); kind++)
                if (a.operation && part_is(p, a.operation, atomic_name[kind]))
                        break;
        floats = type_is(a.type, 'f');
        sized = type_bits(a.type) == 32 || type_bits(a.type) == 64;
        if (kind == ARRAY_SIZE(atomic_name) || a.count != 1 || !sized ||
            (floats && kind != ATOMIC_ADD) ||
            (red && (kind == ATOMIC_EXCH || kind == ATOMIC_CAS)) ||
            ((kind == ATOMIC_INC || kind == ATOMIC_DEC) && a.type != TYPE_u32))
                return parser_fail_insn(p, "this form of the instruction is not known");
        r = want_operands(p, first + (kind == ATOMIC_CAS ? 3 : 2));
        if (r == 0)
                r = address(p, &a, &p->operand[first], &fields);
        if (r < 0)
                return r;
        if (a.space != SPACE_GENERIC && a.space != SPACE_GLOBAL && a.space != SPACE_SHARED)
                return parser_fail_insn(p, "atomics work on global and shared memory");
        fields.r[0] = NO_SLOT;
        if (!red && p->operand[0].kind != OPERAND_SINK)
                r = operand_destination(p, &p->operand[0], a.type, &fields.r[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[first + 1], a.type, &fields.r[1]);
        if (r == 0 && kind == ATOMIC_CAS)
                r = operand_source(p, &p->operand[first + 2], a.type, &fields.r[2]);
        if (r < 0)
                return r;
        fields.size = (uint8_t)type_bytes(a.type);
        fields.count = 1;
        fields.type = (uint8_t)a.type;
        fields.sub = (uint8_t)kind;
        return emit_fields(p, OP_ATOMIC, &fields);
}

int decode_cvta(struct parser *p)
{
        bool to = part_is(p, 1, "to");
        unsigned at = to ? 2 : 1;
        enum ptx_type type = part_type(p, at + 1);
        uint64_t window = 0;
        struct ptx_insn *in;
        uint32_t slots[3];
        int r = want_operands(p, 2);

        if (r < 0)
                return r;
        if (type != TYPE_u64 || p->parts_n != at + 2)
                return parser_fail_insn(p, "this form of the instruction is not known");
        if (part_is(p, at, "shared") || part_is(p, at, "shared::cta"))
                window = WINDOW_SHARED;
        else if (part_is(p, at, "local"))
                window = WINDOW_LOCAL;
        else if (part_is(p, at, "param") || part_is(p, at, "param::entry"))
                window = p->f->entry ? WINDOW_PARAM : WINDOW_LOCAL;
        else if (!part_is(p, at, "global") && !part_is(p, at, "const"))
                return unknown_part(p, at);
        r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0 && !window)
                return emit(p, OP_MOV_64, slots, 2, &in);
        if (r == 0)
                r = constant_slot(p, CONSTANT_VALUE, to ? ~WINDOW_MASK : window, 0, 64, 0,
                                  &slots[2]);
        return r < 0 ? r : emit(p, to ? OP_AND_64 : OP_OR_64, slots, 3, &in);
}

int decode_isspacep(struct parser *p)
{
        static const struct {
                const char *name;
                enum ptx_space space;
        } spaces[] = {{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED},
                      {"shared::cta", SPACE_SHARED}, {"local", SPACE_LOCAL},
                      {"const", SPACE_CONST},        {"param", SPACE_PARAM},
                      {"param::entry", SPACE_PARAM}};
        struct ptx_insn *in;
        uint32_t slots[2];
        int r = want_operands(p, 2);

        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_pred, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], TYPE_u64, &slots[1]);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
                if (!part_is(p, 1, spaces[i].name))
                        continue;
                r = emit(p, OP_ISSPACE, slots, 2, &in);
                if (r == 0)
                        in->space = (uint8_t)spaces[i].space;
                return r;
        }
        return parser_fail_insn(p, "this form of the instruction is not known");
}

int decode_nothing(struct parser *p)
{
        return 0;
}

/* The frequent conversions that need no look at single lanes. OP_CVT: there is none. */
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
        /* by bits (8, 16, 32), sign, from 64, to 64 */
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
        /* Cut to the narrower type, extended by its sign; a register wider than both (64) and a
         * destination type in between are left to the general way. */
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
                        return unknown_part(p, i);
                c->round = mode[k].round ? mode[k].round : c->round;
                c->integral = mode[k].integral ? mode[k].integral : c->integral;
                c->flags |= mode[k].flags;
        }
        if (c->from == TYPE_NONE || c->to == TYPE_pred || c->from == TYPE_pred ||
            c->to == TYPE_f16x2 || c->to == TYPE_bf16x2 || c->from == TYPE_f16x2 ||
            c->from == TYPE_bf16x2)
                return parser_fail_insn(p, "this form of the instruction is not known");
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
                r = want_operands(p, 2);
        if (r == 0)
                r = any_register(p, &p->operand[0], &register_to);
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
                return emit(p, op, slots, 2, &in);
        /* The general way wants registers of the types' own width. */
        if (wide_from && type_lane_bits(c.from) == 32) {
                uint32_t cut[2] = {0, slots[1]};

                r = slot_new(p, TYPE_b32, &cut[0]);
                if (r == 0)
                        r = emit(p, OP_CUT_64_32, cut, 2, &in);
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
        r = emit(p, OP_CVT, slots, 2, &in);
        if (r < 0)
                return r;
        in->type = (uint8_t)c.to;
        in->count = (uint8_t)c.from;
        in->sub = (uint8_t)c.round;
        in->size = (uint8_t)c.integral;
        in->flags = (uint8_t)c.flags;
        if (temp != slots[0]) {
                uint32_t widen[2] = {temp, slots[0]};

                r = emit(p, type_is(c.to, 's') ? OP_EXT_S32_64 : OP_EXT_U32_64, widen, 2, &in);
        }
        return r;
}

/* The first comparison of ops.def for each type; the kinds follow in the order of compare_kind. */
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
        enum ptx_type type, result; /* result: set */
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
                        return unknown_part(p, i);
        }
        if (!have_kind || c->type == TYPE_NONE || c->type == TYPE_pred)
                return parser_fail_insn(p, "this form of the instruction is not known");
        return 0;
}

/* Compares operands 1 and 2 into a fresh or given predicate. */
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
                return parser_fail_insn(p, "this form of the instruction is not known");
        for (unsigned i = 1; i < 3 && c->ftz && c->type == TYPE_f32; i++) {
                uint32_t flush[2] = {0, slots[i]};

                r = slot_new(p, TYPE_f32, &flush[0]);
                if (r == 0)
                        r = emit(p, OP_FTZ_F32, flush, 2, &in);
                if (r < 0)
                        return r;
                slots[i] = flush[0];
        }
        r = emit(p, op, slots, 3, &in);
        if (r == 0) {
                in->type = (uint8_t)c->type;
                in->sub = (uint8_t)c->kind;
        }
        return r;
}

/* setp and set: the comparison, then what is made of it. */
static int combine_operand(struct parser *p, const struct compare *c, unsigned n,
                           uint32_t *ret_slot)
{
        int r = want_operands(p, c->combine == COMBINE_NONE ? n : n + 1);

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
                r = emit(p, OP_SET_COMBINE, slots, 4, &in);
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
                return parser_fail_insn(p, "this form of the instruction is not known");
        r = operand_destination(p, &p->operand[0], c.result, &value[0]);
        if (r == 0)
                r = slot_new(p, TYPE_pred, &slots[2]);
        if (r == 0)
                r = slot_new(p, TYPE_pred, &slots[0]);
        if (r == 0)
                r = emit_compare(p, &c, slots[2]);
        if (r == 0)
                r = emit(p, OP_SET_COMBINE, slots, 4, &in);
        if (r < 0)
                return r;
        in->sub = (uint8_t)c.combine;
        value[1] = slots[0];
        r = emit(p, OP_SET_VALUE, value, 2, &in);
        if (r == 0)
                in->sub = c.result == TYPE_f32;
        return r;
}

int decode_selp(struct parser *p)
{
        enum ptx_type type = part_type(p, 1);
        struct ptx_insn *in;
        uint32_t slots[4];
        int r = want_operands(p, 4);

        if (r == 0 && (type == TYPE_NONE || type == TYPE_pred || p->parts_n != 2))
                r = parser_fail_insn(p, "this form of the instruction is not known");
        if (r == 0)
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0)
                r = operand_source(p, &p->operand[2], type, &slots[2]);
        if (r == 0)
                r = operand_source(p, &p->operand[3], TYPE_pred, &slots[3]);
        return r < 0 ? r : emit(p, type_bits(type) == 64 ? OP_SELP_64 : OP_SELP_32, slots, 4, &in);
}

int decode_slct(struct parser *p)
{
        unsigned at = part_is(p, 1, "ftz") ? 2 : 1;
        enum ptx_type type = part_type(p, at), by = part_type(p, at + 1);
        struct ptx_insn *in;
        uint32_t slots[4];
        int r = want_operands(p, 4);

        if (r == 0 && (type == TYPE_NONE || type == TYPE_pred || p->parts_n != at + 2 ||
                       (by != TYPE_s32 && by != TYPE_f32)))
                r = parser_fail_insn(p, "this form of the instruction is not known");
        if (r == 0)
                r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0)
                r = operand_source(p, &p->operand[2], type, &slots[2]);
        if (r == 0)
                r = operand_source(p, &p->operand[3], by, &slots[3]);
        if (r == 0)
                r = emit(p, OP_SLCT, slots, 4, &in);
        if (r == 0) {
                in->size = type_lane_bits(type) / 8;
                in->sub = by == TYPE_f32;
        }
        return r;
}
