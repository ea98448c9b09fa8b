/* parse.c: makes and frees modules: parses directives, functions and bodies. It must never trust
 * the text: it checks every size, and never recurses. */
#include "sim/ptx/parser.h"
#include "sim/ptx/declare.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static int skip_past(struct parser *p, char punctuation)
{
        while (!lex_is(&p->lex, punctuation)) {
                if (p->lex.token.kind == TOKEN_END)
                        return parser_fail(p, "the text ends where '%c' belongs", punctuation);
                lex_next(&p->lex);
        }
        lex_next(&p->lex);
        return 0;
}

static int skip_braces(struct parser *p)
{
        size_t depth = 0;

        while (!lex_is(&p->lex, '{') && p->lex.token.kind != TOKEN_END)
                lex_next(&p->lex);
        do {
                if (p->lex.token.kind == TOKEN_END)
                        return parser_fail(p, "the text ends inside braces");
                depth += lex_is(&p->lex, '{');
                depth -= lex_is(&p->lex, '}');
                lex_next(&p->lex);
        } while (depth);
        return 0;
}

static int parse_guard(struct parser *p)
{
        enum ptx_type type;
        int r;

        p->guard = NO_SLOT;
        p->guard_not = 0;
        if (!lex_is(&p->lex, '@'))
                return 0;
        lex_next(&p->lex);
        if (lex_is(&p->lex, '!')) {
                p->guard_not = UINT32_MAX;
                lex_next(&p->lex);
        }
        if (p->lex.token.kind != TOKEN_WORD)
                return parser_fail(p, "a predicate is missing after '@'");
        r = symbol_register(p, p->lex.token.text, p->lex.token.length, &type, &p->guard);
        if (r == -ENOENT || (r == 0 && type != TYPE_pred))
                return parser_fail(p, "'%.*s' is no predicate", (int)MIN(p->lex.token.length, 64U),
                                   p->lex.token.text);
        if (r < 0)
                return r;
        lex_next(&p->lex);
        return 0;
}

/* Parses "name: .branchtargets a, b;". */
static int parse_targets(struct parser *p, const struct token *name)
{
        struct ptx_module *m = p->m;
        struct branch_table *t;
        struct symbol *s;
        size_t cap = 0;
        int r = symbol_add(p, name->text, name->length, SYMBOL_TABLE, &s);

        if (r < 0)
                return r;
        s->value = m->tables_n;
        r = parser_grow(&m->table, &p->tables_cap, m->tables_n + 1, sizeof(*m->table));
        if (r < 0)
                return r;
        t = &m->table[m->tables_n++];
        *t = (struct branch_table){0};
        do {
                lex_next(&p->lex);
                if (p->lex.token.kind != TOKEN_WORD)
                        return parser_fail(p, "a label is missing");
                r = parser_grow(&t->target, &cap, t->targets_n + 1U, sizeof(*t->target));
                if (r == 0)
                        r = fixup_add(p, p->lex.token.text, p->lex.token.length, 0,
                                      (uint32_t)m->tables_n - 1, t->targets_n);
                if (r < 0)
                        return r;
                t->target[t->targets_n++] = 0;
                lex_next(&p->lex);
        } while (lex_is(&p->lex, ','));
        return parser_expect(p, ';');
}

static int parse_label(struct parser *p, const struct token *name)
{
        struct symbol *s;
        int r;

        lex_next(&p->lex);
        if (lex_is_word(&p->lex, ".branchtargets"))
                return parse_targets(p, name);
        if (lex_is_word(&p->lex, ".callprototype") || lex_is_word(&p->lex, ".calltargets")) {
                r = symbol_add(p, name->text, name->length, SYMBOL_PROTOTYPE, &s);
                return r < 0 ? r : skip_past(p, ';');
        }
        r = symbol_add(p, name->text, name->length, SYMBOL_LABEL, &s);
        if (r == 0)
                s->value = p->m->insns_n;
        return r;
}

static int parse_statement(struct parser *p)
{
        struct token name;
        int r;

        p->line = p->lex.token.line;
        if (lex_is_word(&p->lex, ".loc") || lex_is_word(&p->lex, ".file")) {
                lex_skip_line(&p->lex);
                return 0;
        }
        if (lex_is_word(&p->lex, ".pragma"))
                return skip_past(p, ';');
        if (lex_is(&p->lex, ';')) {
                lex_next(&p->lex);
                return 0;
        }
        if (p->lex.token.kind == TOKEN_WORD && p->lex.token.text[0] == '.')
                return declare_in_function(p);
        r = parse_guard(p);
        if (r < 0)
                return r;
        if (p->lex.token.kind != TOKEN_WORD)
                return parser_fail(p, "'%.*s' where an instruction belongs",
                                   (int)MIN(p->lex.token.length, 32U), p->lex.token.text);
        name = p->lex.token;
        lex_next(&p->lex);
        if (p->guard == NO_SLOT && lex_is(&p->lex, ':'))
                return parse_label(p, &name);
        p->opcode = name.text;
        p->opcode_length = name.length;
        return decode_instruction(p);
}

static int parse_body(struct parser *p)
{
        struct ptx_insn *in;
        unsigned outer = p->scopes_n;
        int r = parser_expect(p, '{');

        while (r == 0) {
                p->line = p->lex.token.line;
                if (lex_is(&p->lex, '{')) {
                        r = scope_push(p);
                        lex_next(&p->lex);
                } else if (lex_is(&p->lex, '}')) {
                        if (p->scopes_n == outer)
                                break;
                        r = scope_pop(p);
                        lex_next(&p->lex);
                } else {
                        r = parse_statement(p);
                }
        }
        if (r < 0)
                return r;
        /* A body may end without ret, or with a label. */
        r = insn_emit(p, p->f->entry ? OP_EXIT : OP_RET, &in);
        if (r < 0)
                return r;
        p->f->last = (uint32_t)p->m->insns_n;
        r = scope_pop(p);
        lex_next(&p->lex);
        return r;
}

/* Parses ".maxntid 256, 1, 1" and the like, between the parameters and the body. */
static int parse_tuning(struct parser *p)
{
        while (p->lex.token.kind == TOKEN_WORD && p->lex.token.text[0] == '.') {
                bool threads = lex_is_word(&p->lex, ".maxntid") || lex_is_word(&p->lex, ".reqntid");
                uint64_t product = 1;

                if (lex_is_word(&p->lex, ".pragma") || lex_is_word(&p->lex, ".attribute")) {
                        int r = skip_past(p, lex_is_word(&p->lex, ".pragma") ? ';' : ')');

                        if (r < 0)
                                return r;
                        continue;
                }
                lex_next(&p->lex);
                while (p->lex.token.kind == TOKEN_INTEGER || lex_is(&p->lex, ',')) {
                        if (p->lex.token.kind == TOKEN_INTEGER)
                                product *= MIN(p->lex.token.value, (uint64_t)4096);
                        product = MIN(product, (uint64_t)UINT32_MAX);
                        lex_next(&p->lex);
                }
                if (threads && product)
                        p->f->info.max_threads = (uint32_t)MIN(product, (uint64_t)1024);
        }
        return 0;
}

static int function_new(struct parser *p, const struct token *name, bool entry)
{
        struct ptx_module *m = p->m;
        struct ptx_kernel *k;
        struct symbol *s = symbol_find(p, name->text, name->length);
        int r;

        if (s && s->kind == SYMBOL_FUNCTION) {
                p->f_index = (uint32_t)s->value;
                p->f = &m->function[s->value]->f;
                if (p->f->defined || p->f->entry != entry)
                        return parser_fail(p, "function '%s' is defined twice", p->f->name);
                /* The function was declared before; its parameters are read again. */
                free(p->f->params);
                free(p->f->returns);
                free(p->f->parameters);
                p->f->params = p->f->returns = NULL;
                p->f->parameters = NULL;
                p->f->params_n = p->f->returns_n = 0;
                p->f->info.parameters = p->f->info.parameter_bytes = 0;
                return 0;
        }
        r = symbol_add(p, name->text, name->length, SYMBOL_FUNCTION, &s);
        if (r == 0)
                r = parser_grow(&m->function, &p->functions_cap, m->functions_n + 1,
                                sizeof(struct ptx_kernel *));
        if (r < 0)
                return r;
        k = calloc(1, sizeof(*k));
        if (!k)
                return -ENOMEM;
        s->value = m->functions_n;
        p->f_index = (uint32_t)m->functions_n;
        m->function[m->functions_n++] = k;
        p->f = &k->f;
        p->f->module = m;
        p->f->entry = entry;
        p->f->carry = NO_SLOT;
        p->f->info.max_threads = 1024;
        p->f->name = strndup(name->text, name->length);
        p->f->info.name = p->f->name;
        return p->f->name ? 0 : -ENOMEM;
}

static void function_begin(struct parser *p)
{
        p->local = p->pred_left = 0;
        p->f->frame_bytes = 0;
        p->f->local_bytes = 0;
        p->constants_cap = p->f->constants_n;
        p->callees_cap = p->f->callees_n;
        free(p->constant_map);
        p->constant_map = NULL;
        p->constant_map_n = 0;
}

static int parse_function(struct parser *p, bool entry)
{
        struct lexer returns = {0}, after;
        struct token name;
        int r;

        lex_next(&p->lex);
        p->line = p->lex.token.line;
        /* The results precede the name, but belong to the scope that the name opens. */
        if (!entry && lex_is(&p->lex, '(')) {
                returns = p->lex;
                r = skip_past(p, ')');
                if (r < 0)
                        return r;
        }
        name = p->lex.token;
        if (name.kind != TOKEN_WORD || name.text[0] == '.')
                return parser_fail(p, "the function's name is missing");
        lex_next(&p->lex);
        r = function_new(p, &name, entry);
        if (r < 0)
                return r;
        function_begin(p);
        r = scope_push(p);
        if (r < 0)
                return r;
        if (returns.at) {
                after = p->lex;
                p->lex = returns;
                r = declare_parameters(p, true);
                if (r < 0)
                        return r;
                p->lex = after;
        }
        if (lex_is(&p->lex, '(')) {
                r = declare_parameters(p, false);
                if (r < 0)
                        return r;
        }
        r = parse_tuning(p);
        if (r < 0)
                return r;
        if (lex_is(&p->lex, ';')) {
                lex_next(&p->lex);
                return scope_pop(p);
        }
        p->f->defined = true;
        p->f->first = (uint32_t)p->m->insns_n;
        return parse_body(p);
}

static int parse_directive(struct parser *p)
{
        enum linkage linkage = LINKAGE_NONE;

        p->line = p->lex.token.line;
        for (;; lex_next(&p->lex)) {
                if (lex_is_word(&p->lex, ".extern"))
                        linkage = LINKAGE_EXTERN;
                else if (!lex_is_word(&p->lex, ".visible") && !lex_is_word(&p->lex, ".weak") &&
                         !lex_is_word(&p->lex, ".common"))
                        break;
        }
        if (lex_is_word(&p->lex, ".entry"))
                return parse_function(p, true);
        if (lex_is_word(&p->lex, ".func"))
                return parse_function(p, false);
        if (lex_is_word(&p->lex, ".section"))
                return skip_braces(p);
        if (lex_is_word(&p->lex, ".pragma"))
                return skip_past(p, ';');
        if (lex_is_word(&p->lex, ".version") || lex_is_word(&p->lex, ".target") ||
            lex_is_word(&p->lex, ".file") || lex_is_word(&p->lex, ".loc")) {
                lex_skip_line(&p->lex);
                return 0;
        }
        if (lex_is_word(&p->lex, ".address_size")) {
                lex_next(&p->lex);
                if (p->lex.token.kind != TOKEN_INTEGER || p->lex.token.value != 64)
                        return parser_fail(p, "only 64-bit addresses are supported");
                lex_next(&p->lex);
                return 0;
        }
        return declare_in_module(p, linkage);
}

/* Finds the kernels that use shared memory of module scope, themselves or in functions that they
 * call. */
static int find_shared(struct ptx_module *m)
{
        _cleanup_free_ uint32_t *todo = calloc(m->functions_n + 1, sizeof(*todo));
        _cleanup_free_ uint8_t *seen = calloc(m->functions_n + 1, 1);

        if (!todo || !seen)
                return -ENOMEM;
        for (size_t k = 0; k < m->functions_n && m->shared_bytes; k++) {
                struct ptx_function *f = &m->function[k]->f;
                size_t n = 0;

                if (!f->entry || !f->callees_n)
                        continue;
                memset(seen, 0, m->functions_n);
                todo[n++] = (uint32_t)k;
                seen[k] = 1;
                while (n) {
                        const struct ptx_function *g = &m->function[todo[--n]]->f;

                        f->shared_used = f->shared_used || g->shared_used;
                        for (size_t i = 0; i < g->callees_n; i++)
                                if (!seen[g->callees[i]]) {
                                        seen[g->callees[i]] = 1;
                                        todo[n++] = g->callees[i];
                                }
                }
        }
        /* An indirect call may reach any function. */
        for (size_t i = 0; i < m->calls_n; i++)
                if (m->call[i].callee == NO_INDEX)
                        for (size_t k = 0; k < m->functions_n; k++)
                                m->function[k]->f.shared_used = m->shared_bytes != 0;
        for (size_t k = 0; k < m->functions_n; k++) {
                struct ptx_function *f = &m->function[k]->f;
                uint64_t base = f->shared_used ? align_up(m->shared_bytes, SHARED_ALIGN) : 0;

                f->info.static_shared_bytes = (uint32_t)(base + f->shared_bytes);
                f->info.local_bytes = f->local_bytes;
                f->info.parameter = f->parameters;
        }
        return 0;
}

static int parse_module(struct parser *p)
{
        int r = scope_push(p);

        lex_next(&p->lex);
        while (r == 0 && p->lex.token.kind != TOKEN_END) {
                p->line = p->lex.token.line;
                if (lex_is(&p->lex, ';'))
                        lex_next(&p->lex);
                else if (p->lex.token.kind != TOKEN_WORD || p->lex.token.text[0] != '.')
                        r = parser_fail(p, "'%.*s' where a directive belongs",
                                        (int)MIN(p->lex.token.length, 32U), p->lex.token.text);
                else
                        r = parse_directive(p);
        }
        if (r < 0)
                return r;
        r = scope_pop(p);
        return r < 0 ? r : find_shared(p->m);
}

static void parser_close(struct parser *p)
{
        for (size_t i = 0; i < p->symbols_n; i++)
                free(p->symbol[i].slots);
        free(p->symbol);
        free(p->fixup);
        free(p->constant_map);
        free(p);
}

int ptx_parse(const char *text, size_t bytes, struct ptx_module **ret_module,
              char error[static PTX_ERROR_MAX])
{
        struct parser *p = calloc(1, sizeof(*p));
        struct ptx_module *m = calloc(1, sizeof(*m));
        size_t length = text ? strnlen(text, bytes) : 0;
        int r = -ENOMEM;

        error[0] = 0;
        if (!p || !m)
                goto out;
        m->text = malloc(length + 1);
        if (!m->text)
                goto out;
        if (length)
                memcpy(m->text, text, length);
        m->text[length] = 0;
        m->text_bytes = length;
        memset(p->bucket, 0xff, sizeof(p->bucket));
        p->m = m;
        p->error = error;
        lex_open(&p->lex, m->text, length);
        r = parse_module(p);
        if (r == 0)
                *ret_module = TAKE_PTR(m);
out:
        if (r == -ENOMEM)
                (void)snprintf(error, PTX_ERROR_MAX, "out of memory");
        if (p)
                parser_close(p);
        ptx_module_free(m);
        return r;
}

void ptx_module_free(struct ptx_module *m)
{
        if (!m)
                return;
        for (size_t i = 0; i < m->functions_n; i++) {
                struct ptx_function *f = &m->function[i]->f;

                free(f->name);
                free(f->parameters);
                free(f->params);
                free(f->returns);
                free(f->constants);
                free(f->callees);
                free(m->function[i]);
        }
        for (size_t i = 0; i < m->variables_n; i++) {
                free((void *)m->variable[i].name);
                free((void *)m->variable[i].initial);
        }
        for (size_t i = 0; i < m->calls_n; i++)
                free(m->call[i].argument);
        for (size_t i = 0; i < m->tables_n; i++)
                free(m->table[i].target);
        free(m->function);
        free(m->variable);
        free(m->address);
        free(m->insn);
        free(m->call);
        free(m->table);
        free(m->relocation);
        free(m->text);
        free(m);
}

const struct ptx_kernel *ptx_module_kernel_at(const struct ptx_module *m, size_t index)
{
        for (size_t i = 0; i < m->functions_n; i++)
                if (m->function[i]->f.entry && m->function[i]->f.defined && index-- == 0)
                        return m->function[i];
        return NULL;
}

const struct ptx_kernel *ptx_module_kernel(const struct ptx_module *m, const char *name)
{
        for (size_t i = 0; i < m->functions_n; i++)
                if (m->function[i]->f.entry && m->function[i]->f.defined &&
                    strcmp(m->function[i]->f.name, name) == 0)
                        return m->function[i];
        return NULL;
}

const struct ptx_kernel_info *ptx_kernel_info(const struct ptx_kernel *k)
{
        return &k->f.info;
}

const struct ptx_variable *ptx_module_variable_at(const struct ptx_module *m, size_t index)
{
        return index < m->variables_n ? &m->variable[index] : NULL;
}

/* Sets a variable's address, also in the initial values that contain it. */
void ptx_module_place(struct ptx_module *m, size_t index, uint64_t address)
{
        if (index >= m->variables_n)
                return;
        m->address[index] = address;
        for (size_t i = 0; i < m->relocations_n; i++) {
                const struct relocation *r = &m->relocation[i];
                uint64_t value = address + (uint64_t)r->addend;

                if (r->of == index)
                        memcpy((uint8_t *)m->variable[r->variable].initial + r->offset, &value,
                               r->bytes);
        }
}
