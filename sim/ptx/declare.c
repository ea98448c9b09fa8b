/* declare.c: owns declarations: registers, variables with their initial bytes, parameters. It must
 * never take a size from the text unchecked. */
#include "sim/ptx/declare.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct declarator {
        enum ptx_type type;
        unsigned vector;
        uint64_t align; /* 0: the text names no alignment */
        struct token name;
        uint64_t elements;
        bool open; /* [] in the text: the initial values or the launch give the number */
};

static int declare_type(struct parser *p, struct declarator *d)
{
        *d = (struct declarator){.vector = 1};
        while (p->lex.token.kind == TOKEN_WORD && p->lex.token.text[0] == '.') {
                const char *text = p->lex.token.text + 1;
                uint32_t length = p->lex.token.length - 1;
                enum ptx_type type = type_named(text, length);

                if (type != TYPE_NONE) {
                        d->type = type;
                } else if (lex_is_word(&p->lex, ".v2") || lex_is_word(&p->lex, ".v4")) {
                        d->vector = (unsigned)(text[1] - '0');
                } else if (lex_is_word(&p->lex, ".align")) {
                        lex_next(&p->lex);
                        d->align = p->lex.token.value;
                        if (p->lex.token.kind != TOKEN_INTEGER || d->align == 0 ||
                            (d->align & (d->align - 1)) || d->align > 4096)
                                return parser_fail(p, "an alignment that is no power of two");
                } else if (!lex_is_word(&p->lex, ".ptr") && !lex_is_word(&p->lex, ".global") &&
                           !lex_is_word(&p->lex, ".const") && !lex_is_word(&p->lex, ".shared") &&
                           !lex_is_word(&p->lex, ".local") && !lex_is_word(&p->lex, ".attribute")) {
                        return parser_fail(p, "unknown declaration '%.*s'",
                                           (int)MIN(length + 1, 32U), p->lex.token.text);
                } else if (lex_is_word(&p->lex, ".attribute")) {
                        while (!lex_is(&p->lex, ')') && p->lex.token.kind != TOKEN_END)
                                lex_next(&p->lex);
                }
                lex_next(&p->lex);
        }
        if (d->type == TYPE_NONE)
                return parser_fail(p, "the declaration's type is missing");
        return 0;
}

static int declare_name(struct parser *p, struct declarator *d)
{
        uint64_t limit = VARIABLE_BYTES_MAX;

        if (p->lex.token.kind != TOKEN_WORD || p->lex.token.text[0] == '.')
                return parser_fail(p, "the declaration's name is missing");
        d->name = p->lex.token;
        d->elements = 1;
        d->open = false;
        lex_next(&p->lex);
        while (lex_is(&p->lex, '[')) {
                lex_next(&p->lex);
                if (lex_is(&p->lex, ']')) {
                        d->open = true;
                } else {
                        enum token_kind kind;
                        uint64_t n;
                        int r = number_parse(p, &kind, &n);

                        if (r < 0)
                                return r;
                        if (kind != TOKEN_INTEGER ||
                            __builtin_mul_overflow(d->elements, n, &d->elements) ||
                            d->elements > limit)
                                return parser_fail(p, "array '%.*s' is too large",
                                                   (int)MIN(d->name.length, 64U), d->name.text);
                }
                if (!lex_is(&p->lex, ']'))
                        return parser_expect(p, ']');
                lex_next(&p->lex);
        }
        return 0;
}

static uint64_t element_bytes(const struct declarator *d)
{
        return (uint64_t)type_bytes(d->type) * d->vector;
}

static uint64_t declared_align(const struct declarator *d)
{
        return MAX(d->align, element_bytes(d));
}

/* Parses ".reg .b32 %r<10>, %x;". */
static int declare_registers(struct parser *p)
{
        struct declarator d;
        int r;

        lex_next(&p->lex);
        r = declare_type(p, &d);
        if (r < 0)
                return r;
        if (d.vector != 1)
                return parser_fail(p, "vector registers are not supported");
        for (;;) {
                enum symbol_kind kind = SYMBOL_REGISTER;
                uint64_t count = 1;
                struct symbol *s;

                r = declare_name(p, &d);
                if (r < 0)
                        return r;
                if (lex_is(&p->lex, '<')) {
                        lex_next(&p->lex);
                        kind = SYMBOL_REGISTERS;
                        count = p->lex.token.value;
                        if (p->lex.token.kind != TOKEN_INTEGER || count == 0)
                                return parser_fail(p, "a number of registers is missing");
                        lex_next(&p->lex);
                        r = parser_expect(p, '>');
                        if (r < 0)
                                return r;
                }
                if (count > REGISTERS_MAX || p->registers + count > REGISTERS_MAX)
                        return parser_fail(p, "too many registers");
                p->registers += count;
                r = symbol_add(p, d.name.text, d.name.length, kind, &s);
                if (r < 0)
                        return r;
                s->type = (uint8_t)d.type;
                s->count = (uint32_t)count;
                s->slots = malloc(count * sizeof(*s->slots));
                if (!s->slots)
                        return -ENOMEM;
                memset(s->slots, 0xff, count * sizeof(*s->slots));
                if (!lex_is(&p->lex, ','))
                        break;
                lex_next(&p->lex);
        }
        return parser_expect(p, ';');
}

static int declare_local(struct parser *p)
{
        struct declarator d;
        int r;

        lex_next(&p->lex);
        r = declare_type(p, &d);
        while (r == 0) {
                struct symbol *s;
                uint32_t offset;
                uint64_t bytes;

                r = declare_name(p, &d);
                if (r < 0)
                        return r;
                bytes = d.elements * element_bytes(&d);
                r = local_new(p, bytes, declared_align(&d), &offset);
                if (r == 0)
                        r = symbol_add(p, d.name.text, d.name.length, SYMBOL_LOCAL, &s);
                if (r < 0)
                        return r;
                s->value = offset;
                s->count = (uint32_t)bytes;
                s->type = (uint8_t)d.type;
                if (!lex_is(&p->lex, ','))
                        return parser_expect(p, ';');
                lex_next(&p->lex);
        }
        return r;
}

static int declare_shared(struct parser *p, bool external)
{
        bool entry = p->scopes_n > 1 && p->f->entry;
        uint32_t *total = entry ? &p->f->shared_bytes : &p->m->shared_bytes;
        struct declarator d;
        int r;

        lex_next(&p->lex);
        r = declare_type(p, &d);
        while (r == 0) {
                struct symbol *s;
                uint64_t bytes, start;

                r = declare_name(p, &d);
                if (r < 0)
                        return r;
                bytes = d.elements * element_bytes(&d);
                start = align_up(*total, declared_align(&d));
                r = symbol_add(p, d.name.text, d.name.length,
                               external || d.open ? SYMBOL_SHARED_EXTERN
                               : entry            ? SYMBOL_SHARED_ENTRY
                                                  : SYMBOL_SHARED,
                               &s);
                if (r < 0)
                        return r;
                if (s->kind != SYMBOL_SHARED_EXTERN) {
                        if (bytes > SHARED_BYTES_MAX || start + bytes > SHARED_BYTES_MAX)
                                return parser_fail(p, "too much shared memory");
                        s->value = start;
                        *total = (uint32_t)(start + bytes);
                }
                if (!lex_is(&p->lex, ','))
                        return parser_expect(p, ';');
                lex_next(&p->lex);
        }
        return r;
}

struct initializer {
        uint8_t *bytes;
        size_t used, cap;
        uint32_t variable;
};

/* Parses the address of a symbol, plain or as generic(symbol), plus a number. */
static int initial_address(struct parser *p, struct initializer *init, unsigned element,
                           uint64_t *ret_value)
{
        struct ptx_module *m = p->m;
        bool generic = lex_is_word(&p->lex, "generic");
        const struct symbol *s;
        enum token_kind kind;
        uint64_t addend = 0;
        int r;

        if (generic) {
                lex_next(&p->lex);
                r = parser_expect(p, '(');
                if (r < 0)
                        return r;
        }
        s = symbol_find(p, p->lex.token.text, p->lex.token.length);
        if (p->lex.token.kind != TOKEN_WORD || !s || element != 8 ||
            (s->kind != SYMBOL_VARIABLE && s->kind != SYMBOL_FUNCTION))
                return parser_fail(p, "'%.*s' cannot be an initial value",
                                   (int)MIN(p->lex.token.length, 64U), p->lex.token.text);
        lex_next(&p->lex);
        if (generic) {
                r = parser_expect(p, ')');
                if (r < 0)
                        return r;
        }
        if (s->kind == SYMBOL_FUNCTION) {
                *ret_value = FUNCTION_HANDLE | s->value;
                return 0;
        }
        if (lex_is(&p->lex, '+') || lex_is(&p->lex, '-')) {
                r = number_parse(p, &kind, &addend);
                if (r < 0)
                        return r;
        }
        r = parser_grow(&m->relocation, &p->relocations_cap, m->relocations_n + 1,
                        sizeof(*m->relocation));
        if (r < 0)
                return r;
        m->relocation[m->relocations_n++] = (struct relocation){.variable = init->variable,
                                                                .offset = (uint32_t)init->used,
                                                                .bytes = element,
                                                                .of = (uint32_t)s->value,
                                                                .addend = (int64_t)addend};
        return 0;
}

static int initial_element(struct parser *p, const struct declarator *d, struct initializer *init,
                           uint64_t limit)
{
        unsigned element = type_bytes(d->type);
        enum token_kind kind = TOKEN_INTEGER;
        uint64_t v = 0;
        int r;

        if (init->used + element > limit)
                return parser_fail(p, "more initial values than '%.*s' has room for",
                                   (int)MIN(d->name.length, 64U), d->name.text);
        if (p->lex.token.kind == TOKEN_WORD)
                r = initial_address(p, init, element, &v);
        else
                r = number_parse(p, &kind, &v);
        if (r == 0)
                r = parser_grow(&init->bytes, &init->cap, init->used + element, 1);
        if (r < 0)
                return r;
        if (kind == TOKEN_F64 && d->type == TYPE_f32) {
                double x;
                float f;

                memcpy(&x, &v, sizeof(x));
                f = (float)x;
                v = half_bits_of(f);
        }
        memcpy(init->bytes + init->used, &v, element);
        init->used += element;
        return 0;
}

/* Parses "= number" or "= {a, {b, c}, ...}". Inner braces only group. */
static int initial_values(struct parser *p, const struct declarator *d, struct initializer *init,
                          uint64_t limit)
{
        unsigned depth = 0;
        int r = 0;

        lex_next(&p->lex);
        do {
                if (lex_is(&p->lex, '{')) {
                        depth++;
                        lex_next(&p->lex);
                } else if (lex_is(&p->lex, '}') && depth) {
                        depth--;
                        lex_next(&p->lex);
                } else if (lex_is(&p->lex, ',') && depth) {
                        lex_next(&p->lex);
                } else {
                        r = initial_element(p, d, init, limit);
                }
        } while (r == 0 && depth);
        return r;
}

static int variable_new(struct parser *p, struct declarator *d, bool constant)
{
        struct ptx_module *m = p->m;
        size_t cap = p->variables_cap;
        struct initializer init = {.variable = (uint32_t)m->variables_n};
        struct ptx_variable *v;
        struct symbol *s;
        uint64_t bytes = d->elements * element_bytes(d);
        int r;

        if (bytes > VARIABLE_BYTES_MAX)
                return parser_fail(p, "variable '%.*s' is too large", (int)MIN(d->name.length, 64U),
                                   d->name.text);
        r = parser_grow(&m->variable, &p->variables_cap, m->variables_n + 1, sizeof(*m->variable));
        if (r < 0)
                return r;
        r = parser_grow(&m->address, &cap, m->variables_n + 1, sizeof(*m->address));
        if (r < 0)
                return r;
        v = &m->variable[m->variables_n];
        *v = (struct ptx_variable){.name = strndup(d->name.text, d->name.length)};
        m->address[m->variables_n++] = 0;
        if (!v->name)
                return -ENOMEM;
        r = symbol_add(p, d->name.text, d->name.length, SYMBOL_VARIABLE, &s);
        if (r < 0)
                return r;
        s->value = m->variables_n - 1;
        if (lex_is(&p->lex, '=')) {
                r = initial_values(p, d, &init, d->open ? VARIABLE_BYTES_MAX : bytes);
                if (d->open)
                        bytes = init.used;
        } else if (d->open) {
                r = parser_fail(p, "variable '%.*s' has no size", (int)MIN(d->name.length, 64U),
                                d->name.text);
        }
        if (r == 0 && init.used) {
                uint8_t *initial = calloc(1, MAX(bytes, (uint64_t)1));

                if (initial)
                        memcpy(initial, init.bytes, MIN(init.used, bytes));
                v->initial = initial;
                r = initial ? 0 : -ENOMEM;
        }
        free(init.bytes);
        v->bytes = bytes;
        v->align = declared_align(d);
        v->constant = constant;
        return r;
}

static int declare_variables(struct parser *p, bool constant, bool external)
{
        struct declarator d;
        int r;

        lex_next(&p->lex);
        r = declare_type(p, &d);
        while (r == 0) {
                r = declare_name(p, &d);
                if (r == 0 && external)
                        return parser_fail(p, "variable '%.*s' is defined in no module",
                                           (int)MIN(d.name.length, 64U), d.name.text);
                if (r == 0)
                        r = variable_new(p, &d, constant);
                if (r < 0)
                        return r;
                if (!lex_is(&p->lex, ','))
                        return parser_expect(p, ';');
                lex_next(&p->lex);
        }
        return r;
}

int declare_in_function(struct parser *p)
{
        if (lex_is_word(&p->lex, ".reg"))
                return declare_registers(p);
        if (lex_is_word(&p->lex, ".local") || lex_is_word(&p->lex, ".param"))
                return declare_local(p);
        if (lex_is_word(&p->lex, ".shared"))
                return declare_shared(p, false);
        if (lex_is_word(&p->lex, ".global") || lex_is_word(&p->lex, ".const"))
                return declare_variables(p, lex_is_word(&p->lex, ".const"), false);
        return parser_fail(p, "unknown directive '%.*s'", (int)MIN(p->lex.token.length, 32U),
                           p->lex.token.text);
}

int declare_in_module(struct parser *p, enum linkage linkage)
{
        bool external = linkage == LINKAGE_EXTERN;

        if (lex_is_word(&p->lex, ".shared"))
                return declare_shared(p, external);
        if (lex_is_word(&p->lex, ".global") || lex_is_word(&p->lex, ".const"))
                return declare_variables(p, lex_is_word(&p->lex, ".const"), external);
        return parser_fail(p, "unknown directive '%.*s'", (int)MIN(p->lex.token.length, 32U),
                           p->lex.token.text);
}

static int entry_parameter(struct parser *p, const struct declarator *d)
{
        struct ptx_function *f = p->f;
        uint64_t bytes = d->elements * element_bytes(d), align = declared_align(d);
        uint64_t start = align_up(f->info.parameter_bytes, align);
        struct ptx_parameter *grown;
        struct symbol *s;
        int r;

        if (bytes > UINT16_MAX || start + bytes > UINT16_MAX)
                return parser_fail(p, "the parameters take more than %u bytes", UINT16_MAX);
        r = symbol_add(p, d->name.text, d->name.length, SYMBOL_PARAM, &s);
        if (r < 0)
                return r;
        s->value = start;
        s->count = (uint32_t)bytes;
        grown = reallocarray(f->parameters, f->info.parameters + 1, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        f->parameters = grown;
        grown[f->info.parameters++] =
                (struct ptx_parameter){(uint32_t)start, (uint32_t)bytes, (uint32_t)align};
        f->info.parameter_bytes = (uint32_t)(start + bytes);
        return 0;
}

static int function_parameter(struct parser *p, const struct declarator *d, bool registered,
                              bool result)
{
        struct function_param **list = result ? &p->f->returns : &p->f->params;
        unsigned *n = result ? &p->f->returns_n : &p->f->params_n;
        struct function_param param = {.bytes = (uint32_t)(d->elements * element_bytes(d)),
                                       .align = (uint32_t)declared_align(d),
                                       .slot = NO_SLOT,
                                       .type = (uint8_t)d->type};
        struct function_param *grown;
        struct symbol *s;
        int r;

        if (*n >= UINT16_MAX)
                return parser_fail(p, "too many parameters");
        if (registered) {
                r = symbol_add(p, d->name.text, d->name.length, SYMBOL_REGISTER, &s);
                if (r < 0)
                        return r;
                s->type = (uint8_t)d->type;
                s->count = 1;
                s->slots = malloc(sizeof(*s->slots));
                if (!s->slots)
                        return -ENOMEM;
                r = slot_new(p, d->type, &s->slots[0]);
                param.slot = s->slots[0];
                param.bytes = type_lane_bits(d->type) / 8;
                if (r == 0 && d->type == TYPE_pred)
                        r = parser_fail(p, "a predicate as parameter");
        } else {
                r = local_new(p, d->elements * element_bytes(d), declared_align(d), &param.offset);
                if (r == 0)
                        r = symbol_add(p, d->name.text, d->name.length, SYMBOL_LOCAL, &s);
                if (r == 0) {
                        s->value = param.offset;
                        s->count = param.bytes;
                        s->type = (uint8_t)d->type;
                }
        }
        if (r < 0)
                return r;
        grown = reallocarray(*list, *n + 1U, sizeof(*grown));
        if (!grown)
                return -ENOMEM;
        *list = grown;
        grown[(*n)++] = param;
        return 0;
}

int declare_parameters(struct parser *p, bool results)
{
        int r = parser_expect(p, '(');

        while (r == 0 && !lex_is(&p->lex, ')')) {
                bool registered = lex_is_word(&p->lex, ".reg");
                struct declarator d;

                if (!registered && !lex_is_word(&p->lex, ".param"))
                        return parser_fail(p, "a parameter is missing");
                if (registered && p->f->entry)
                        return parser_fail(p, "a kernel's parameter in a register");
                lex_next(&p->lex);
                r = declare_type(p, &d);
                if (r == 0)
                        r = declare_name(p, &d);
                if (r < 0)
                        return r;
                if (d.open && !p->f->entry)
                        d.elements = 0; /* a variadic function is only declared, never defined */
                r = p->f->entry ? entry_parameter(p, &d)
                                : function_parameter(p, &d, registered, results);
                if (r < 0)
                        return r;
                if (!lex_is(&p->lex, ','))
                        break;
                lex_next(&p->lex);
        }
        return r < 0 ? r : parser_expect(p, ')');
}
