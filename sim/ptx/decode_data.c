/* decode_data.c: owns the instructions that move, load and store. */
#include "sim/ptx/parser.h"

#include <string.h>

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
                r = insn_emit_slots(p, pack ? OP_PACK : OP_UNPACK, slots, vector->count + 1, &in);
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
        int r = operands_want(p, 2);

        if (r < 0)
                return r;
        if (type == TYPE_NONE || p->parts_n != 2)
                return decode_unknown_form(p);
        if (p->operand[0].kind == OPERAND_VECTOR || p->operand[1].kind == OPERAND_VECTOR)
                return decode_pack(p, type);
        r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r < 0)
                return r;
        r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r < 0)
                return r;
        return insn_emit_slots(p,
                               type == TYPE_pred       ? OP_MOV_PRED
                               : type_bits(type) == 64 ? OP_MOV_64
                                                       : OP_MOV_32,
                               slots, 2, &in);
}

/* Space, type and vector size of ld, st, atom and red. Cache and ordering hints change nothing,
 * because the simulated memory is as coherent as the host's. */
struct access {
        enum ptx_space space;
        enum ptx_type type;
        unsigned count;
        unsigned operation; /* atom: the part of the opcode that names the operation */
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
                        return decode_unknown_part(p, i);
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
                /* Parameters of a device function, and of a call, lie in local memory. */
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

/* Decodes a load of a kernel parameter from a fixed place. Its value is the same for the whole
 * launch, so it becomes a constant. */
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
                r = operand_any_register(p, e, &type);
                if (r < 0)
                        return r;
                if (type_lane_bits(type) < type_lane_bits(a->type))
                        return parser_fail_insn(p, "the register is too narrow");
                slots[0] = e->slot;
                r = constant_slot(p, CONSTANT_PARAM, offset + i * type_bytes(a->type),
                                  type_bytes(a->type), type_lane_bits(type), sign ? FLAG_SIGNED : 0,
                                  &slots[1]);
                if (r == 0)
                        r = insn_emit_slots(p, type_bits(type) == 64 ? OP_MOV_64 : OP_MOV_32, slots,
                                            2, &in);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Decodes the registers of a load or store, which all have the same lane width. */
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

/* Decodes ld. A cache policy after the address is not supported. */
int decode_load(struct parser *p)
{
        struct ptx_insn fields = {.guard = NO_SLOT};
        struct access a;
        int r = access_parts(p, false, &a);

        if (r < 0)
                return r;
        r = operands_want(p, 2);
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
        r = operands_want(p, 2);
        if (r == 0)
                r = address(p, &a, &p->operand[0], &fields);
        if (r < 0)
                return r;
        if (a.space == SPACE_CONST || a.space == SPACE_PARAM)
                return parser_fail_insn(p, "this memory cannot be written");
        r = access_registers(p, &a, &p->operand[1], false, &fields);
        return r < 0 ? r : emit_fields(p, OP_STORE, &fields);
}

/* The names of atomic operations, in the order of enum atomic_kind. */
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
                return decode_unknown_form(p);
        r = operands_want(p, first + (kind == ATOMIC_CAS ? 3 : 2));
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
        int r = operands_want(p, 2);

        if (r < 0)
                return r;
        if (type != TYPE_u64 || p->parts_n != at + 2)
                return decode_unknown_form(p);
        if (part_is(p, at, "shared") || part_is(p, at, "shared::cta"))
                window = WINDOW_SHARED;
        else if (part_is(p, at, "local"))
                window = WINDOW_LOCAL;
        else if (part_is(p, at, "param") || part_is(p, at, "param::entry"))
                window = p->f->entry ? WINDOW_PARAM : WINDOW_LOCAL;
        else if (!part_is(p, at, "global") && !part_is(p, at, "const"))
                return decode_unknown_part(p, at);
        r = operand_destination(p, &p->operand[0], type, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], type, &slots[1]);
        if (r == 0 && !window)
                return insn_emit_slots(p, OP_MOV_64, slots, 2, &in);
        if (r == 0)
                r = constant_slot(p, CONSTANT_VALUE, to ? ~WINDOW_MASK : window, 0, 64, 0,
                                  &slots[2]);
        return r < 0 ? r : insn_emit_slots(p, to ? OP_AND_64 : OP_OR_64, slots, 3, &in);
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
        int r = operands_want(p, 2);

        if (r == 0)
                r = operand_destination(p, &p->operand[0], TYPE_pred, &slots[0]);
        if (r == 0)
                r = operand_source(p, &p->operand[1], TYPE_u64, &slots[1]);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
                if (!part_is(p, 1, spaces[i].name))
                        continue;
                r = insn_emit_slots(p, OP_ISSPACE, slots, 2, &in);
                if (r == 0)
                        in->space = (uint8_t)spaces[i].space;
                return r;
        }
        return decode_unknown_form(p);
}

int decode_nothing(struct parser *p)
{
        return 0;
}
