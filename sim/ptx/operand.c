/* operand.c: owns operands: parses their text, and turns them into slots. */
#include "sim/ptx/parser.h"

#include <string.h>

enum ptx_type type_named(const char *text, uint32_t length)
{
        for (enum ptx_type t = TYPE_NONE + 1; t < TYPES; t++)
                if (strlen(ptx_type_info[t].name) == length &&
                    memcmp(ptx_type_info[t].name, text, length) == 0)
                        return t;
        return TYPE_NONE;
}

static const struct {
        const char *name;
        uint8_t bits;
} special[] = {
#define SPECIAL(name, id, bits) {name, bits},
#include "sim/ptx/specials.def"
};

/* -ENOENT: no such special register. */
static int special_named(const char *text, uint32_t length)
{
        for (size_t i = 0; i < ARRAY_SIZE(special); i++)
                if (strlen(special[i].name) == length && memcmp(special[i].name, text, length) == 0)
                        return (int)i;
        return -ENOENT;
}

static int number_term(struct parser *p, enum token_kind *ret_kind, uint64_t *ret_value)
{
        bool minus = false, invert = false;
        uint64_t v;

        while (lex_is(&p->lex, '-') || lex_is(&p->lex, '+') || lex_is(&p->lex, '~')) {
                if (lex_is(&p->lex, '-'))
                        minus = !minus;
                if (lex_is(&p->lex, '~'))
                        invert = true;
                lex_next(&p->lex);
        }
        v = p->lex.token.value;
        *ret_kind = p->lex.token.kind;
        switch (p->lex.token.kind) {
        case TOKEN_INTEGER:
                v = invert ? ~v : v;
                v = minus ? -v : v;
                break;
        case TOKEN_F32:
                v ^= minus ? UINT64_C(1) << 31 : 0;
                break;
        case TOKEN_F64:
                v ^= minus ? UINT64_C(1) << 63 : 0;
                break;
        default:
                return parser_fail(p, "a number is missing at '%.*s'",
                                   (int)MIN(p->lex.token.length, 32U), p->lex.token.text);
        }
        lex_next(&p->lex);
        *ret_value = v;
        return 0;
}

int number_parse(struct parser *p, enum token_kind *ret_kind, uint64_t *ret_value)
{
        uint64_t v = 0, w;
        enum token_kind kind, more;
        int r = number_term(p, &kind, &v);

        if (r < 0)
                return r;
        while (kind == TOKEN_INTEGER && (lex_is(&p->lex, '+') || lex_is(&p->lex, '-'))) {
                r = number_term(p, &more, &w);
                if (r < 0)
                        return r;
                if (more != TOKEN_INTEGER)
                        return parser_fail(p, "an integer and a float are added");
                v += w;
        }
        *ret_kind = kind;
        *ret_value = v;
        return 0;
}

static bool starts_number(const struct lexer *l)
{
        return l->token.kind == TOKEN_INTEGER || l->token.kind == TOKEN_F32 ||
               l->token.kind == TOKEN_F64 || lex_is(l, '-') || lex_is(l, '~') || lex_is(l, '+');
}

/* Fills in the operand for a name that is not a register. */
static void operand_symbol(struct parser *p, struct operand *o, const struct symbol *s)
{
        static const uint8_t kind[] = {
                [SYMBOL_PARAM] = CONSTANT_VALUE,
                [SYMBOL_LOCAL] = CONSTANT_LOCAL,
                [SYMBOL_SHARED] = CONSTANT_SHARED,
                [SYMBOL_SHARED_ENTRY] = CONSTANT_SHARED_ENTRY,
                [SYMBOL_SHARED_EXTERN] = CONSTANT_DYNAMIC,
                [SYMBOL_VARIABLE] = CONSTANT_VARIABLE,
                [SYMBOL_FUNCTION] = CONSTANT_FUNCTION,
        };

        o->symbol = s;
        switch (s->kind) {
        case SYMBOL_VARIABLE:
        case SYMBOL_FUNCTION:
                o->kind = OPERAND_ADDRESS;
                o->constant = kind[s->kind];
                o->index = (uint32_t)s->value;
                break;
        case SYMBOL_PARAM:
        case SYMBOL_LOCAL:
        case SYMBOL_SHARED:
        case SYMBOL_SHARED_ENTRY:
        case SYMBOL_SHARED_EXTERN:
                o->kind = OPERAND_ADDRESS;
                o->constant = kind[s->kind];
                o->value = s->value;
                break;
        default:
                o->kind = OPERAND_NAME;
        }
}

static int operand_name(struct parser *p, struct operand *o)
{
        struct symbol *s;
        int r;

        o->name = p->lex.token.text;
        o->length = p->lex.token.length;
        if (lex_is_word(&p->lex, "_")) {
                o->kind = OPERAND_SINK;
                o->slot = NO_SLOT;
                lex_next(&p->lex);
                return 0;
        }
        r = symbol_register(p, o->name, o->length, &o->type, &o->slot);
        if (r == 0) {
                o->kind = OPERAND_REGISTER;
                lex_next(&p->lex);
                return 0;
        }
        if (r != -ENOENT)
                return r;
        r = special_named(o->name, o->length);
        if (r >= 0) {
                o->kind = OPERAND_SPECIAL;
                o->special = (uint8_t)r;
                lex_next(&p->lex);
                return 0;
        }
        if (o->name[0] == '%')
                return parser_fail(p, "unknown register '%.*s'", (int)MIN(o->length, 64U), o->name);
        s = symbol_find(p, o->name, o->length);
        lex_next(&p->lex);
        if (!s) {
                o->kind = OPERAND_NAME; /* a label later in the text */
                return 0;
        }
        operand_symbol(p, o, s);
        if (o->kind == OPERAND_ADDRESS && (lex_is(&p->lex, '+') || lex_is(&p->lex, '-'))) {
                enum token_kind kind;
                uint64_t v;

                r = number_parse(p, &kind, &v);
                if (r < 0)
                        return r;
                if (kind != TOKEN_INTEGER)
                        return parser_fail(p, "an address plus a float");
                o->value += v;
        }
        return 0;
}

static int operand_memory(struct parser *p, struct operand *o)
{
        enum token_kind kind;
        uint64_t v;
        int r;

        lex_next(&p->lex);
        if (starts_number(&p->lex)) {
                r = number_parse(p, &kind, &o->value);
                if (r < 0)
                        return r;
                o->constant = CONSTANT_VALUE;
        } else if (p->lex.token.kind == TOKEN_WORD) {
                r = operand_name(p, o);
                if (r < 0)
                        return r;
                if (o->kind == OPERAND_REGISTER) {
                        o->base_register = true;
                        if (lex_is(&p->lex, '+') || lex_is(&p->lex, '-')) {
                                r = number_parse(p, &kind, &v);
                                if (r < 0)
                                        return r;
                                o->offset = (int64_t)v;
                        }
                } else if (o->kind != OPERAND_ADDRESS) {
                        return parser_fail(p, "'%.*s' is not an address", (int)MIN(o->length, 64U),
                                           o->name);
                }
        }
        o->kind = OPERAND_MEMORY;
        return parser_expect(p, ']');
}

static int operand_simple(struct parser *p, struct operand *o)
{
        int r;

        if (lex_is(&p->lex, '!')) {
                o->negated = true;
                lex_next(&p->lex);
        }
        if (starts_number(&p->lex)) {
                o->kind = OPERAND_NUMBER;
                return number_parse(p, &o->number, &o->value);
        }
        if (p->lex.token.kind == TOKEN_END)
                return parser_fail(p, "the text ends where an operand belongs");
        if (p->lex.token.kind != TOKEN_WORD)
                return parser_fail(p, "unexpected '%.*s'", (int)MIN(p->lex.token.length, 32U),
                                   p->lex.token.text);
        r = operand_name(p, o);
        if (r < 0)
                return r;
        if (lex_is(&p->lex, '|')) {
                enum ptx_type type;

                lex_next(&p->lex);
                if (lex_is_word(&p->lex, "_")) {
                        lex_next(&p->lex);
                        return 0;
                }
                if (p->lex.token.kind != TOKEN_WORD ||
                    symbol_register(p, p->lex.token.text, p->lex.token.length, &type, &o->second) <
                            0 ||
                    type != TYPE_pred)
                        return parser_fail(p, "a predicate is missing after '|'");
                lex_next(&p->lex);
        }
        return 0;
}

int operand_parse(struct parser *p, struct operand *o)
{
        *o = (struct operand){.slot = NO_SLOT, .second = NO_SLOT};
        if (lex_is(&p->lex, '['))
                return operand_memory(p, o);
        if (!lex_is(&p->lex, '{'))
                return operand_simple(p, o);
        o->kind = OPERAND_VECTOR;
        o->first = p->elements_n;
        do {
                struct operand *e;
                int r;

                lex_next(&p->lex);
                if (p->elements_n == ARRAY_SIZE(p->element) || o->count == 4)
                        return parser_fail(p, "more than 4 elements in a vector");
                e = &p->element[p->elements_n++];
                *e = (struct operand){.slot = NO_SLOT, .second = NO_SLOT};
                r = operand_simple(p, e);
                if (r < 0)
                        return r;
                o->count++;
        } while (lex_is(&p->lex, ','));
        return parser_expect(p, '}');
}

int operands_parse(struct parser *p)
{
        p->operands_n = p->elements_n = 0;
        if (lex_is(&p->lex, ';'))
                return 0;
        for (;;) {
                int r;

                if (p->operands_n == OPERANDS_MAX)
                        return parser_fail(p, "more than %d operands", OPERANDS_MAX);
                r = operand_parse(p, &p->operand[p->operands_n]);
                if (r < 0)
                        return r;
                p->operands_n++;
                if (!lex_is(&p->lex, ','))
                        return 0;
                lex_next(&p->lex);
        }
}

int insn_emit(struct parser *p, enum ptx_op op, struct ptx_insn **ret_insn)
{
        struct ptx_module *m = p->m;
        struct ptx_insn *in;

        if (m->insns_n >= NO_INDEX - 1 ||
            parser_grow(&m->insn, &p->insns_cap, m->insns_n + 1, sizeof(*m->insn)) < 0)
                return -ENOMEM;
        in = &m->insn[m->insns_n++];
        *in = (struct ptx_insn){.op = (uint16_t)op,
                                .guard = NO_SLOT,
                                .r = {NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT},
                                .line = p->line};
        *ret_insn = in;
        return 0;
}

static int number_bits(struct parser *p, const struct operand *o, enum ptx_type type,
                       uint64_t *ret_bits)
{
        unsigned bits = type_bits(type);
        uint64_t v = o->value;
        double d;

        if (o->number == TOKEN_INTEGER) {
                if (type_is(type, 'f') && bits >= 32 && type != TYPE_f16x2 && type != TYPE_bf16x2)
                        return parser_fail_insn(p, "an integer where a float belongs");
        } else if (o->number == TOKEN_F32 && bits == 64) {
                d = (double)half_float_of((uint32_t)v);
                memcpy(&v, &d, sizeof(v));
        } else if (o->number == TOKEN_F64 && bits == 32) {
                memcpy(&d, &v, sizeof(d));
                v = half_bits_of((float)d);
        } else if (bits < 32 && bits > 1) {
                return parser_fail_insn(p, "a 32-bit float where %u bits belong", bits);
        }
        *ret_bits = bits == 64 ? v : v & ((UINT64_C(1) << bits) - 1);
        return 0;
}

int operand_source(struct parser *p, const struct operand *o, enum ptx_type type,
                   uint32_t *ret_slot)
{
        struct ptx_insn *in;
        uint64_t v = 0;
        uint32_t temp;
        int r;

        switch (o->kind) {
        case OPERAND_REGISTER:
                if (type_lane_bits(o->type) != type_lane_bits(type))
                        return parser_fail_insn(p, "register '%.*s' is .%s where .%s belongs",
                                                (int)MIN(o->length, 64U), o->name,
                                                ptx_type_info[o->type].name,
                                                ptx_type_info[type].name);
                if (!o->negated) {
                        *ret_slot = o->slot;
                        return 0;
                }
                if (type != TYPE_pred)
                        return parser_fail_insn(p, "'!' before what is no predicate");
                r = slot_new(p, TYPE_pred, &temp);
                if (r < 0)
                        return r;
                r = insn_emit(p, OP_NOT_PRED, &in);
                if (r < 0)
                        return r;
                in->r[0] = temp;
                in->r[1] = o->slot;
                *ret_slot = temp;
                return 0;
        case OPERAND_NUMBER:
                r = number_bits(p, o, type, &v);
                if (r < 0)
                        return r;
                if (type == TYPE_pred)
                        return constant_slot(p, CONSTANT_PRED, (v != 0) != o->negated, 0, 1, 0,
                                             ret_slot);
                return constant_slot(p, CONSTANT_VALUE, v, 0, type_lane_bits(type), 0, ret_slot);
        case OPERAND_ADDRESS:
                if (type_lane_bits(type) == 1)
                        return parser_fail_insn(p, "an address where a predicate belongs");
                return constant_slot(p, o->constant, o->value, o->index, type_lane_bits(type), 0,
                                     ret_slot);
        case OPERAND_SPECIAL:
                if (special[o->special].bits != type_lane_bits(type))
                        return parser_fail_insn(p, "'%.*s' is %u bits wide", (int)o->length,
                                                o->name, special[o->special].bits);
                r = slot_new(p, type, &temp);
                if (r < 0)
                        return r;
                r = insn_emit(p, OP_SPECIAL, &in);
                if (r < 0)
                        return r;
                in->r[0] = temp;
                in->sub = o->special;
                *ret_slot = temp;
                return 0;
        default:
                return parser_fail_insn(p, "an operand is missing or of the wrong kind");
        }
}

int operand_destination(struct parser *p, const struct operand *o, enum ptx_type type,
                        uint32_t *ret_slot)
{
        if (o->kind != OPERAND_REGISTER && !(o->kind == OPERAND_SINK))
                return parser_fail_insn(p, "the destination is no register");
        if (o->kind == OPERAND_SINK)
                return slot_new(p, type, ret_slot);
        if (type_lane_bits(o->type) != type_lane_bits(type))
                return parser_fail_insn(p, "register '%.*s' is .%s where .%s belongs",
                                        (int)MIN(o->length, 64U), o->name,
                                        ptx_type_info[o->type].name, ptx_type_info[type].name);
        *ret_slot = o->slot;
        return 0;
}

int operand_any_register(struct parser *p, const struct operand *o, enum ptx_type *ret_type)
{
        if (o->kind != OPERAND_REGISTER || o->type == TYPE_pred)
                return parser_fail_insn(p, "a register is missing");
        *ret_type = o->type;
        return 0;
}
